package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weirproject/weir/e2e/stand"
)

// wideRules let through what these tests send.
const wideRules = `version: 1
rules:
- {name: wide, where: edge, by: [address], algorithm: token-bucket, limit: 100000/1h}
`

// behind starts an Envoy whose origin is the API itself, which then sees what Envoy sends on.
func behind(t *testing.T, s stand.EdgeSettings) (*stand.Edge, *stand.API) {
	t.Helper()
	api := stand.StartAPI(t)
	s.Origin = strings.TrimPrefix(api.URL, "http://")
	if s.Rules == "" {
		s.Rules = wideRules
	}
	return stand.StartEdge(t, s), api
}

// unavailable checks that an answer is the guard's.
func unavailable(t *testing.T, r stand.Result) {
	t.Helper()
	if r.Status != 503 || !strings.Contains(r.Body, `"limiter_unavailable"`) || r.Header.Get("Retry-After") == "" {
		t.Errorf("answer %d %v %s, want 503 limiter_unavailable with Retry-After", r.Status, r.Header, r.Body)
	}
}

var filterInChain = regexp.MustCompile(`(?s)\n          - name: weir\n.*?(\n          - name: weir-guard\n)`)

// withoutFilter takes the filter out of a bootstrap.
func withoutFilter(text string) string { return filterInChain.ReplaceAllString(text, "$1") }

func TestWithoutTheFilterTheGuardRefuses(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	e, api := behind(t, stand.EdgeSettings{Bootstrap: withoutFilter})
	c := stand.NewClient(t, "127.0.0.2")
	for range 20 {
		// A client cannot bring the mark along.
		unavailable(t, c.Get(t, e.URL+"/", "X-Weir-Verdict: 1", "wasm.weir-verdict: 1"))
	}
	if api.Calls() != 0 {
		t.Errorf("%d calls reached the API without a filter", api.Calls())
	}
}

// The canary and the main thread start, then one worker; the other does not, which Envoy tells nobody.
func TestStartThatFailsOnOneWorkerOpensNoDoor(t *testing.T) {
	stand.Need(t, stand.FaultWasm, stand.Weir, stand.Envoy)
	e, api := behind(t, stand.EdgeSettings{Module: stand.FaultWasm, VM: "start-fails-after=3"})
	passed, refused := 0, 0
	for range connections { // the kernel spreads connections over the workers
		r := stand.NewClient(t, "127.0.0.3").Get(t, e.URL+"/")
		if r.Status == 200 {
			passed++
			continue
		}
		unavailable(t, r)
		refused++
	}
	if passed == 0 || refused == 0 {
		t.Errorf("%d passed, %d refused: want some of each, one worker has a filter and one has none", passed, refused)
	}
	if api.Calls() != passed {
		t.Errorf("%d calls reached the API, %d were answered with 200", api.Calls(), passed)
	}
}

func TestTrapRefusesUntilTheFilterIsBack(t *testing.T) {
	stand.Need(t, stand.FaultWasm, stand.Weir, stand.Envoy)
	e, api := behind(t, stand.EdgeSettings{Module: stand.FaultWasm, VM: "trap-on-path=/trap", Workers: 1})
	c := stand.NewClient(t, "127.0.0.4")
	if r := c.Get(t, e.URL+"/"); r.Status != 200 {
		t.Fatalf("before the trap: %d", r.Status)
	}
	passed := 1
	for range 3 {
		unavailable(t, c.Get(t, e.URL+"/trap"))
		// Until the filter is loaded again each call is refused; then service goes on.
		for range 3 {
			e.Until(t, "serves again after a trap", func() error {
				r, err := c.Try(e.URL + "/")
				switch {
				case err != nil:
					t.Fatal(err)
				case r.Status == 200:
					passed++
					return nil
				}
				unavailable(t, r)
				return errStill503
			})
		}
	}
	if api.At("/trap") != 0 || api.Calls() != passed {
		t.Errorf("%d calls reached the API, %d of them the trap; %d were answered with 200", api.Calls(), api.At("/trap"), passed)
	}
}

func TestWhatEnvoySendsOnIsItsOwn(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	e, api := behind(t, stand.EdgeSettings{})
	c := stand.NewClient(t, "127.0.0.5")
	r := c.Get(t, e.URL+"/", "X-Weir-Address: 198.51.100.1", "x-weir-address: 198.51.100.2", "X-Weir-Class: valid",
		"X-Weir-Anything: 1", "X-Forwarded-For: 198.51.100.3")
	if r.Status != 200 {
		t.Fatalf("status %d", r.Status)
	}
	for name, values := range api.Last() {
		if !strings.HasPrefix(strings.ToLower(name), "x-weir-") {
			continue
		}
		want := map[string]string{"X-Weir-Address": "127.0.0.5", "X-Weir-Class": "anonymous"}[name]
		if len(values) != 1 || values[0] != want {
			t.Errorf("behind Envoy %s = %q, want %q", name, values, want)
		}
	}
	if got := api.Last().Get("X-Weir-Address"); got != "127.0.0.5" {
		t.Errorf("X-Weir-Address = %q, want the client's 127.0.0.5", got)
	}
	for name := range r.Header {
		if strings.HasPrefix(strings.ToLower(name), "x-weir-") {
			t.Errorf("the client sees %s: %q", name, r.Header.Get(name))
		}
	}
	if got := stand.Metric(t, stand.NewClient(t, ""), e.Admin+"/stats/prometheus", "weir_edge_allowed", `class="anonymous"`); got != 1 {
		t.Errorf("Envoy's Prometheus page counts %v allowed calls, want 1:\n%s", got, c.Get(t, e.Admin+"/stats/prometheus?filter=weir_edge").Body)
	}
	if r := c.Get(t, e.URL+"/", "X_Weir_Address: 198.51.100.1"); r.Status == 200 {
		t.Errorf("a header that some servers read as X-Weir-Address: status 200")
	}
}
