package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir/e2e/stand"
)

const hintRules = `version: 1
rules:
- {name: wide, where: edge, by: [address], algorithm: token-bucket, limit: 100000/1h}
- {name: search-per-key, where: origin, match: {paths: [/search, "/search/**"]}, by: [key], algorithm: sliding-window, limit: 1/1h}
`

// An origin that refuses says so to the edge, which then answers by itself. One refusal a worker is all that a flood of one
// key costs the origin until the time is over.
func TestAfterAHintTheEdgeRefusesByItself(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	keyring := stand.NewKeyring(t)
	alice, bob := keyring.Issue(t, "alice"), keyring.Issue(t, "bob")
	var searches, others atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/search") {
			others.Add(1)
			return
		}
		searches.Add(1)
		if r.Header.Get("X-Api-Key") == alice {
			w.Header().Set("X-Weir-Hint", "v1;rule=search-per-key;scope=key;ms=30000;release=1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer origin.Close()
	e := stand.StartEdge(t, stand.EdgeSettings{
		Origin: strings.TrimPrefix(origin.URL, "http://"), Rules: hintRules, Keys: keyring.File(), Workers: 2,
	})
	c := stand.NewClient(t, "127.0.0.21")
	first := c.Get(t, e.URL+"/search", "X-Api-Key: "+alice)
	if first.Status != 429 || first.Header.Get("X-Weir-Hint") != "" {
		t.Fatalf("the origin's refusal came as %d %v", first.Status, first.Header)
	}
	codes, byEdge := map[int]int{}, 0
	const calls = 400
	for range calls {
		// A new connection each time reaches both workers.
		r := stand.NewClient(t, "127.0.0.21").Get(t, e.URL+"/search/more", "X-Api-Key: "+alice)
		codes[r.Status]++
		if strings.Contains(r.Body, `"where":"edge"`) {
			byEdge++
			if r.Header.Get("Retry-After") == "" || !strings.Contains(r.Body, `"rule":"search-per-key"`) {
				t.Fatalf("%v %s", r.Header, r.Body)
			}
		}
	}
	if codes[429] != calls || searches.Load() > 2 || byEdge < calls-1 {
		t.Errorf("%v, %d calls reached the origin, %d answered by the edge; want one a worker to reach it", codes, searches.Load(), byEdge)
	}
	if r := c.Get(t, e.URL+"/other", "X-Api-Key: "+alice); r.Status != 200 {
		t.Errorf("a path that the rule is not for: %d", r.Status)
	}
	if r := c.Get(t, e.URL+"/search", "X-Api-Key: "+bob); r.Status != 200 {
		t.Errorf("another key: %d", r.Status)
	}
	admin := stand.NewClient(t, "")
	if n := e.Stat(t, admin, "wasmcustom.weir_edge_hints"); n < 1 || n > 2 {
		t.Errorf("%d hints taken", n)
	}
	if n := e.Stat(t, admin, "wasmcustom.weir_edge_denied.rate_limited.search-per-key"); n != byEdge {
		t.Errorf("%d denied by the rule, %d answered so", n, byEdge)
	}
	if !strings.Contains(e.Access(t), "weir_rate_limited.search-per-key") && byEdge == 0 {
		t.Error("no refusal by a hint in the access log")
	}
	// A new release knows better.
	taken, _ := e.Updates(t, admin)
	e.Push(t, stand.BuildBundle(t, hintRules, keyring.File(), 2))
	e.Until(t, "has the new release", func() error {
		if now, _ := e.Updates(t, admin); now == taken {
			return errStill503
		}
		return nil
	})
	before := searches.Load()
	if r := c.Get(t, e.URL+"/search", "X-Api-Key: "+alice); r.Status != 429 || searches.Load() != before+1 {
		t.Errorf("after a push: %d, %d calls more at the origin", r.Status, searches.Load()-before)
	}
}

// The same with the real origin, which makes the hints itself: of a flood by one key, or by one that it does not know, one
// call a worker reaches it.
func TestTheOriginsOwnHintsKeepAFloodAtTheEdge(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	var reached atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer api.Close()
	keyring := stand.NewKeyring(t)
	alice, bob := keyring.Issue(t, "alice"), keyring.Issue(t, "bob")
	known := keyring.File()
	revoked := keyring.Issue(t, "revoked") // the edge has not heard of it yet
	o := stand.StartOrigin(t, stand.OriginSettings{Upstream: api.URL, Rules: hintRules, Keys: known, Trust: []string{"127.0.0.0/8"}})
	e := stand.StartEdge(t, stand.EdgeSettings{Origin: o.Gateway, Rules: hintRules, Keys: keyring.File(), Workers: 2})
	admin := stand.NewClient(t, "")
	// Rules of a file are release 0, at both tiers.
	taken, _ := e.Updates(t, admin)
	e.Push(t, stand.BuildBundle(t, hintRules, keyring.File(), 0))
	e.Until(t, "has the origin's release", func() error {
		if now, _ := e.Updates(t, admin); now == taken {
			return errStill503
		}
		return nil
	})
	// flood calls on new connections, which reach both workers, and counts who answered.
	flood := func(calls int, path, key string, status int) (byOrigin, byEdge int) {
		for range calls {
			r := stand.NewClient(t, "127.0.0.22").Get(t, e.URL+path, "X-Api-Key: "+key)
			if r.Status != status || r.Header.Get("X-Weir-Hint") != "" {
				t.Fatalf("%s: %d %v %s", path, r.Status, r.Header, r.Body)
			}
			switch {
			case strings.Contains(r.Body, `"where":"origin"`):
				byOrigin++
			case strings.Contains(r.Body, `"where":"edge"`):
				byEdge++
			}
		}
		return byOrigin, byEdge
	}
	flood(1, "/search", alice, 200)
	const calls = 100
	if byOrigin, byEdge := flood(calls, "/search", alice, 429); byOrigin < 1 || byOrigin > 2 || byEdge != calls-byOrigin {
		t.Errorf("over its limit: %d calls answered by the origin, %d by the edge; want one a worker", byOrigin, byEdge)
	}
	if byOrigin, byEdge := flood(calls, "/other", revoked, 401); byOrigin < 1 || byOrigin > 2 || byEdge != calls-byOrigin {
		t.Errorf("a key that is not known: %d calls answered by the origin, %d by the edge; want one a worker", byOrigin, byEdge)
	}
	if n := e.Stat(t, admin, "wasmcustom.weir_edge_hints"); n < 2 || n > 4 {
		t.Errorf("%d hints taken, want one for each worker and kind", n)
	}
	flood(1, "/search", bob, 200)
	flood(1, "/other", alice, 200)
	if n := reached.Load(); n != 3 {
		t.Errorf("%d calls reached the API, want 3", n)
	}
}
