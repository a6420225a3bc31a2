package stand

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// issuerAudience is what the tokens of "weir demo issuer" are for.
const issuerAudience = "weir-demo-api"

// Issuer is a running "weir demo issuer".
type Issuer struct {
	*Process
	URL string
}

// StartIssuer starts an issuer of users and waits until it answers.
func StartIssuer(t testing.TB) *Issuer {
	t.Helper()
	address := Loopback(t)
	i := &Issuer{URL: "http://" + address}
	i.Process = Start(t, t.TempDir(), "issuer", Path(t, Weir), []string{"demo", "issuer", "--listen", address}, nil)
	i.Until(t, "is ready", func() error { return status(i.URL+"/.well-known/openid-configuration", http.StatusOK) })
	return i
}

// Token is a bearer token for a user, whose tier may be empty.
func (i *Issuer) Token(t testing.TB, user, tier string) string {
	t.Helper()
	response, err := asking.PostForm(i.URL+"/token", url.Values{"user": {user}, "tier": {tier}})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("no token for %s: %s %s %v", user, response.Status, body, err)
	}
	return strings.TrimSpace(string(body))
}
