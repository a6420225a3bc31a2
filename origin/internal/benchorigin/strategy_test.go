package benchorigin

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/dchest/siphash"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// one case is measured again and again.
type one struct {
	place     string // standalone, cluster
	rules     int
	spread    bool // each rule's counter is in a slot of its own
	refused   bool
	strategy  valkey.Strategy
	algorithm rule.Algorithm

	store   limiter.Store
	servers []*valkeytest.Server
	taken   []sample
}

// sample is one round of a case, per decision.
type sample struct {
	cpu, commands float64 // ns of all servers; commands that they ran
	p50, p99      float64 // ns
}

func (c *one) shape() string {
	verdict, slots := "admitted", ""
	if c.refused {
		verdict = "refused"
	}
	if c.spread {
		slots = "-in-as-many-slots"
	}
	return fmt.Sprintf("%s/%d-rules%s/%s", c.place, c.rules, slots, verdict)
}

func (c *one) name() string {
	name := c.shape() + "/" + c.strategy.String()
	if c.algorithm != rule.SlidingWindow {
		name += "-" + c.algorithm.String()
	}
	return name
}

// cases are all shapes, by strategy: window counters by both, and what a function keeps beside them.
func cases() (all []*one) {
	for _, place := range []string{"standalone", "cluster"} {
		for _, rules := range []int{1, 3, 6} {
			for _, spread := range []bool{false, true} {
				if spread && (place != "cluster" || rules == 1) {
					continue
				}
				for _, refused := range []bool{false, true} {
					all = append(all,
						&one{place: place, rules: rules, spread: spread, refused: refused, strategy: valkey.Function, algorithm: rule.SlidingWindow},
						&one{place: place, rules: rules, spread: spread, refused: refused, strategy: valkey.Commands, algorithm: rule.SlidingWindow})
					if place == "standalone" && rules < 6 {
						all = append(all, &one{place: place, rules: rules, refused: refused, strategy: valkey.Function, algorithm: rule.GCRA})
					}
				}
			}
		}
	}
	return all
}

// BenchmarkStore prints a line for each case and round as benchstat reads it, then a table of medians. It measures by
// rounds of its own, whatever -benchtime says: rounds alternate between the cases, so that a machine which slows down does
// so for all.
func BenchmarkStore(b *testing.B) {
	wanted, err := regexp.Compile(*only)
	if err != nil {
		b.Fatal(err)
	}
	all := slices.DeleteFunc(cases(), func(c *one) bool { return !wanted.MatchString(c.name()) })
	standalone := []*valkeytest.Server{valkeytest.Start(b)}
	cluster := valkeytest.StartCluster(b, 3).Nodes
	stores := map[string]limiter.Store{}
	for _, c := range all {
		c.servers = standalone
		if c.place == "cluster" {
			c.servers = cluster
		}
		key := c.place + c.strategy.String()
		if stores[key] == nil {
			stores[key] = connect(b, c.strategy, c.place == "cluster", c.servers...)
		}
		c.store = stores[key]
	}
	for _, c := range all {
		if err := c.fill(); err != nil {
			b.Fatalf("%s: %v", c.name(), err)
		}
	}
	for round := range *rounds + 1 { // the first one does not count
		order := slices.Clone(all)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range order {
			s, err := c.measure(uint64(round))
			if err != nil {
				b.Fatalf("%s: %v", c.name(), err)
			}
			if round == 0 {
				continue
			}
			c.taken = append(c.taken, s)
			line("BenchmarkStore/"+c.name(), *decisions, fmt.Sprintf("%.0f cpu-ns/decision\t%.0f p50-ns\t%.0f p99-ns\t%.2f commands/decision", s.cpu, s.p50, s.p99, s.commands))
		}
	}
	b.ReportMetric(0, "ns/op") // of this function as a whole, which says nothing
	fmt.Print("\n", table(all), "\n")
}

// fill makes a case's counters: used up, where its calls are to be refused.
func (c *one) fill() (err error) {
	var mu sync.Mutex
	var together sync.WaitGroup
	for i := range callers {
		together.Go(func() {
			for principal := i; principal < principals; principal += callers {
				charges := c.charges(principal)
				if err2 := c.store.Take(context.Background(), &limiter.Call{Charges: charges, Outcomes: make([]limiter.Outcome, len(charges))}); err2 != nil {
					mu.Lock()
					err = err2
					mu.Unlock()
					return
				}
			}
		})
	}
	together.Wait()
	return err
}

