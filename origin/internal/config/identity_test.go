package config_test

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/users"
)

func TestIssuersAreReadAsTheyStand(t *testing.T) {
	file := write(t, "weir.yaml", `
upstream: http://127.0.0.1:9000
identity:
  invalid-token: anonymous
  foreign-token: refuse
  issuer-down: anonymous
  oidc:
  - {issuer: "http://127.0.0.1:8091", audience: [api]}
  - issuer: https://login.example.com/
    audience: [api, "https://api.example.com"]
    algorithms: [ES384, EdDSA]
    parties: [app]
    leeway: 0s
    claims: {user: email, tenant: org.name, tier: https://example.com/tier}
    ca: ca.pem
`)
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "ca.pem"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file, none)
	if err != nil {
		t.Fatal(err)
	}
	got := c.Identity
	if got.Policy != (users.Policy{AnonymousInvalid: true, RefuseForeign: true, AnonymousDown: true}) || len(got.Issuers) != 2 {
		t.Fatalf("%+v", got)
	}
	if got.Issuers[0].CA != nil || got.Issuers[1].CA == nil {
		t.Error("the authorities of the one are the other's")
	}
	got.Issuers[1].CA = nil
	want := []users.Issuer{
		{URL: "http://127.0.0.1:8091", Audience: []string{"api"}, Algorithms: users.DefaultAlgorithms, Leeway: 30 * time.Second, Claims: users.Claims{User: "sub"}},
		{URL: "https://login.example.com/", Audience: []string{"api", "https://api.example.com"}, Algorithms: []string{"ES384", "EdDSA"}, Parties: []string{"app"},
			Claims: users.Claims{User: "email", Tenant: "org.name", Tier: "https://example.com/tier"}},
	}
	if !reflect.DeepEqual(got.Issuers, want) {
		t.Errorf("got %+v\nwant %+v", got.Issuers, want)
	}
}

func TestWithoutIssuersNobodyIsRefusedForATokenOfTheAPIs(t *testing.T) {
	c, err := config.Load(write(t, "weir.yaml", "upstream: http://127.0.0.1:9000\n"), none)
	if err != nil || len(c.Identity.Issuers) != 0 || c.Identity.Policy != (users.Policy{}) {
		t.Errorf("%+v, %v", c.Identity, err)
	}
}
