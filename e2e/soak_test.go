package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/stand"
)

var soakFor = flag.Duration("soak", 20*time.Second, "how long TestSoak attacks")

const (
	soakSamples = 40
	// soakPushes is how many bundles come meanwhile.
	soakPushes = 10
	// soakGrowth bounds in bytes what Envoy may grow by in the second half, by its highest samples: connections come and
	// go, and V8 collects when it likes.
	soakGrowth = 24 << 20
)

const soakRules = `version: 1
rules:
- {name: flood, where: edge, by: [address], algorithm: token-bucket, limit: 50/1s, burst: 200, valid-key: {limit: 100000/1s}}
- {name: search-per-key, where: origin, match: {paths: [/search]}, by: [key], algorithm: sliding-window, limit: 1/1h}
`

// soak counts what one kind of caller was answered.
type soak struct {
	name     string
	statuses string // that it may get
	send     func(n int) (status int, err error)
	counts   sync.Map // status to *atomic.Int64
}

func (s *soak) count(status int) {
	n, _ := s.counts.LoadOrStore(status, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// Everything that an attacker has, at once and for long: nothing traps, reloads, grows or answers wrongly, while bundles
// come and honest callers are served. `make soak` runs it for 20 minutes.
func TestSoak(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	seed := uint64(time.Now().UnixNano())
	t.Logf("soak: seed %d", seed)
	keyring := stand.NewKeyring(t)
	honest, greedy := keyring.Issue(t, "honest"), keyring.Issue(t, "greedy")
	var reached atomic.Int64
	release := atomic.Int64{}
	release.Store(1)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") == greedy && r.URL.Path == "/search" {
			w.Header().Set("X-Weir-Hint", fmt.Sprintf("v1;rule=search-per-key;scope=key;ms=500;release=%d", release.Load()))
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		if r.Host != "garbage" { // whose sender may be gone before the answer
			reached.Add(1)
		}
	}))
	defer origin.Close()
	e := stand.StartEdge(t, stand.EdgeSettings{Origin: strings.TrimPrefix(origin.URL, "http://"), Rules: soakRules, Keys: keyring.File(), Workers: 2})
	admin, callers := stand.NewClient(t, ""), stand.NewCallers()
	vms := e.Stat(t, admin, "wasm.wasm_vm_count")

	client := func(from string) *stand.Client { return stand.NewClient(t, from) }
	get := func(c *stand.Client, path string, headers ...string) (int, error) {
		r, err := c.Try(e.URL+path, headers...)
		return r.Status, err
	}
	kinds := []*soak{
		{name: "hammers", statuses: "200 429", send: func(c *stand.Client) func(int) (int, error) {
			return func(int) (int, error) { return get(c, "/") }
		}(client("127.0.1.1"))},
		{name: "forges keys", statuses: "401 429", send: func(c *stand.Client) func(int) (int, error) {
			return func(int) (int, error) { return get(c, "/", "X-Api-Key: "+keyring.Forge(t)) }
		}(client("127.0.1.2"))},
		{name: "rotates addresses", statuses: "200 429", send: func(n int) (int, error) {
			r, err := callers.Do(rotatingAddress(n%(1<<21)), http.MethodGet, e.URL)
			return r.Status, err
		}},
		{name: "is over its limit", statuses: "429", send: func(c *stand.Client) func(int) (int, error) {
			return func(int) (int, error) { return get(c, "/search", "X-Api-Key: "+greedy) }
		}(client("127.0.1.3"))},
		{name: "sends odd headers", statuses: "400 401 429 431", send: func(c *stand.Client) func(int) (int, error) {
			odd := [][]string{{"X-Api-Key: a", "X-Api-Key: b"}, {"X-Api-Key:"}, {"x_weir_address: 1"},
				{"X-Api-Key: wk_\xff\xfe"}, {"Authorization: Bearer wk_"}, {"X-Api-Key: " + longHeader}}
			return func(n int) (int, error) { return get(c, "/", odd[n%len(odd)]...) }
		}(client("127.0.1.4"))},
		{name: "sends garbage", statuses: "0 200 400 401 429", send: garbage(e.URL, seed)},
		{name: "is honest", statuses: "200", send: func(c *stand.Client) func(int) (int, error) {
			return func(int) (int, error) { return get(c, "/", "X-Api-Key: "+honest) }
		}(client("127.0.1.5"))},
	}
	begin := time.Now()
	stop := make(chan struct{})
	var all sync.WaitGroup
	for _, kind := range kinds {
		var n atomic.Int64
		for range 4 {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					status, err := kind.send(int(n.Add(1)))
					if err != nil {
						t.Errorf("who %s: %v", kind.name, err)
						return
					}
					kind.count(status)
				}
			})
		}
	}
	var resident [soakSamples]int64
	pushed := 0
	for i := range resident {
		<-time.After(*soakFor / soakSamples) // the load is what is waited for
		if i%(soakSamples/soakPushes) == 0 && i > 0 {
			pushed++
			release.Store(int64(pushed + 1))
			e.Push(t, stand.BuildBundle(t, soakRules, keyring.File(), pushed+1))
		}
		resident[i] = e.Resident(t)
		if now := e.Stat(t, admin, "wasm.wasm_vm_count"); now != vms {
			t.Errorf("after %v: %d VMs, %d before: one ended, or was loaded anew", time.Since(begin).Round(time.Second), now, vms)
		}
	}
	close(stop)
	all.Wait()
	took := time.Since(begin)

	passed, total := int64(0), int64(0)
	for _, kind := range kinds {
		line := "soak: who " + kind.name + ":"
		kind.counts.Range(func(status, n any) bool {
			count := n.(*atomic.Int64).Load()
			line += fmt.Sprintf(" %d × %d", count, status)
			total += count
			if status == 200 && kind.name != "sends garbage" {
				passed += count
			}
			if !strings.Contains(kind.statuses, fmt.Sprint(status)) {
				t.Errorf("who %s got %d × %d, want %s alone", kind.name, count, status, kind.statuses)
			}
			return true
		})
		t.Log(line)
	}
	if reached.Load() != passed {
		t.Errorf("%d calls reached the API, %d were answered with 200", reached.Load(), passed)
	}
	first, second := int64(0), int64(0)
	for i, bytes := range resident[soakSamples/10:] { // after the warm-up
		if i+soakSamples/10 < soakSamples/2 {
			first = max(first, bytes)
		} else {
			second = max(second, bytes)
		}
	}
	t.Logf("soak: %d calls in %v, %.0f/s; %d pushes; resident at most %.1f MiB in the first half, %.1f MiB in the second",
		total, took.Round(time.Second), float64(total)/took.Seconds(), pushed, float64(first)/(1<<20), float64(second)/(1<<20))
	if second-first > soakGrowth {
		t.Errorf("Envoy grew by %d bytes in the second half, want at most %d", second-first, soakGrowth)
	}
	for _, name := range []string{"weir_edge_recovered", "weir_edge_bundle_rejected"} {
		if n := e.Stat(t, admin, "wasmcustom."+name); n != 0 {
			t.Errorf("%s = %d", name, n)
		}
	}
	e.Until(t, "runs the last release", func() error {
		got := e.Stat(t, admin, releaseGauge)
		return unless(got == pushed+1, "%s = %d", releaseGauge, got)
	})
}

// garbage sends bytes that are hardly HTTP. A connection that Envoy closes without a word counts as 0.
func garbage(url string, seed uint64) func(int) (int, error) {
	address := strings.TrimPrefix(url, "http://")
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	return func(int) (int, error) {
		mu.Lock()
		const start = "GET / HTTP/1.1\r\nHost: garbage\r\n"
		text := []byte(start + "X-Api-Key: abc\r\nX-Other: def\r\n\r\n")
		for range 1 + random.IntN(8) {
			text[len(start)+random.IntN(len(text)-len(start)-4)] = byte(random.IntN(32))
		}
		mu.Unlock()
		dialer := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, 6)}}
		c, err := dialer.Dial("tcp", address)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write(text); err != nil {
			return 0, nil
		}
		if half, ok := c.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
		var head [12]byte
		n, _ := c.Read(head[:])
		var status int
		if _, err := fmt.Sscanf(string(head[:n]), "HTTP/1.1 %d", &status); err != nil {
			return 0, nil
		}
		return status, nil
	}
}
