package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir/e2e/stand"
)

// The storm of addresses, and what may come of it.
const (
	// rotatingAddresses are half as many again as the default table has entries.
	rotatingAddresses = 100_000
	// rotatingShort overflow some of the sets only, yet about 500 times.
	rotatingShort = 30_000
	rotatingTurns = 10 // the limited client asks after each
	rotatingCalls = 8  // at once
	tableEntries  = 1 << 16
	// rotatingGrowth bounds in bytes what Envoy may grow by in the second half of the addresses: a leak of 170 bytes for
	// each of the 50,000 clients then exceeds it. What the table itself takes is there after the first half, but for one
	// slot in twenty.
	rotatingGrowth = 8 << 20
)

// A token comes each 36 minutes, so that no bucket is full again before the end.
const rotatingRules = `version: 1
rules:
- {name: flood, where: edge, by: [address], algorithm: token-bucket, limit: 40/1d}
`

// rotatingAddress is the n-th address of 127.64.0.0/10.
func rotatingAddress(n int) string {
	return fmt.Sprintf("127.%d.%d.%d", 64+n>>16, n>>8&255, n&255)
}

// Whoever was limited stays limited while more addresses come than the table holds, and none of that costs memory for ever.
func TestRotatingAddressesFindNoAmnestyAndNoMemory(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	var reached atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer api.Close()
	e := stand.StartEdge(t, stand.EdgeSettings{
		Origin: strings.TrimPrefix(api.URL, "http://"), Rules: rotatingRules, Workers: 2,
	})
	total := rotatingAddresses
	if testing.Short() {
		total = rotatingShort
	}
	admin, callers := stand.NewClient(t, ""), stand.NewCallers()
	asks := func(from string, times, status int, when string) {
		t.Helper()
		for range times { // over a new connection each, which reach both workers
			if r, err := callers.Do(from, http.MethodGet, e.URL); err != nil || r.Status != status {
				t.Fatalf("%s, %s: status %d, %v, want %d", from, when, r.Status, err, status)
			}
		}
	}
	// Of two clients without a token left, only one was refused: of the other no worker knows, only the table.
	const limited, drained = "127.0.0.90", "127.0.0.91"
	asks(limited, 40, 200, "with tokens")
	asks(drained, 40, 200, "with tokens")
	asks(limited, 20, 429, "without tokens")
	var half, end int64
	for turn := range rotatingTurns {
		share := total / rotatingTurns
		turnOf(t, callers, e.URL, turn*share, share)
		if t.Failed() {
			return
		}
		asks(limited, 8, 429, fmt.Sprintf("after %d addresses", (turn+1)*share))
		switch turn {
		case rotatingTurns/2 - 1:
			half = e.Resident(t)
		case rotatingTurns - 1:
			end = e.Resident(t)
		}
	}
	asks(drained, 8, 429, "after all addresses")
	used := e.Stat(t, admin, "wasmcustom.weir_edge_table_used")
	evictions := e.Stat(t, admin, "wasmcustom.weir_edge_table_evictions")
	t.Logf("%d addresses: %d entries used, %d evictions; Envoy resident %.1f MiB after half of them, %.1f MiB after all",
		total, used, evictions, float64(half)/(1<<20), float64(end)/(1<<20))
	if used > tableEntries || evictions == 0 {
		t.Errorf("%d entries used, %d evictions, want at most %d and more than none", used, evictions, tableEntries)
	}
	// Each address got one bucket: in a free entry or in that of another. Who comes back without tokens gets none.
	if used+evictions != total+2 {
		t.Errorf("%d entries used + %d evictions, want one of them for each of %d addresses", used, evictions, total+2)
	}
	if end-half > rotatingGrowth {
		t.Errorf("Envoy grew by %d bytes in the second half of the addresses, want at most %d", end-half, rotatingGrowth)
	}
	if want := int64(total + 80); reached.Load() != want {
		t.Errorf("%d calls reached the API, want %d", reached.Load(), want)
	}
	for worker := range 2 {
		name := fmt.Sprintf("%s.worker_%d.downstream_cx_total", e.Listener(), worker)
		if n := e.Stat(t, admin, name); n == 0 {
			t.Errorf("%s = 0: one worker took all connections", name)
		}
	}
}

// turnOf sends one call from each of count addresses, a few at once. All of them are new, so all must pass.
func turnOf(t *testing.T, callers *stand.Callers, url string, first, count int) {
	t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range rotatingCalls {
		all.Go(func() {
			for !t.Failed() {
				n := int(next.Add(1)) - 1
				if n >= count {
					return
				}
				from := rotatingAddress(first + n)
				if r, err := callers.Do(from, http.MethodGet, url); err != nil || r.Status != 200 {
					t.Errorf("%s, new to the edge: status %d, %v, want 200", from, r.Status, err)
				}
			}
		})
	}
	all.Wait()
}
