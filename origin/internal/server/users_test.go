package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/users/userstest"
)

func (p *process) show(token string) *http.Response {
	p.t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+p.server.Address("gateway")+"/", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := p.client.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return response
}

func TestUsersAreVerifiedByTheIssuersOfTheConfiguration(t *testing.T) {
	var provider *userstest.Provider
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { provider.ServeHTTP(w, r) }))
	defer issuer.Close()
	provider = userstest.New(t, issuer.URL)
	p := start(t, settings(t, "identity: {oidc: [{issuer: \""+issuer.URL+"\", audience: ["+userstest.Audience+"]}]}\n"))
	good := provider.Token(t, "alice")
	if got := p.show(good); got.StatusCode != http.StatusOK {
		t.Errorf("a good token: %s", got.Status)
	}
	bad := p.show(good[:len(good)-4] + "AAAA")
	if asks := bad.Header.Get("WWW-Authenticate"); bad.StatusCode != http.StatusUnauthorized || asks != `Bearer error="invalid_token"` {
		t.Errorf("a bad token: %s, WWW-Authenticate %q", bad.Status, asks)
	}
	_, metrics := p.get("admin", "/metrics")
	for _, want := range []string{
		`weir_issuer_up{issuer="` + issuer.URL + `"} 1`, `weir_tokens_rejected_total{reason="signature"} 1`, `weir_tokens_rejected_total{reason="expired"} 0`,
		`weir_keys_rejected_total{reason="key_unknown"} 0`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
	if strings.Contains(metrics, "token_invalid") {
		t.Error("a token counts as a key")
	}
}