// charges are those of one call.
func (c *one) charges(principal int) []limiter.Charge {
	charges := make([]limiter.Charge, c.rules)
	for i := range charges {
		charges[i] = limiter.Charge{
			Counter: c.counter(principal, fmt.Sprintf("rule-%06d", i), i), Algorithm: c.algorithm, Cost: 1,
			Limit: limit.Limit{Count: limit.MaxCount, Window: limit.Hour},
		}
	}
	if c.refused { // by the last rule: all are looked at
		last := &charges[c.rules-1]
		last.Counter = c.counter(principal, "exhausted--", c.rules-1)
		last.Limit = limit.Limit{Count: 1, Window: limit.MaxWindow}
	}
	return charges
}

// measure makes a round of decisions, by callers at once.
func (c *one) measure(round uint64) (s sample, err error) {
	var cpu time.Duration
	var before []map[string]int64
	for _, server := range c.servers {
		before = append(before, server.Calls())
		cpu -= server.CPU()
	}
	var mu sync.Mutex
	var together sync.WaitGroup
	times := hdrhistogram.New(1, int64(time.Minute), 3)
	for i := range callers {
		together.Go(func() {
			own, failed := c.call(rand.New(rand.NewPCG(round, uint64(i))), *decisions/callers)
			mu.Lock()
			defer mu.Unlock()
			times.Merge(own)
			if failed != nil {
				err = failed
			}
		})
	}
	together.Wait()
	n := float64(*decisions / callers * callers)
	for i, server := range c.servers {
		cpu += server.CPU()
		for command, ran := range server.Since(before[i]) {
			// Not what is asked now and then, whatever the load, nor what a function runs inside.
			if sent := command == "fcall" || command == "fcall_ro"; sent == (c.strategy == valkey.Function) && !occasional[command] {
				s.commands += float64(ran) / n
			}
		}
	}
	s.cpu = float64(cpu) / n
	s.p50, s.p99 = float64(times.ValueAtQuantile(50)), float64(times.ValueAtQuantile(99))
	return s, err
}

// occasional commands are sent by the clock, or when connecting.
var occasional = map[string]bool{
	"time": true, "ping": true, "hello": true, "client|setinfo": true, "client|setname": true, "select": true,
	"cluster|slots": true, "cluster|shards": true, "cluster|nodes": true, "subscribe": true, "function|load": true,
}

// call makes decisions one after the other.
func (c *one) call(r *rand.Rand, n int) (*hdrhistogram.Histogram, error) {
	times := hdrhistogram.New(1, int64(time.Minute), 3)
	call := &limiter.Call{Outcomes: make([]limiter.Outcome, c.rules)}
	for range n {
		call.Charges = c.charges(r.IntN(principals))
		began := time.Now()
		if err := c.store.Take(context.Background(), call); err != nil {
			return times, err
		}
		_ = times.RecordValue(int64(time.Since(began)))
		for i := range call.Outcomes {
			want := limiter.Admitted
			if c.refused && i == c.rules-1 {
				want = limiter.Refused
			}
			if o := &call.Outcomes[i]; o.Status != want {
				return times, fmt.Errorf("rule %d has status %d, want %d (%v)", i, o.Status, want, o.Err)
			}
		}
	}
	return times, nil
}

// counter is the name of a rule's counter as the limiter makes them: those of a principal share a slot, unless spread.
// Cases of one strategy share counters, so that all fit into memory.
func (c *one) counter(principal int, ru string, number int) (name limiter.Counter) {
	var h [16]byte
	binary.LittleEndian.PutUint64(h[:], uint64(principal))
	tag := siphash.Hash(0, 0, h[:8])
	if c.spread {
		tag = siphash.Hash(uint64(number)+1, 0, h[:8])
	}
	copy(name[:], fmt.Sprintf("w1:{%04x}:", uint16(tag)))
	binary.LittleEndian.PutUint64(h[8:], uint64(c.strategy)<<8|uint64(c.algorithm))
	copy(name[len("w1:{hhhh}:"):], ru)
	base64.RawURLEncoding.Encode(name[len(name)-22:], h[:])
	return name
}
