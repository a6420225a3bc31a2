package benchorigin

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/limit"
)

// deadline is a store's in production, from a call's beginning on.
const deadline = 10 * time.Millisecond

// releases are rule sets by how many counters a call of theirs charges. None refuses.
var releases = map[int]string{
	1: "version: 1\nrules:\n- {name: a, where: origin, by: [key], limit: 1000000000/1h}\n",
	3: "version: 1\nrules:\n- {name: a, where: origin, by: [key], limit: 1000000000/1h}\n" +
		"- {name: b, where: origin, by: [key, endpoint], match: {paths: [/search]}, limit: 1000000000/1m}\n" +
		"- {name: c, where: origin, by: [key], match: {methods: [GET]}, limit: 1000000000/1s}\n",
}

// door is a limiter on a store, as a gateway has it.
type door struct {
	limiter  *limiter.Limiter
	callers  []identity.Caller
	degraded atomic.Int64
	refused  atomic.Int64
	storeCPU func() time.Duration
}

func newDoor(b *testing.B, ruleCount int, store limiter.Store, storeCPU func() time.Duration) *door {
	b.Helper()
	release, err := rules.Parse("bench.rules.yaml", []byte(releases[ruleCount]))
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	base := limit.Micros(began.UnixMicro())
	fallback := memory.New(memory.DefaultSize, nil)
	if store == nil {
		store = fallback
	}
	d := &door{storeCPU: storeCPU, limiter: limiter.New(limiter.Options{
		Store: store, Fallback: fallback, Secret: []byte(strings.Repeat("s", 32)), Metrics: telemetry.New(), Log: quiet,
		Now: func() limit.Micros { return base + limit.Micros(time.Since(began).Microseconds()) },
	}, release)}
	for i := range principals {
		d.callers = append(d.callers, identity.Caller{Key: &keys.Key{ID: fmt.Sprintf("key-%06d", i)}})
	}
	return d
}

// check makes the i-th call.
func (d *door) check(i int) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	v, err := d.limiter.Check(ctx, limiter.Request{Caller: d.callers[i*7919%principals], Method: "GET", Path: "/search"})
	cancel()
	switch {
	case err != nil || !v.Allowed:
		d.refused.Add(1)
	case v.Degraded:
		d.degraded.Add(1)
	}
}

// offered is what came of a rate that was offered for a while.
type offered struct {
	checks        int
	times         *hdrhistogram.Histogram // from when a call was to begin until it was answered, ns
	late          *hdrhistogram.Histogram // of them, until it began
	failed        int64                   // refused or answered without the store
	within        bool                    // all were answered soon after the last one was to begin
	cpu, storeCPU float64                 // ns a check, of this process with the generator, and of the store
	allocs        float64                 // a check
}

