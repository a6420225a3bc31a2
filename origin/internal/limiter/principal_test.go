package limiter_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

func user(issuer, tenant, subject string) identity.Caller {
	return identity.Caller{User: &identity.User{Issuer: issuer, Tenant: tenant, Subject: subject}, Address: netip.MustParseAddr("192.0.2.1")}
}

// Case 18, of users: what an issuer names freely must not run into another user.
func TestUsersThatLookAlikeHaveCountersOfTheirOwn(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [user], limit: 1/1h}\n")
	seen := map[limiter.Counter]string{}
	for _, u := range [][3]string{{"i", "t", "s"}, {"i", "", "ts"}, {"i", "ts", ""}, {"it", "", "s"}, {"", "it", "s"}, {"i|t", "", "s"}, {"i", "|t", "s"},
		{"i", "\x00\x00\x00\x01t", "s"}, {"i", "t", "s\x00"}, {"i", "t", strings.Repeat("s", 10_000)}, {"i", "t", "\xff\xfe"}, {"i", "t}", "{s"}} {
		c := user(u[0], u[1], u[2])
		if n := w.admitted(2, c, "/"); n != 1 {
			t.Errorf("%.40q: admitted %d of 2 at 1/h", u, n)
		}
		text := fmt.Sprintf("%.40q", u)
		w.check(limiter.Request{Caller: c, Method: "GET", Path: "/", Peek: true})
		if other := seen[w.seen[0]]; other != "" {
			t.Errorf("%s and %s have one counter", text, other)
		}
		seen[w.seen[0]] = text
	}
}

const tiered = `
version: 1
tiers: {free: {limit: 2/1h}, paid: {limit: 5/1h}, day: {limit: 72/24h}, staff: {limit: unlimited}}
rules:
- {name: r, where: origin, by: ["key|user|address"], tier: true}
overrides:
- {rule: r, key-id: acme-prod, limit: 7/1h}
- {rule: r, tenant: big, limit: 8/1h}
- {rule: r, user: "https://id|t|auth0|joe", limit: 9/1h}
- {rule: r, key-id: suspended, limit: 0/1h}
- {rule: r, key-id: own, limit: unlimited}
`

func TestEachCallerHasTheLimitOfItsTierOrOverride(t *testing.T) {
	of := func(id, tenant, tier string) identity.Caller {
		return identity.Caller{Key: &keys.Key{ID: id, Tenant: tenant, Tier: tier}, Address: netip.MustParseAddr("192.0.2.1")}
	}
	inTier := user("https://id", "t", "mary")
	inTier.User.Tier = "paid"
	w := newWorld(t, tiered)
	for name, c := range map[string]struct {
		who  identity.Caller
		want int
	}{
		"free":                        {of("a", "", "free"), 2},
		"paid":                        {of("b", "", "paid"), 5},
		"by the day":                  {of("c", "", "day"), 20},
		"no tier":                     {of("d", "", ""), 2},
		"unknown tier":                {of("e", "", "gold"), 2},
		"staff":                       {of("f", "", "staff"), 20},
		"override of key":             {of("acme-prod", "big", "free"), 7},
		"override of tenant":          {of("g", "big", "free"), 8},
		"suspended":                   {of("suspended", "big", "staff"), 0},
		"unlimited":                   {of("own", "", "free"), 20},
		"a user's tier":               {inTier, 5},
		"override of user":            {user("https://id", "t", "auth0|joe"), 9},
		"another's id, tenant's bars": {user("https://id", "t|auth0", "joe"), 2},
		"address":                     {from("198.51.100.1"), 2},
	} {
		if n := w.admitted(20, c.who, "/"); n != c.want {
			t.Errorf("%s: %d of 20, want %d", name, n, c.want)
		}
		// The second time nothing is left, but for those without a limit.
		if n := w.admitted(20, c.who, "/"); n != 0 && c.want != 20 {
			t.Errorf("%s: %d more", name, n)
		}
	}
	calls := w.calls
	if v := w.get(of("own", "", ""), "/"); !v.Allowed || len(v.Views) != 0 || w.calls != calls {
		t.Errorf("unlimited: %+v, and %d calls of the store", v, w.calls-calls)
	}
}

// A tier or an override may have another window: its state is of another form in time, and so is the counter's name.
func TestAnotherWindowIsAnotherCounter(t *testing.T) {
	w := newWorld(t, tiered)
	who := identity.Caller{Key: &keys.Key{ID: "a", Tier: "day"}}
	name := func() limiter.Counter {
		w.check(limiter.Request{Caller: who, Method: "GET", Path: "/", Peek: true})
		return w.seen[0]
	}
	day := name()
	who.Key = &keys.Key{ID: "a", Tier: "paid"}
	hour := name()
	who.Key = &keys.Key{ID: "a", Tier: "free"}
	if day == hour || hour != name() {
		t.Error("windows of a day and an hour share a counter, or two limits of one window do not")
	}
}

func TestHostsAndHeadersDecideWhichRulesApply(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: host, where: origin, by: [key], match: {hosts: ["*.example.com"]}, limit: 1/1h}
- {name: app, where: origin, by: [key], match: {headers: [x-app]}, limit: 1/1h}
`)
	app := func(name string) bool { return name == "x-app" }
	for name, c := range map[string]struct {
		r    limiter.Request
		want string
	}{
		"neither": {limiter.Request{Host: "example.org"}, ""},
		"host":    {limiter.Request{Host: "API.example.com:8443"}, "host"},
		"header":  {limiter.Request{HasHeader: app}, "app"},
		"both":    {limiter.Request{Host: "api.example.com.", HasHeader: app}, "host app"},
	} {
		c.r.Caller, c.r.Method, c.r.Path = key(name, ""), "GET", "/"
		var got []string
		for _, v := range w.check(c.r).Views {
			got = append(got, v.Rule)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

// Windows that all begin on the hour have all callers come at once.
func TestOffsetsSpreadWindowsAndKeepThemThroughASecret(t *testing.T) {
	const text = "version: 1\nrules:\n- {name: r, where: origin, by: [key], algorithm: fixed-window, offset: true, limit: 5/1h}\n"
	former := []byte(strings.Repeat("f", 32))
	one := newWorld(t, text)
	two := newWorld(t, text, func(o *limiter.Options) { o.Secret, o.Rotation = former, &limiter.Rotation{Former: o.Secret} })
	ask := func(w *world, id string) limiter.Charge {
		w.get(key(id, ""), "/")
		asked := w.store.Asked()
		return asked[len(asked)-1].Call.Charges[0]
	}
	var quarters [4]int
	for i := range 400 {
		a, b := ask(one, fmt.Sprint(i)), ask(two, fmt.Sprint(i))
		if a.Offset != b.Offset || a.Offset < 0 || a.Offset >= limit.Hour {
			t.Fatalf("offsets %d and %d", a.Offset, b.Offset)
		}
		quarters[a.Offset/(15*limit.Minute)]++
		// While secrets change, the former name stays known, and in the same slot.
		if a.Former != (limiter.Counter{}) || b.Former != a.Counter || b.Counter == a.Counter || !bytes.Equal(a.Counter[:10], b.Counter[:10]) {
			t.Fatalf("%s, then %s after %s", a.Counter, b.Counter, b.Former)
		}
	}
	for _, n := range quarters {
		if n < 60 || n > 140 {
			t.Errorf("400 windows begin in the quarters of an hour %v times", quarters)
		}
	}
}
