package memory_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/store/storetest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
	"github.com/weirproject/weir/shared/rule"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 takes one from the clock")

func TestConformance(t *testing.T) {
	storetest.Suite{
		Open:          func(*testing.T) limiter.Store { return memory.New(memory.DefaultSize, nil) },
		At:            storetest.AtCall,
		RemembersByAt: true,
		Contents:      func(_ *testing.T, s limiter.Store) map[string]string { return s.(*memory.Store).Contents() },
		Seed:          *seed,
	}.Run(t)
}

func take(s *memory.Store, now limit.Micros, n int, l limit.Limit, cost int64) limiter.Outcome {
	outcomes := make([]limiter.Outcome, 1)
	s.Take(context.Background(), &limiter.Call{Now: now, Charges: []limiter.Charge{{Counter: storetest.Name(n), Algorithm: rule.SlidingWindow, Limit: l, Cost: cost}}, Outcomes: outcomes})
	return outcomes[0]
}

func TestTheStoreIsTheSameAlgorithmOverTime(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed=%d", *seed)
	r := rand.New(rand.NewPCG(*seed, *seed))
	s := memory.New(1000, nil)
	for n := range 200 {
		l := limit.Limit{Count: 1 + r.Int64N(100), Window: limit.Second}
		now, want := limit.Micros(r.Int64N(1<<50)), limit.SlidingWindow{}
		for range 100 {
			now += limit.Micros(r.Int64N(int64(limit.Second) / 10))
			if r.IntN(20) == 0 {
				now -= 3 * limit.Second // the clock steps back
			}
			cost := r.Int64N(5)
			d := want.Peek(l, now, cost)
			if cost > 0 {
				want, d = want.Take(l, now, cost)
			}
			if o := take(s, now, n, l, cost); (o.Status == limiter.Admitted) != d.Allowed {
				t.Fatalf("%+v at %d cost %d: %+v, package limit %+v", l, now, cost, o, d)
			}
		}
	}
}

func TestExpiredCountersGo(t *testing.T) {
	s := memory.New(64_000, nil)
	l := limit.Limit{Count: 5, Window: limit.Second}
	now := limit.Hour
	for n := range 60_000 { // 6 s of ten thousand new principals a second
		now += 100
		take(s, now, n, l, 1)
	}
	// In use at any time are those of the last two windows, 20,000.
	if n := s.Len(); n < 10_000 || n > 40_000 {
		t.Errorf("%d counters kept of 60,000, about 20,000 in use", n)
	}
}

func TestAFullStoreNeitherGrowsNorOpens(t *testing.T) {
	overflowed := 0
	s := memory.New(640, func() { overflowed++ })
	l := limit.Limit{Count: 5, Window: limit.Hour}
	for n := range 20_000 {
		take(s, limit.Hour, n, l, 1)
	}
	if n := s.Len(); n != 640+1 { // the overflow counter of the one rule
		t.Errorf("%d counters kept, want 641", n)
	}
	if overflowed == 0 {
		t.Error("overflow was not counted")
	}
	// The overflow counter is used up by now: a stranger is refused, whoever has a counter is not.
	if o := take(s, limit.Hour, 1_000_000, l, 1); o.Status != limiter.Refused {
		t.Errorf("a stranger at a full store: %+v", o)
	}
	if o := take(s, limit.Hour, 0, l, 1); o.Status != limiter.Admitted || o.Decision.Remaining != 3 {
		t.Errorf("a principal with a counter of its own: %+v", o)
	}
	if o := take(s, 4*limit.Hour, 2_000_000, l, 1); o.Status != limiter.Admitted {
		t.Errorf("after two windows: %+v", o)
	}
}

// ofRule is the n-th principal's counter of a rule.
func ofRule(ru, n int) limiter.Counter {
	c := storetest.Name(n)
	c[20], c[19] = byte('a'+ru%26), byte('a'+ru/26)
	return c
}

func TestStrangersOfEachRuleShareTheirOwnCounter(t *testing.T) {
	s := memory.New(64, nil)
	ask := func(now limit.Micros, counters ...limiter.Counter) []limiter.Outcome {
		c := limiter.Call{Now: now, Outcomes: make([]limiter.Outcome, len(counters))}
		for _, name := range counters {
			c.Charges = append(c.Charges, limiter.Charge{Counter: name, Algorithm: rule.FixedWindow, Limit: limit.Limit{Count: 3, Window: limit.Hour}, Cost: 1})
		}
		s.Take(context.Background(), &c)
		return c.Outcomes
	}
	for n := range 1000 {
		ask(limit.Hour, ofRule(0, n))
	}
	if o := ask(limit.Hour, ofRule(0, 5000)); o[0].Status != limiter.Refused {
		t.Errorf("a stranger of the rule: %+v", o)
	}
	if o := ask(limit.Hour, ofRule(1, 5000), ofRule(2, 5001)); !o[0].Made || !o[1].Made {
		t.Errorf("strangers of other rules: %+v", o)
	}
	// What is there is asked for, not strangers' counters.
	c := limiter.Charge{Counter: ofRule(1, 7000), Algorithm: rule.FixedWindow, Limit: limit.Limit{Count: 3, Window: limit.Hour}, Cost: 1, Existing: true}
	call := limiter.Call{Now: limit.Hour, Charges: []limiter.Charge{c}, Outcomes: make([]limiter.Outcome, 1)}
	if s.Take(context.Background(), &call); call.Outcomes[0].Status != limiter.Unmade {
		t.Errorf("a stranger that is not to be made: %+v", call.Outcomes)
	}
	// Rules come and go with releases; their strangers' counters go with them.
	for ru := range 250 {
		now := limit.Hour + limit.Micros(ru)*limit.Minute // 60 are in use at a time
		for n := range 200 {
			ask(now, ofRule(ru, n))
		}
	}
	if n := s.Len(); n > 64+3*60 {
		t.Errorf("%d counters kept, 64 and some 60 overflow counters in use", n)
	}
}

