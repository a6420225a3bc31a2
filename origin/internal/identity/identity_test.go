package identity_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"testing"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/shared/header"
)

// Case 19.
func TestAddressesAreReadInEveryFormThatProxiesWrite(t *testing.T) {
	for text, want := range map[string]string{
		"1.2.3.4": "1.2.3.4", " 1.2.3.4 ": "1.2.3.4", "1.2.3.4:80": "1.2.3.4", "::ffff:1.2.3.4": "1.2.3.4", "[::ffff:1.2.3.4]:80": "1.2.3.4",
		"2001:db8::1": "2001:db8::1", "[2001:db8::1]": "2001:db8::1", "[2001:db8::1]:443": "2001:db8::1", "fe80::1%eth0": "fe80::1", "[fe80::1%eth0]:80": "fe80::1",
	} {
		if a, ok := identity.ParseAddress(text); !ok || a.String() != want {
			t.Errorf("%q: %v %v, want %s", text, a, ok, want)
		}
	}
	for _, text := range []string{"", "unknown", "garbage, 1.2.3.4", "1.2.3.4, 5.6.7.8", "1.2.3", "256.1.1.1", "[1.2.3.4", "::1]", "1.2.3.4:port", "@weir", "/run/x.sock"} {
		if a, ok := identity.ParseAddress(text); ok {
			t.Errorf("%q is read as %v", text, a)
		}
	}
}

func resolver(trusted string) *identity.Resolver {
	table := (&keys.File{}).Table()
	return &identity.Resolver{
		Keys:     func() *keys.Table { return table },
		Believes: func(p netip.Addr) bool { return trusted != "" && netip.MustParsePrefix(trusted).Contains(p) },
	}
}

func TestOnlyAnEdgeIsBelievedAboutAddresses(t *testing.T) {
	for _, c := range []struct {
		name, trusted, peer string
		lines               []string
		want                string
	}{
		{"nobody is trusted", "", "192.0.2.1", []string{"198.51.100.1"}, "192.0.2.1"},
		{"another peer", "10.0.0.0/8", "192.0.2.1", []string{"198.51.100.1"}, "192.0.2.1"},
		{"an edge", "10.0.0.0/8", "10.1.2.3", []string{"198.51.100.1"}, "198.51.100.1"},
		{"an edge, mapped", "10.0.0.0/8", "::ffff:10.1.2.3", []string{"198.51.100.1"}, "198.51.100.1"},
		{"an edge that says nothing", "10.0.0.0/8", "10.1.2.3", nil, "10.1.2.3"},
		{"an edge that says garbage", "10.0.0.0/8", "10.1.2.3", []string{"unknown"}, "10.1.2.3"},
		{"an edge that says two", "10.0.0.0/8", "10.1.2.3", []string{"198.51.100.1", "198.51.100.2"}, "10.1.2.3"},
	} {
		h := http.Header{"X-Weir-Address": c.lines, "X-Forwarded-For": {"203.0.113.1"}, "X-Real-Ip": {"203.0.113.2"}}
		caller, refused := resolver(c.trusted).Resolve(t.Context(), h, netip.MustParseAddr(c.peer))
		if refused != nil || caller.Address.String() != c.want {
			t.Errorf("%s: %v %v, want %s", c.name, caller.Address, refused, c.want)
		}
	}
}

type verifier map[string]*identity.User

func (v verifier) Verify(_ context.Context, token string) (*identity.User, error) {
	if token == "bad" {
		return nil, errors.New("bad signature")
	}
	return v[token], nil
}

func TestUsersComeFromVerifiedTokensOnly(t *testing.T) {
	r := resolver("")
	r.Users = verifier{"good": {Issuer: "i", Subject: "s"}}
	for token, want := range map[string]struct {
		subject string
		code    header.Code
	}{"good": {"s", ""}, "other": {"", ""}, "bad": {"", header.TokenInvalid}} {
		caller, refused := r.Resolve(t.Context(), http.Header{"Authorization": {"Bearer " + token}, "X-User": {"root"}}, netip.MustParseAddr("192.0.2.1"))
		subject := ""
		if caller.User != nil {
			subject = caller.User.Subject
		}
		code := header.Code("")
		if refused != nil {
			code = refused.Code
		}
		if code != want.code || subject != want.subject {
			t.Errorf("%s: %q %s", token, subject, code)
		}
	}
}

