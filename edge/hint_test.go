package edge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// originRules is a bundle of release 7 with origin rules, in which the given keys are known.
func originRules(t testing.TB, rules string, keys ...string) bundle.Bundle {
	t.Helper()
	b := withOrigin(t, rules)
	b.Release = 7
	return gated(t, b, keys...)
}

func to(path string) func() rule.Request {
	return func() rule.Request { return rule.Request{Method: "GET", Path: path, Host: "api.example.com"} }
}

func withKey(key, address, path string, now limit.Micros) Request {
	return Request{Now: now, Address: []byte(address), Key: []byte(key), HasKey: true, Route: to(path)}
}

func TestAHintRefusesWhomTheOriginRefused(t *testing.T) {
	good, other := newKey(t, 1), newKey(t, 3)
	e := worker(newSlots(), originRules(t, "search /search/**", good, other))
	refused := withKey(good, "192.0.2.1:1", "/search/a", 0)
	if !takeHint(e, []byte("v1;rule=search;scope=key;ms=2000;release=7"), refused) {
		t.Fatal("the hint was not taken")
	}
	for _, c := range []struct {
		name    string
		request Request
		allowed bool
	}{
		{"the same", withKey(good, "192.0.2.1:1", "/search/a", 0), false},
		{"from elsewhere", withKey(good, "[2001:db8::1]:1", "/search/b", 0), false},
		{"as a bearer", Request{Address: []byte("192.0.2.1:1"), Authorization: []byte("Bearer " + good), Route: to("/search/a")}, false},
		{"odd spelling", withKey(good, "192.0.2.1:1", "/x/../search/a", 0), false},
		{"another path", withKey(good, "192.0.2.1:1", "/other", 0), true},
		{"another key", withKey(other, "192.0.2.1:1", "/search/a", 0), true},
		{"no key", Request{Address: []byte("192.0.2.1:1"), Route: to("/search/a")}, true},
		{"just before the end", withKey(good, "192.0.2.1:1", "/search/a", 2*limit.Second-1), false},
		{"at the end", withKey(good, "192.0.2.1:1", "/search/a", 2*limit.Second), true},
	} {
		v := decide(e, c.request)
		if v.Allowed != c.allowed {
			t.Errorf("%s: %+v", c.name, v)
		}
		if !c.allowed && (v.Code != header.RateLimited || !v.Hinted || v.Rule != "search" || v.Headers != rule.Full ||
			v.Decision.RetryAfter != 2*limit.Second-c.request.Now) {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

// Who numbers bundles (weir bundle build --release) has origins that know no number all the same.
func TestAnOriginThatReadsItsRulesFromAFileIsHeardWhateverTheBundlesNumber(t *testing.T) {
	good := newKey(t, 1)
	e := worker(newSlots(), originRules(t, "search /search", good))
	r := withKey(good, "192.0.2.1:1", "/search", 0)
	if !takeHint(e, []byte("v1;rule=search;scope=key;ms=2000;release=0"), r) {
		t.Fatal("the hint was not taken")
	}
	if v := decide(e, r); v.Allowed || !v.Hinted || v.Rule != "search" {
		t.Errorf("got %+v", v)
	}
}

func TestAHintForAnAddressIsItsNetworks(t *testing.T) {
	e := worker(newSlots(), originRules(t, "any *"))
	r := Request{Address: []byte("[2001:db8::1]:1"), Route: to("/")}
	if !takeHint(e, []byte("v1;scope=address;release=7;ms=1;rule=any"), r) {
		t.Fatal("the hint was not taken")
	}
	if v := decide(e, Request{Address: []byte("[2001:db8::2]:9"), Route: to("/x")}); v.Allowed {
		t.Errorf("another address of the same /64: %+v", v)
	}
	if v := decide(e, Request{Address: []byte("[2001:db8:0:1::1]:9"), Route: to("/x")}); !v.Allowed {
		t.Errorf("another /64: %+v", v)
	}
}

// The origin counts by host or /64 whatever the edge's rule takes for one client, so that neighbours of whom it refused are
// none of its business.
func TestAHintForAnAddressIsNoneForWhomTheEdgeCountsWithIt(t *testing.T) {
	b := originRules(t, "any *")
	b.Rule.PrefixV4, b.Rule.PrefixV6 = 24, 40
	e := worker(newSlots(), b)
	for refused, c := range map[string]struct{ same, neighbour string }{
		"192.0.2.1:1":     {"192.0.2.1:9", "192.0.2.2:1"},
		"[2001:db8::1]:1": {"[2001:db8::2]:1", "[2001:db8:0:1::1]:1"},
	} {
		if !takeHint(e, []byte("v1;scope=address;release=7;ms=1;rule=any"), Request{Address: []byte(refused), Route: to("/")}) {
			t.Fatal("the hint was not taken")
		}
		if v := decide(e, Request{Address: []byte(c.same), Route: to("/x")}); v.Allowed {
			t.Errorf("%s: %s is allowed: %+v", refused, c.same, v)
		}
		if v := decide(e, Request{Address: []byte(c.neighbour), Route: to("/x")}); !v.Allowed {
			t.Errorf("%s: %s is refused: %+v", refused, c.neighbour, v)
		}
	}
}

func TestAKeyThatTheOriginDoesNotKnowIsForged(t *testing.T) {
	passes := newKey(t, 1) // as one forgery in 65,536 does
	e := worker(newSlots(), originRules(t, "any *", passes))
	r := withKey(passes, "192.0.2.1:1", "/", 0)
	if !takeHint(e, []byte("v1;rule=;scope=unknown-key;ms=30000;release=7"), r) {
		t.Fatal("the hint was not taken")
	}
	if v := decide(e, r); v.Code != header.KeyUnknown || !v.Forged {
		t.Errorf("got %+v", v)
	}
	// Issued in the meantime: what control says goes before what the origin had said.
	e.Learn(changes(t, keyfilter.Change{Hash: keyfilter.Hash(e.gate.HashKey, []byte(passes)), Op: keyfilter.Issued}))
	if v := decide(e, r); !v.Allowed {
		t.Errorf("an issued key is refused: %+v", v)
	}
}

func TestHintsThatAreNoneAreNotTaken(t *testing.T) {
	good := newKey(t, 1)
	e := worker(newSlots(), originRules(t, "search /search", good))
	for _, text := range []string{
		"", "v1", "v2;rule=search;scope=key;ms=1000;release=7", "rule=search;scope=key;ms=1000;release=7",
		"v1;rule=search;scope=key;ms=1000;release=8", "v1;rule=nobodys;scope=key;ms=1000;release=7",
		"v1;rule=search;scope=user;ms=1000;release=7", "v1;rule=search;scope=key;ms=0;release=7",
		"v1;rule=search;scope=key;ms=-5;release=7", "v1;rule=search;scope=key;ms=1e9;release=7",
		"v1;rule=search;scope=key;ms=;release=7", "v1;rule=search;scope=key;ms=99999999999999999999;release=7",
		"v1;rule=search;scope=key;ms=1000", "v1;scope=key;ms=1000;release=7",
		"v1;rule=search;rule=search;scope=key;ms=1000;release=7", strings.Repeat("v1;", 10_000),
		"v1;rule=search;scope=key;ms=1000;release=7;ms=1", "v1 ;rule=search;scope=key;ms=1000;release=7",
	} {
		r := withKey(good, "192.0.2.1:1", "/search", 0)
		if takeHint(e, []byte(text), r) {
			t.Errorf("taken: %.60q", text)
		}
		if v := decide(e, r); !v.Allowed {
			t.Errorf("%.60q refuses: %+v", text, v)
		}
	}
	r := withKey("no key at all", "192.0.2.1:1", "/search", 0)
	if takeHint(e, []byte("v1;rule=search;scope=key;ms=1000;release=7"), r) {
		t.Error("taken for a key that is none")
	}
	r = withKey(good, "192.0.2.1:1", "/search", 0)
	if !takeHint(e, []byte("v1;rule=search;scope=key;ms=1000;release=7;newer=field"), r) {
		t.Error("a field of a newer origin refuses the hint")
	}
}

func TestHintsGoWithTheRelease(t *testing.T) {
	good := newKey(t, 1)
	b := originRules(t, "search /search", good)
	e := worker(newSlots(), b)
	r := withKey(good, "192.0.2.1:1", "/search", 0)
	takeHint(e, []byte("v1;rule=search;scope=key;ms=1000;release=7"), r)
	b.Release = 8
	e.Install(b, 0, 0)
	if v := decide(e, r); !v.Allowed {
		t.Errorf("a hint of the last release refuses: %+v", v)
	}
}

func TestNoHintRefusesForLongerThanTheBound(t *testing.T) {
	good := newKey(t, 1)
	e := worker(newSlots(), originRules(t, "search /search", good))
	r := withKey(good, "192.0.2.1:1", "/search", 0)
	takeHint(e, []byte("v1;rule=search;scope=key;ms=86400000;release=7"), r)
	if v := decide(e, r); v.Decision.RetryAfter != 30*limit.Second {
		t.Errorf("got %+v", v)
	}
}

func TestOfTwoHintsTheLongerCounts(t *testing.T) {
	good := newKey(t, 1)
	e := worker(newSlots(), originRules(t, "search /search, all *", good))
	r := withKey(good, "192.0.2.1:1", "/search", 0)
	takeHint(e, []byte("v1;rule=search;scope=key;ms=1000;release=7"), r)
	takeHint(e, []byte("v1;rule=all;scope=address;ms=5000;release=7"), r)
	takeHint(e, []byte("v1;rule=all;scope=key;ms=2000;release=7"), r)
	if v := decide(e, r); v.Rule != "all" || v.Decision.RetryAfter != 5*limit.Second {
		t.Errorf("got %+v", v)
	}
	r.Address = []byte("198.51.100.1:1")
	if v := decide(e, r); v.Rule != "all" || v.Decision.RetryAfter != 2*limit.Second {
		t.Errorf("got %+v", v)
	}
}

func TestMemoryOfHintsIsBounded(t *testing.T) {
	e := worker(newSlots(), originRules(t, "any *"))
	last := Request{}
	for i := range 100_000 {
		last = Request{Now: limit.Micros(i), Address: fmt.Appendf(nil, "10.%d.%d.%d:1", i>>16, i>>8&255, i&255), Route: to("/")}
		takeHint(e, []byte("v1;rule=any;scope=address;ms=1000;release=7"), last)
	}
	if v := decide(e, last); v.Allowed {
		t.Errorf("the last hint is forgotten: %+v", v)
	}
}

// The path costs host calls: it is read only for somebody whom a hint may be about.
func TestWithoutAHintThePathIsNotRead(t *testing.T) {
	good, other := newKey(t, 1), newKey(t, 3)
	e := worker(newSlots(), originRules(t, "search /search", good, other))
	reads := 0
	request := func(key string, now limit.Micros) Request {
		r := withKey(key, "192.0.2.1:1", "/search", now)
		route := r.Route
		r.Route = func() rule.Request { reads++; return route() }
		return r
	}
	decide(e, request(good, 0))
	r := request(good, 0)
	takeHint(e, []byte("v1;rule=search;scope=key;ms=1000;release=7"), r)
	decide(e, request(other, 0))
	if reads != 0 {
		t.Errorf("%d reads for nobody's hint", reads)
	}
	decide(e, request(good, 0))
	if reads != 1 {
		t.Errorf("%d reads for a hint, want 1", reads)
	}
	decide(e, request(good, limit.Second))
	if reads != 1 {
		t.Error("read for a hint that is over")
	}
}

// withOrigin is a bundle of origin rules, each given as "name path", with commas between them.
func withOrigin(t testing.TB, rules string) bundle.Bundle {
	t.Helper()
	text := func(text string) rule.Scalar { return rule.Scalar{Text: text, Set: true} }
	draft := rule.Draft{}
	for _, each := range strings.Split(rules, ", ") {
		name, path, _ := strings.Cut(each, " ")
		spec := rule.Spec{Name: text(name), Where: text("origin"), Limit: text("1/1s"), By: []rule.Scalar{text("key")}}
		if path != "*" {
			spec.MatchAt, spec.Paths = rule.Source{Line: 1}, []rule.Scalar{text(path)}
		}
		draft.Rules = append(draft.Rules, spec)
	}
	set, faults := rule.Compile(draft)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return decoded(t, bundle.Content{Origin: set})
}

// hint gives the engine what the origin answered a request with.
func takeHint(e *Engine, value []byte, r Request) bool {
	credential, hash := e.classify(&r)
	caller := Caller{hash: hash, hashed: credential == known || credential == unknown, address: parseAddress(r.Address)}
	return e.Hint(value, &caller, r.Now)
}