// offer makes calls at the instants that the rate says, whatever became of those before: a call that has to wait for its
// turn has waited since the instant at which it was to begin.
func (d *door) offer(rate float64, wait time.Duration) offered {
	d.recover()
	n := int(rate * wait.Seconds())
	o := offered{checks: n, times: hdrhistogram.New(1, int64(time.Minute), 3), late: hdrhistogram.New(1, int64(time.Minute), 3)}
	d.degraded.Store(0)
	d.refused.Store(0)
	// Written by index, and put into histograms afterwards: a histogram for each goroutine would be 200 MB of memory to clear.
	times, late := make([]time.Duration, n), make([]time.Duration, n)
	var together sync.WaitGroup
	turns := make(chan int, n) // a goroutine that waits for a turn costs less than one that is made for it
	began := time.Now().Add(10 * time.Millisecond)
	due := func(i int) time.Time { return began.Add(time.Duration(float64(i) / rate * 1e9)) }
	for range 512 {
		together.Go(func() {
			for i := range turns {
				at := due(i)
				late[i] = time.Since(at)
				d.check(i)
				times[i] = time.Since(at)
			}
		})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ours, theirs := processCPU(), d.storeCPU()
	for i := range n {
		valkeytest.SleepUntil(due(i))
		turns <- i
	}
	close(turns)
	together.Wait()
	o.within = time.Since(began) < wait+100*time.Millisecond
	runtime.ReadMemStats(&after)
	o.allocs = float64(after.Mallocs-before.Mallocs) / float64(n)
	o.cpu, o.storeCPU = float64(processCPU()-ours)/float64(n), float64(d.storeCPU()-theirs)/float64(n)
	o.failed = d.degraded.Load() + d.refused.Load()
	for i := range n {
		_ = o.times.RecordValue(max(1, int64(times[i])))
		_ = o.late.RecordValue(max(1, int64(late[i])))
	}
	return o
}

// recover waits until the store answers: after a rate that was too high it is left alone for a while.
func (d *door) recover() {
	for inRow := 0; inRow < 100; inRow++ {
		d.degraded.Store(0)
		if d.check(inRow); d.degraded.Load() > 0 {
			inRow = -1
			time.Sleep(10 * time.Millisecond) // there is no event to wait for
		}
	}
}

// holds tells whether the rate was carried: all answered in time, by the store.
func (o offered) holds() bool { return o.within && float64(o.failed) <= 0.001*float64(o.checks) }

func (o offered) String() string {
	at := func(h *hdrhistogram.Histogram, q float64) float64 { return float64(h.ValueAtQuantile(q)) }
	return fmt.Sprintf("%.0f p50-ns\t%.0f p99-ns\t%.0f p99.9-ns\t%.0f late-p99-ns\t%.0f cpu-ns/check\t%.0f store-cpu-ns/check\t%.1f allocs/check\t%d failed",
		at(o.times, 50), at(o.times, 99), at(o.times, 99.9), at(o.late, 99), o.cpu, o.storeCPU, o.allocs, o.failed)
}

// runs is how often each load is offered; medians are told.
const runs = 5

// BenchmarkCheck finds the largest rate of checks that is carried on this machine together with the store, then tells how
// long a check takes at half of it. A control that asks no store, offered the same by turns, tells how long the
// machine itself holds a call up.
func BenchmarkCheck(b *testing.B) {
	wanted, err := regexp.Compile(*only)
	if err != nil {
		b.Fatal(err)
	}
	// The generator sleeps in system calls, which keep the place among running goroutines that they were made from: one of
	// its own, or it would take away half of a machine with two cores.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 1))
	server := valkeytest.Start(b)
	for _, strategy := range []valkey.Strategy{valkey.Function, valkey.Commands} {
		store := connect(b, strategy, false, server)
		for _, ruleCount := range []int{1, 3} {
			name := fmt.Sprintf("%s/%d-rules", strategy, ruleCount)
			if !wanted.MatchString(name) {
				continue
			}
			d, control := newDoor(b, ruleCount, store, server.CPU), newDoor(b, ruleCount, nil, server.CPU)
			d.offer(2000, time.Second) // makes counters and connections
			control.offer(2000, time.Second)
			most := d.search(*trial / 2)
			fmt.Printf("# %s: carries %.0f checks/s (expected %d)\n", name, most, *rate)
			for _, load := range []struct {
				what string
				rate float64
			}{
				{"half-of-what-it-carries", most / 2},
				{fmt.Sprintf("%d-a-second", *rate/2), float64(*rate) / 2},
				{fmt.Sprintf("%d-a-second", *rate), float64(*rate)},
			} {
				var all, controls []offered
				for range runs {
					all = append(all, d.offer(load.rate, *trial))
					controls = append(controls, control.offer(load.rate, *trial))
				}
				o, c := middle(all), middle(controls)
				line("BenchmarkCheck/"+name+"/"+load.what, o.checks, o.String())
				line("BenchmarkCheck/control/"+name+"/"+load.what, c.checks, c.String())
				fmt.Printf("# %s, %s: p99 %.2f ms, %.2f ms more than without a store (expected below 1 at half load)\n",
					name, load.what, o.p99()/1e6, (o.p99()-c.p99())/1e6)
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of this function as a whole, which says nothing
}

func (o offered) p99() float64 { return float64(o.times.ValueAtQuantile(99)) }

// middle is the run in the middle, by its p99. One that was not carried is behind all that were: calls that ask no store,
// since it is left alone, are quick.
func middle(all []offered) offered {
	slices.SortFunc(all, func(a, b offered) int {
		if a.holds() != b.holds() {
			if a.holds() {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.p99(), b.p99())
	})
	return all[len(all)/2]
}

// search is the largest rate that is carried, to 5 %.
func (d *door) search(wait time.Duration) float64 {
	low, high := 2000.0, 4000.0
	for d.carries(high, wait) {
		low, high = high, 1.25*high
	}
	for high/low > 1.05 {
		if middle := (low + high) / 2; d.carries(middle, wait) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// carries tells whether a rate is carried, in one of three trials: the machine may be busy with something else for a moment.
func (d *door) carries(rate float64, wait time.Duration) bool {
	for range 3 {
		if d.offer(rate, wait).holds() {
			return true
		}
	}
	return false
}