func TestCallersOfAFullStoreDoNotWaitForEachOtherForEver(t *testing.T) {
	s := memory.New(64, nil)
	l := limit.Limit{Count: 1 << 40, Window: limit.Hour}
	var wg sync.WaitGroup
	var charged atomic.Int64
	for caller := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(caller), 1))
			for range 2000 {
				c := limiter.Call{Now: limit.Hour, Outcomes: make([]limiter.Outcome, 3)}
				for ru := range 3 {
					c.Charges = append(c.Charges, limiter.Charge{Counter: ofRule(ru, r.IntN(1000)), Algorithm: rule.FixedWindow, Limit: l, Cost: 1})
				}
				s.Take(context.Background(), &c)
				charged.Add(3)
			}
		})
	}
	wg.Wait()
	used := int64(0)
	for ru := range 3 {
		for n := range 1001 { // the last is a stranger for certain
			c := limiter.Call{Now: limit.Hour, Charges: []limiter.Charge{{Counter: ofRule(ru, n), Algorithm: rule.FixedWindow, Limit: l, Existing: n < 1000}}, Outcomes: make([]limiter.Outcome, 1)}
			if s.Take(context.Background(), &c); c.Outcomes[0].Status == limiter.Admitted {
				used += l.Count - c.Outcomes[0].Decision.Remaining
			}
		}
	}
	if used != charged.Load() {
		t.Errorf("%d charges made, the counters hold %d", charged.Load(), used)
	}
}

func TestRefundsMakeNoCounter(t *testing.T) {
	s := memory.New(1000, nil)
	l := limit.Limit{Count: 5, Window: limit.Hour}
	refund := func(n int, cost int64) {
		s.Refund(context.Background(), &limiter.Call{Now: limit.Hour, Charges: []limiter.Charge{{Counter: storetest.Name(n), Algorithm: rule.SlidingWindow, Limit: l, Cost: cost}}, Outcomes: []limiter.Outcome{{Charged: true, At: limit.Hour}}})
	}
	refund(1, 3)
	if s.Len() != 0 {
		t.Error("a refund made a counter")
	}
	take(s, limit.Hour, 1, l, 3)
	refund(1, 2)
	if o := take(s, limit.Hour, 1, l, 0); o.Decision.Remaining != 4 {
		t.Errorf("3 charged and 2 back leave %d of 5", o.Decision.Remaining)
	}
}

func TestADecisionAllocatesNothing(t *testing.T) {
	s := memory.New(1000, nil)
	ctx, now := context.Background(), limit.Hour
	for nth, name := range limittest.Algorithms {
		a, _ := rule.ParseAlgorithm(name)
		large, small := limit.Limit{Count: limit.MaxLogCount, Window: limit.Hour}, limit.Limit{Count: 1, Window: limit.Hour}
		calls := map[string]*limiter.Call{
			"admitted":           {Charges: []limiter.Charge{{Counter: storetest.Name(1), Limit: large, Cost: 1}, {Counter: storetest.Name(2), Limit: large, Cost: 2}}},
			"refused":            {Charges: []limiter.Charge{{Counter: storetest.Name(1), Limit: large, Cost: 1}, {Counter: storetest.Name(3), Limit: small, Cost: 1}}},
			"asked":              {Charges: []limiter.Charge{{Counter: storetest.Name(1), Limit: large}, {Counter: storetest.Name(4), Limit: small}}},
			"shadow and refused": {Charges: []limiter.Charge{{Counter: storetest.Name(1), Limit: large, Cost: 1, Shadow: true}, {Counter: storetest.Name(3), Limit: small, Cost: 1}}},
		}
		for what, c := range calls {
			c.Now, c.Outcomes = now, make([]limiter.Outcome, len(c.Charges))
			for i := range c.Charges {
				c.Charges[i].Algorithm = a
				c.Charges[i].Counter[20] = byte('a' + nth) // a name is of one algorithm
			}
			s.Take(ctx, c) // makes the counters; the second makes the small one full
			if n := testing.AllocsPerRun(100, func() { s.Take(ctx, c) }); n != 0 {
				t.Errorf("%s, %s: %v allocations, want 0", name, what, n)
			}
			s.Take(ctx, c)
			if n := testing.AllocsPerRun(100, func() { s.Refund(ctx, c) }); n != 0 {
				t.Errorf("%s, %s: %v allocations of a refund, want 0", name, what, n)
			}
		}
	}
}

