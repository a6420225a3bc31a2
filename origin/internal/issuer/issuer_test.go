package issuer_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/issuer"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/origin/internal/users"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs an issuer until the test ends.
func serve(t *testing.T) (address string) {
	t.Helper()
	var i *issuer.Issuer
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { i.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	var err error
	if i, err = issuer.New(server.URL); err != nil {
		t.Fatal(err)
	}
	return server.URL
}

func TestItsTokensTellWhoTheUserIs(t *testing.T) {
	address := serve(t)
	v := users.New(users.Options{Metrics: telemetry.New().Tokens(users.Reasons), Issuers: []users.Issuer{{
		URL: address, Audience: []string{issuer.Audience}, Algorithms: users.DefaultAlgorithms, Claims: users.Claims{User: "sub", Tenant: "tenant", Tier: "tier"},
	}}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { v.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	token, err := issuer.Ask(t.Context(), address, issuer.Who{User: "alice@example.com", Tenant: "acme", Tier: "paid"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	user, err := v.Verify(t.Context(), token)
	if err != nil || user == nil || *user != (identity.User{Issuer: address, Tenant: "acme", Subject: "alice@example.com", Tier: "paid"}) {
		t.Errorf("%+v, %v", user, err)
	}
	if user, err := v.Verify(t.Context(), token[:len(token)-2]+"AA"); user != nil || err == nil {
		t.Errorf("a changed one: %+v, %v", user, err)
	}
}

func TestWhatIsAskedForWronglyIsTold(t *testing.T) {
	address := serve(t)
	for want, form := range map[string]string{
		`user "": want 1 to 255`:          "",
		`tenant "a b": want 1 to 64`:      "user=a&tenant=a+b",
		`tier "|": want 1 to 64`:          "user=a&tier=|",
		"for 1y: want a time":             "user=a&for=1y",
		"for 25h0m0s: want 1s to 24h0m0s": "user=a&for=25h",
		"want no control characters":      "user=a%0ab",
		"request body too large":          "user=" + strings.Repeat("a", 5000),
	} {
		response, err := http.Post(address+issuer.TokenPath, "application/x-www-form-urlencoded", strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		_ = response.Write(&text)
		response.Body.Close()
		if response.StatusCode != http.StatusBadRequest || !strings.Contains(text.String(), want) {
			t.Errorf("%.40s: want 400 with %q:\n%s", form, want, &text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if _, err := issuer.Ask(t.Context(), "http://127.0.0.1:1", issuer.Who{User: "a"}, time.Hour); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:1 does not answer") {
		t.Errorf("an issuer that is not there: %v", err)
	}
	if _, err := issuer.Ask(t.Context(), address, issuer.Who{User: "a"}, 48*time.Hour); err == nil || !strings.Contains(err.Error(), "400 Bad Request: for 48h0m0s: want 1s to 24h0m0s") {
		t.Errorf("a token for two days: %v", err)
	}
}
