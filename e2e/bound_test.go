package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/stand"
)

// The flood of the bound's test, and what the filter promises for it.
const (
	floodRate    = 50  // a second
	floodBurst   = 100 // tokens
	floodWorkers = 4
	floodLease   = 5 // max(1, min(floor(50/s × 100 ms), 100/8))
	connections  = 64
	floodTime    = 60 * time.Second
	floodShort   = 10 * time.Second // under -short
	// controlTime is enough for the control to be far above the bound: its excess is a whole bucket per worker.
	controlTime = 4 * time.Second
	// controlFactor is what a limiter without shared buckets must exceed the bound by, else the bound tells nothing.
	controlFactor = 1.5
)

// overAdmissionGauge is what the filter says of the bound's last term.
const overAdmissionGauge = "wasmcustom.weir_edge_over_admission"

const floodRules = `version: 1
rules:
- {name: flood, where: edge, by: [address], algorithm: token-bucket, limit: 50/1s, burst: 100}
`

// bound is how many calls may be admitted in a time.
func bound(t time.Duration) float64 {
	return floodBurst + floodRate*t.Seconds() + floodWorkers*floodLease
}

// TestOneClientOverAllWorkersStaysWithinTheBound floods a real Envoy with four workers from one address over 64
// connections. What is admitted is bounded over the time from the first send to the last answer.
func TestOneClientOverAllWorkersStaysWithinTheBound(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	during := floodTime
	if testing.Short() {
		during = floodShort
	}
	n := flood(t, stand.EdgeSettings{}, during)
	limit := bound(n.took)
	t.Logf("bound: admitted %d of %d in %.3f s, at most %d + %d/s × %.3f s + %d workers × %d = %.1f allowed",
		n.admitted, n.sent, n.took.Seconds(), floodBurst, floodRate, n.took.Seconds(), floodWorkers, floodLease, limit)
	if float64(n.admitted) > limit {
		t.Errorf("admitted %d in %v, the bound is %.1f", n.admitted, n.took, limit)
	}
	if n.refused == 0 {
		t.Error("nothing was refused: this was no flood")
	}
	// The other side: a limiter that admits far less than its rate keeps every bound.
	if low := 0.9 * (floodBurst + floodRate*during.Seconds()); float64(n.admitted) < low {
		t.Errorf("admitted %d, want at least %.0f: tokens get lost", n.admitted, low)
	}
}

// TestBoundFailsWithoutSharedBuckets is the negative control: the same filter with a bucket in each worker.
func TestBoundFailsWithoutSharedBuckets(t *testing.T) {
	stand.Need(t, stand.FaultWasm, stand.Weir, stand.Envoy)
	n := flood(t, stand.EdgeSettings{Module: stand.FaultWasm, VM: "no-shared-data"}, controlTime)
	limit := bound(n.took)
	t.Logf("control: admitted %d of %d in %.3f s, %.2f times the bound of %.1f",
		n.admitted, n.sent, n.took.Seconds(), float64(n.admitted)/limit, limit)
	if float64(n.admitted) < controlFactor*limit {
		t.Errorf("admitted %d, want more than %.1f × %.1f: the bound's test proves nothing", n.admitted, controlFactor, limit)
	}
}

type flooded struct {
	sent, admitted, refused int
	took                    time.Duration
}

func flood(t *testing.T, s stand.EdgeSettings, during time.Duration) flooded {
	t.Helper()
	s.Rules, s.Workers = floodRules, floodWorkers
	e, api := behind(t, s)

	var mu sync.Mutex
	var all flooded
	var wg sync.WaitGroup
	begin := time.Now()
	for range connections {
		c := stand.NewClient(t, "127.0.0.99")
		wg.Go(func() {
			counts := map[int]int{}
			for time.Since(begin) < during {
				r, err := c.Try(e.URL)
				if err != nil {
					t.Error(err)
					return
				}
				counts[r.Status]++
			}
			last := time.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			all.took = max(all.took, last)
			all.admitted += counts[200]
			all.refused += counts[429]
			for status, n := range counts {
				all.sent += n
				if status != 200 && status != 429 {
					t.Errorf("%d answers with status %d", n, status)
				}
			}
		})
	}
	wg.Wait()
	if api.Calls() != all.admitted {
		t.Errorf("%d calls reached the API, %d were answered with 200", api.Calls(), all.admitted)
	}
	admin := stand.NewClient(t, "")
	for worker := range floodWorkers {
		name := fmt.Sprintf("%s.worker_%d.downstream_cx_total", e.Listener(), worker)
		if n := e.Stat(t, admin, name); n == 0 {
			t.Errorf("%s = 0: a worker without a connection, which tests fewer than %d", name, floodWorkers)
		}
	}
	// Envoy's main thread runs the filter too and counts as a worker, so that the gauge is on the safe side.
	e.Until(t, "tells the bound's last term", func() error {
		told := e.Stat(t, admin, overAdmissionGauge)
		return unless(told >= floodWorkers*floodLease, "%s = %d, want %d workers × %d or more", overAdmissionGauge, told, floodWorkers, floodLease)
	})
	return all
}