func BenchmarkTake(b *testing.B) {
	s := memory.New(memory.DefaultSize, nil)
	l := limit.Limit{Count: limit.MaxCount, Window: limit.Hour}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		outcomes := make([]limiter.Outcome, 1)
		charges := make([]limiter.Charge, 1)
		for n := rand.IntN(100_000); pb.Next(); n++ {
			charges[0] = limiter.Charge{Counter: storetest.Name(n % 100_000), Algorithm: rule.SlidingWindow, Limit: l, Cost: 1}
			s.Take(context.Background(), &limiter.Call{Now: limit.Hour, Charges: charges, Outcomes: outcomes})
		}
	})
}

// serverTime is a store that goes by a clock of its own, as one on a server does: the suite has to hold there, too.
type serverTime struct{ *memory.Store }

func (s serverTime) Take(ctx context.Context, c *limiter.Call) error {
	c.Now = limit.Micros(time.Now().UnixMicro())
	return s.Store.Take(ctx, c)
}

func (s serverTime) Refund(ctx context.Context, c *limiter.Call) error {
	c.Now = limit.Micros(time.Now().UnixMicro())
	return s.Store.Refund(ctx, c)
}

func TestConformanceOnAClockOfItsOwn(t *testing.T) {
	storetest.Suite{
		Open: func(*testing.T) limiter.Store { return serverTime{memory.New(memory.DefaultSize, nil)} },
		Seed: *seed,
	}.Run(t)
}

// What is given back goes to the counter that was charged, a stranger's own or the one that strangers share, whichever the
// principal has by now.
func TestARefundIsOfTheCounterThatWasCharged(t *testing.T) {
	l := limit.Limit{Count: 3, Window: limit.Hour}
	ask := func(s *memory.Store, now limit.Micros, n int, cost int64) *limiter.Call {
		c := &limiter.Call{Now: now, Outcomes: make([]limiter.Outcome, 1),
			Charges: []limiter.Charge{{Counter: storetest.Name(n), Algorithm: rule.TokenBucket, Limit: l, Cost: cost}}}
		s.Take(context.Background(), c)
		return c
	}
	left := func(s *memory.Store, now limit.Micros, n int) int64 {
		return ask(s, now, n, 0).Outcomes[0].Decision.Remaining
	}
	const first, stranger = 1_000_000, 2_000_000

	// A caller whose counter is over, when the store has filled since.
	s, now := memory.New(64, nil), limit.Hour
	own := ask(s, now, first, 3)
	now += 2 * limit.Hour
	for n := range 1000 {
		ask(s, now, n, 3)
	}
	if o := ask(s, now, first, 1).Outcomes[0]; o.Status != limiter.Refused {
		t.Fatalf("a stranger at a full store: %+v", o)
	}
	own.Now = now
	s.Refund(context.Background(), own)
	if n := left(s, now, stranger); n != 0 {
		t.Errorf("strangers got %d of what they never paid", n)
	}

	// A stranger that got a counter since.
	s, now = memory.New(64, nil), limit.Hour
	for n := range 1000 {
		ask(s, now, n, 3)
	}
	now += 30 * limit.Minute // strangers have one call
	shared := ask(s, now, first, 1)
	if n := left(s, now, stranger); n != 0 {
		t.Fatalf("%d left to strangers: the first was none", n)
	}
	for n := range 1000 {
		s.Reset(context.Background(), ask(s, now, n, 0))
	}
	ask(s, now, first, 3)
	s.Refund(context.Background(), shared)
	if n := left(s, now, first); n != 0 {
		t.Errorf("its own counter got %d of what it never paid", n)
	}
	for n := range 1000 {
		ask(s, now, n, 3)
	}
	if n := left(s, now, stranger); n != 1 {
		t.Errorf("strangers have %d left, want 1", n)
	}
}

// The server's clock steps back after a log was charged: a refund that gives nothing back leaves it as lasting as it was.
func TestARefundBeforeAStepBackLeavesALogAsItIs(t *testing.T) {
	s, ctx := memory.New(100, nil), context.Background()
	charge := limiter.Charge{Counter: storetest.Name(1), Algorithm: rule.SlidingLog, Limit: limit.Limit{Count: 5, Window: limit.Second}, Cost: 5}
	call := func(now limit.Micros, cost int64) *limiter.Call {
		c := charge
		c.Cost = cost
		return &limiter.Call{Now: now, Charges: []limiter.Charge{c}, Outcomes: make([]limiter.Outcome, 1)}
	}
	first, second, third := call(limit.Minute, 5), call(limit.Minute+6*limit.Second, 3), call(limit.Minute+6*limit.Second+1, 3)
	_ = s.Take(ctx, first)
	_ = s.Take(ctx, second)
	first.Now += 1200 * limit.Millisecond
	_ = s.Refund(ctx, first)
	if _ = s.Take(ctx, third); third.Outcomes[0].Status != limiter.Refused {
		t.Errorf("3 of 5 used, 3 more: %+v", third.Outcomes[0])
	}
}
