package peers

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
)

const (
	rounds    = 25     // each limiter has its turn in each, so that a machine that slows down slows all of them
	callCount = 30_000 // of each caller in a round
)

// BenchmarkStores measures a decision on one of 100,000 keys at random, admitted and refused, by one caller and by one a
// core. It prints for each limiter the median over rounds of what a caller waits and what a decision takes of CPU, and the
// CPU's ratio to that of Weir's default, a sliding window. The metric is the fastest peer's: above 1 where Weir is faster.
// CPU and not the wait, since that also tells of whoever else uses the machine.
func BenchmarkStores(b *testing.B) {
	for _, load := range []struct {
		name    string
		count   int // calls an hour a key
		callers int
	}{
		{"serial/admitted", 1_000, 1},
		{"serial/refused", 1, 1},
		{"parallel/admitted", 1_000, runtime.GOMAXPROCS(0)},
		{"parallel/refused", 1, runtime.GOMAXPROCS(0)},
	} {
		b.Run(load.name, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(measure(b, load.count, load.callers), "fastest-peer/weir")
			}
		})
	}
}

// order is what one caller asks for.
type order struct {
	counters []limiter.Counter
	texts    []string
}

func measure(b *testing.B, count, callers int) (ratio float64) {
	open := make([]func() caller, len(peers))
	for i, p := range peers {
		open[i] = p.open(b, count)
		call := open[i]()
		for n := range keyCount { // counters exist; of a limit of 1 it is used up
			call(keyOf(n))
		}
	}
	waits, cpus := make([][]float64, len(peers)), make([][]float64, len(peers))
	orders := make([]order, callers)
	for r := range rounds {
		for n := range orders {
			orders[n].counters, orders[n].texts = asked(callCount, rand.New(rand.NewPCG(uint64(r), uint64(n))))
		}
		for i := range peers {
			wait, cpu := round(b, peers[i].name, open[i], count == 1, orders)
			waits[i], cpus[i] = append(waits[i], wait), append(cpus[i], cpu)
		}
	}
	var table strings.Builder
	fastest, own := 0.0, median(cpus[0])
	for i, p := range peers {
		cpu := median(cpus[i])
		fmt.Fprintf(&table, "\n  %-22s wait %6.0f ns   CPU %6.0f ns  %5.2f", p.name, median(waits[i]), cpu, cpu/own)
		if !strings.HasPrefix(p.name, "weir-") && (fastest == 0 || cpu < fastest) {
			fastest = cpu
		}
	}
	b.Log(table.String())
	return fastest / own
}

// round is the time that a caller waits for a decision, and the CPU that one takes, in ns.
func round(b *testing.B, name string, open func() caller, refused bool, orders []order) (wait, cpu float64) {
	runtime.GC() // nobody pays for another's garbage
	var wg sync.WaitGroup
	took := make([]time.Duration, len(orders))
	before := cpuTime(b)
	for n := range orders {
		call, counters, texts := open(), orders[n].counters, orders[n].texts
		wg.Go(func() {
			began := time.Now()
			for i := range callCount {
				if call(key{&counters[i], texts[i]}) == refused {
					b.Errorf("%s: a wrong answer", name)
				}
			}
			took[n] = time.Since(began)
		})
	}
	wg.Wait()
	spent := cpuTime(b) - before
	return float64(slices.Max(took).Nanoseconds()) / callCount, float64(spent.Nanoseconds()) / float64(callCount*len(orders))
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
