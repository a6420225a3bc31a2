package faults

import (
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/breaker"
)

var (
	stoppedRate = flag.Int("rate", 200, "calls a second of TestAStoppedStoreAtARate")
	stoppedOpen = flag.Duration("stopped", 2*time.Second, "how long the store stands still")
	// stoppedDeadline is that of production where the machine does nothing else.
	stoppedDeadline = flag.Duration("deadline", 250*time.Millisecond, "store.deadline of the origin")
)

const (
	// What the design wants of an origin on a machine of its own. Printed beside what was measured, not asserted.
	goalFirst, goalOpen, goalShared = 15 * time.Millisecond, time.Millisecond, 6 * time.Second
)

// Each call is answered once, by its rule's mode, while the server stands still; what the wait adds and how long the
// shared limits take to hold again is printed. `make faults` makes 2,000 calls a second.
func TestAStoppedStoreAtARate(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, "one"), startTally(t)
	r := &run{T: t, w: w, api: api}
	o := startOrigin(t, settings{store: w.store("", *stoppedDeadline), upstream: api.url, rules: originRules})
	r.origins = []*origin{o}
	var number atomic.Int64
	load := []*caller{newCaller(t, o, home, &number)}
	stage := func(during time.Duration) []answer {
		end := time.Now().Add(during)
		all := pace(load, modePaths, float64(*stoppedRate), end.Before)
		r.all = append(r.all, all...)
		return all
	}
	awaitTrue(t, "the store answers all", func() bool {
		for _, a := range stage(200 * time.Millisecond) {
			if a.how() != byStore {
				return false
			}
		}
		return true
	})
	quiet := stage(time.Second)
	goroutines, memory := r.uses()

	// What a call waits for in the origin alone, whatever the processors do to its client: the share of decisions that took
	// at most so many seconds, of those since the last time.
	var decided, soon float64
	within := func(bucket string) float64 {
		count, in := o.metric("weir_decision_duration_seconds_count"), o.metric("weir_decision_duration_seconds_bucket", `le="`+bucket+`"`)
		share := 100 * (in - soon) / (count - decided)
		decided, soon = count, in
		return share
	}
	within("0.001")
	w.servers[0].Stop()
	first := stage(time.Second)
	within("0.001")
	r.told(1, first, either)
	awaitTrue(t, "the breaker is open", func() bool { return o.metric("weir_breaker_state") == 2 })
	w.count("")
	tried := r.tried()
	open := stage(*stoppedOpen)
	r.told(2, open, byMode)
	ofOpen := within("0.001")
	asked := w.asked()
	// One more than whole periods: the first may be about to end. Of the others, those whose processor was away until their
	// deadline count as having waited.
	late, most := r.tried()-tried, 1+int(*stoppedOpen/breaker.OpenTime)
	if asked > most || int(late) > most+len(open)/50 {
		t.Errorf("the store was asked %d times in %v with an open breaker, %v calls of %d tried, want at most %d", asked, *stoppedOpen, late, len(open), most)
	}
	now, resident := r.uses()
	// As if all calls of a second were in flight at once, each with a goroutine for its client and one for the API.
	mostMore, mostBytes := 2*float64(*stoppedRate), mostMemory+float64(*stoppedRate)*100_000
	if now > goroutines+mostMore || resident > memory+mostBytes {
		t.Errorf("%v goroutines of %v, %.0f MB of %.0f", now, goroutines, resident/1e6, memory/1e6)
	}

	w.servers[0].Continue()
	went := time.Now()
	var shared time.Duration
	for since := (time.Time{}); shared == 0; {
		all := stage(steady / 3)
		r.told(3, all, either)
		for _, a := range all {
			if a.how() != byStore {
				since = time.Time{}
			} else if since.IsZero() {
				since = a.sent
			}
		}
		if !since.IsZero() && time.Since(since) >= steady {
			shared = max(since.Sub(went), time.Millisecond)
		}
		if t.Failed() || time.Since(went) > patience {
			t.Fatalf("not recovered %v after SIGCONT", time.Since(went))
		}
	}
	r.checkOnce()
	added := func(all []answer, share float64) float64 {
		return ms(max(0, quantile(all, share)-quantile(quiet, share)))
	}
	fmt.Printf("stopped: %d calls/s, %d calls answered once each; without a fault p50 %.2f ms, p99 %.2f ms\n", *stoppedRate, len(r.all), ms(quantile(quiet, 0.5)), ms(quantile(quiet, 0.99)))
	fmt.Printf("stopped: added in the first second p50 %.2f ms, p99 %.2f ms (goal %.0f)\n", added(first, 0.5), added(first, 0.99), ms(goalFirst))
	fmt.Printf("stopped: added once open p50 %.2f ms, p99 %.2f ms (goal %.0f); %.2f %% of decisions took at most 1 ms\n", added(open, 0.5), added(open, 0.99), ms(goalOpen), ofOpen)
	fmt.Printf("stopped: %v of %d calls tried the store in %v with an open breaker\n", late, len(open), *stoppedOpen)
	fmt.Printf("stopped: goroutines %.0f before, %.0f once open; memory %.0f MB, %.0f MB\n", goroutines, now, memory/1e6, resident/1e6)
	fmt.Printf("stopped: shared limits hold again %.2f s after SIGCONT (goal %.0f)\n", shared.Seconds(), goalShared.Seconds())
}