// A user is not to be hidden from the limiter and shown to the API: by a second line of which the API reads the other one,
// or by what only some readers take for white space.
func TestAnAuthorizationThatReadersDifferOnIsRefused(t *testing.T) {
	r := resolver("")
	r.Users = verifier{"good": {Issuer: "i", Subject: "s"}}
	for _, c := range []struct {
		lines   []string
		subject string
		code    header.Code
	}{
		{[]string{"Bearer good"}, "s", ""},
		{[]string{"bEARER   good"}, "s", ""},
		{[]string{" Bearer good\t"}, "s", ""}, // as HTTP/2 brings it
		{[]string{"Bearer"}, "", ""},
		{[]string{"Basic dTpw"}, "", ""},
		{[]string{"Digest username=\"\xc3\xa9\""}, "", ""},
		{[]string{"Bearer good", "Bearer other"}, "", header.BadRequest},
		{[]string{"Bearer other", "Bearer good"}, "", header.BadRequest},
		{[]string{"Basic dTpw", "Bearer good"}, "", header.BadRequest},
		{[]string{"Bearer good", ""}, "", header.BadRequest},
		{[]string{"Bearer\tgood"}, "", header.BadRequest},
		{[]string{"Bearer\xa0good"}, "", header.BadRequest},
		{[]string{"\xa0Bearer good"}, "", header.BadRequest},
		{[]string{"Bearer good\xc2\xa0"}, "", header.BadRequest},
		{[]string{"Bearer good other"}, "", header.BadRequest},
		{[]string{"Bearer good, Bearer other"}, "", header.BadRequest},
		{[]string{"Bearer wk_x", "Bearer wk_y"}, "", header.KeyConflict},
	} {
		caller, refused := r.Resolve(t.Context(), http.Header{"Authorization": c.lines}, netip.MustParseAddr("192.0.2.1"))
		var code header.Code
		if refused != nil {
			if code = refused.Code; code == header.BadRequest && refused.Field != "authorization" {
				t.Errorf("%q: the field is %q", c.lines, refused.Field)
			}
		}
		subject := ""
		if caller.User != nil {
			subject = caller.User.Subject
		}
		if code != c.code || subject != c.subject {
			t.Errorf("%q: %q %s, want %q %s", c.lines, subject, code, c.subject, c.code)
		}
	}
}

func TestAKeysTenantAndTierComeBeforeItsUsers(t *testing.T) {
	user := &identity.User{Tenant: "user's", Tier: "free"}
	for _, c := range []struct {
		name, tenant, tier string
		caller             identity.Caller
	}{
		{"nobody", "", "", identity.Caller{}},
		{"a user", "user's", "free", identity.Caller{User: user}},
		{"a key", "key's", "paid", identity.Caller{Key: &keys.Key{Tenant: "key's", Tier: "paid"}}},
		{"both", "key's", "paid", identity.Caller{Key: &keys.Key{Tenant: "key's", Tier: "paid"}, User: user}},
		{"a key of no tenant with a user", "user's", "free", identity.Caller{Key: &keys.Key{ID: "k"}, User: user}},
	} {
		if tenant, tier := c.caller.Tenant(), c.caller.Tier(); tenant != c.tenant || tier != c.tier {
			t.Errorf("%s: %q %q, want %q %q", c.name, tenant, tier, c.tenant, c.tier)
		}
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("wk_x", "Bearer wk_y", "1.2.3.4:5")
	f.Add("", "bearer", "[::1")
	f.Add(",", "Basic \x00", "%")
	f.Fuzz(func(t *testing.T, key, authorization, address string) {
		h := http.Header{"X-Api-Key": {key}, "Authorization": {authorization}, "X-Weir-Address": {address}}
		caller, refused := resolver("10.0.0.0/8").Resolve(t.Context(), h, netip.MustParseAddr("10.0.0.1"))
		if caller.Key != nil || refused == nil {
			t.Errorf("a key of an empty table: %+v %v", caller, refused)
		}
		if !caller.Address.IsValid() || caller.Address.Is4In6() || caller.Address.Zone() != "" {
			t.Errorf("address %v", caller.Address)
		}
	})
}
