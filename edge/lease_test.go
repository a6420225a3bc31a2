package edge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/limit"
)

func TestLeaseMaxIsAsStated(t *testing.T) {
	for _, c := range []struct {
		l    limit.Limit
		want int64
	}{
		{per(50, 100), 5},   // rate × 100 ms
		{per(500, 80), 10},  // capacity / 8
		{per(5, 1000), 1},   // half a token a lease: at least one
		{per(1000, 7), 1},   // a capacity below eight
		{per(1000, 0), 100}, // burst defaults to count
		{limit.Limit{}, 1},  // never granted anyway
		{per(limit.MaxCount, limit.MaxCount), 1<<31 - 1},
		{limit.Limit{Count: limit.MaxCount, Window: limit.Millisecond}, 1<<31 - 1},
		{limit.Limit{Count: 60, Window: limit.Minute}, 1},
	} {
		if got := LeaseMax(c.l); got != c.want {
			t.Errorf("LeaseMax(%+v) = %d, want %d", c.l, got, c.want)
		}
	}
}

// One client reaches W workers in any order, races for slots are lost, bundles are pushed, time passes unevenly: in any
// interval it gets no more than the stated bound.
func TestNoInterleavingOfWorkersExceedsTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Int64Range(1, 2000).Draw(t, "count")
		burst := rapid.Int64Range(1, 500).Draw(t, "burst")
		window := rapid.SampledFrom([]limit.Micros{limit.Second, limit.Second / 10, 7 * limit.Second}).Draw(t, "window")
		workers := rapid.IntRange(1, 5).Draw(t, "workers")
		loss := rapid.IntRange(0, 60).Draw(t, "percent of races lost")
		// Gaps reach from many calls an emission interval to beyond a lease's life.
		longest := rapid.SampledFrom([]int64{10, 1000, 20_000, 300_000}).Draw(t, "longest gap")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))

		l := limit.Limit{Count: count, Window: window, Burst: burst}
		b := testRule(l, l)
		slots := newSlots()
		slots.before = func() bool { return random.IntN(100) < loss }
		engines := make([]*Engine, workers)
		for i := range engines {
			engines[i] = worker(slots, b)
		}
		now := limit.Micros(1_000_000)
		var admitted []limit.Micros
		for range 2000 {
			now += limit.Micros(random.Int64N(longest + 1))
			i := random.IntN(workers)
			if random.IntN(200) == 0 {
				b.Release++
				engines[i].Install(b, 0, 0)
			}
			if decide(engines[i], from("192.0.2.1:1", now)).Allowed {
				admitted = append(admitted, now)
			}
		}
		lease := int64(workers) * LeaseMax(l)
		// Over every pair of admissions i ≤ j: j-i+1 ≤ B + r·t + W × lease. In units of tokens × window, with the
		// most restrictive i so far carried along, this is one pass.
		least := int64(0)
		for j, at := range admitted {
			spent := func(n int) int64 { return int64(n)*int64(window) - int64(at)*count }
			if j == 0 || spent(j) < least {
				least = spent(j)
			}
			if over := spent(j+1) - least; over > (burst+lease)*int64(window) {
				t.Fatalf("%d admissions by %d µs are %d above the bound of %d + rate·t + %d",
					j+1, at, over/int64(window)-burst-lease, burst, lease)
			}
		}
		if len(admitted) == 0 {
			t.Fatal("nothing was ever admitted")
		}
	})
}

// The stated bound is one for every bucket: who holds a /48 is one client too, with the largest leases.
func TestTheStatedBoundHoldsForAWiderNetwork(t *testing.T) {
	b := testRule(per(50, 200), per(50, 200))
	b.Rule.OuterV6, b.Rule.OuterAnonymous, b.Rule.OuterValid = 48, per(800, 3200), per(800, 3200)
	e := worker(newSlots(), b)
	if got, want := e.OverAdmission(4), 4*LeaseMax(b.Rule.OuterAnonymous); got != want {
		t.Errorf("states %d, want %d", got, want)
	}
}

// The bound is worth stating only if leases are needed for it: workers that do not share admit W bursts.
func TestWorkersThatDoNotShareExceedTheBound(t *testing.T) {
	l, workers, admitted := per(1, 100), 4, int64(0)
	for range workers {
		e := worker(newSlots(), testRule(l, l))
		for range 200 {
			if decide(e, from("192.0.2.1:1", 0)).Allowed {
				admitted++
			}
		}
	}
	if bound := l.Burst + int64(workers)*LeaseMax(l); admitted*2 < bound*3 {
		t.Errorf("%d admitted, want 1.5 × the bound of %d and more", admitted, bound)
	}
}

// Workers whose leases expire unspent lose tokens: what a client is refused falsely is bounded too.
func TestFalseRefusalIsBoundedByTheLeases(t *testing.T) {
	l, workers := per(1000, 1000), 4
	slots := newSlots()
	engines := make([]*Engine, workers)
	for i := range engines {
		engines[i] = worker(slots, testRule(l, l))
	}
	admitted := 0
	for i := 0; ; i++ {
		if !decide(engines[i%workers], from("192.0.2.1:1", 0)).Allowed {
			break
		}
		admitted++
	}
	if least := int(l.Burst) - workers*int(LeaseMax(l)); admitted < least {
		t.Errorf("%d admitted of a burst of %d, want %d at least", admitted, l.Burst, least)
	}
}

func TestAHotAddressTouchesSharedDataRarely(t *testing.T) {
	slots := newSlots()
	e := worker(slots, testRule(per(10_000, 10_000), per(1, 1)))
	now := limit.Micros(0)
	calls := 5000 // a second's worth at half the rate
	for range calls {
		if !decide(e, from("192.0.2.1:1", now)).Allowed {
			t.Fatal("refused below the limit")
		}
		now += 200
	}
	// Leases of 1, 2, 4 … 256 to get going, then about 500 each, which is what 100 ms need at this pace.
	t.Logf("%d calls: %d reads, %d writes", calls, slots.gets, slots.sets)
	if slots.sets > 25 {
		t.Errorf("%d writes of shared data for %d calls, want 25 at most", slots.sets, calls)
	}
}

func TestARefusalWritesNothingAndIsReadOnce(t *testing.T) {
	slots := newSlots()
	e := worker(slots, testRule(per(1, 3), per(1, 3)))
	for decide(e, from("192.0.2.1:1", 0)).Allowed {
	}
	gets, sets := slots.gets, slots.sets
	first := decide(e, from("192.0.2.1:1", 0))
	for now := limit.Micros(0); now < limit.Second; now += 1000 {
		v := decide(e, from("192.0.2.1:1", now))
		if v.Allowed {
			t.Fatalf("admitted at %d", now)
		}
		if want := first.Decision.RetryAfter - now; v.Decision.RetryAfter != want {
			t.Fatalf("at %d: retry after %d, want %d", now, v.Decision.RetryAfter, want)
		}
		if want := 3*limit.Second - now; v.Decision.ResetAfter != want || v.Decision.Limit != 3 {
			t.Fatalf("at %d: %+v, want a reset after %d", now, v.Decision, want)
		}
	}
	if slots.gets != gets || slots.sets != sets {
		t.Errorf("1,000 refusals made %d reads and %d writes", slots.gets-gets, slots.sets-sets)
	}
	if decide(e, from("192.0.2.1:1", limit.Second-1)).Allowed {
		t.Error("let in 1 µs before Retry-After")
	}
	if !decide(e, from("192.0.2.1:1", limit.Second)).Allowed {
		t.Error("kept out at Retry-After")
	}
}

func TestLostRacesRefuseForASecondAndAreCounted(t *testing.T) {
	slots := newSlots()
	slots.before = func() bool { return true }
	e := worker(slots, testRule(per(10, 10), per(1, 1)))
	v := decide(e, from("192.0.2.1:1", 0))
	if v.Allowed || !v.Exhausted || v.Decision.RetryAfter != limit.Second {
		t.Errorf("got %+v, want refused for a second as exhausted", v)
	}
	if slots.sets != casTries {
		t.Errorf("%d tries, want %d", slots.sets, casTries)
	}
	slots.before = nil
	if v := decide(e, from("192.0.2.1:1", 1)); !v.Allowed {
		t.Errorf("the race is over, yet %+v", v)
	}
}

func TestALeaseDiesUnspent(t *testing.T) {
	slots := newSlots()
	e := worker(slots, testRule(per(1000, 1000), per(1, 1)))
	for range 4 { // leases of 1, 2, 4: two tokens of the last are left
		decide(e, from("192.0.2.1:1", 0))
	}
	sets := slots.sets
	if decide(e, from("192.0.2.1:1", LeaseLife-1)); slots.sets != sets {
		t.Error("a living lease was not spent")
	}
	if decide(e, from("192.0.2.1:1", LeaseLife)); slots.sets != sets+1 {
		t.Error("a dead lease was spent")
	}
}

func TestALeaseLeavesTheLastTokensToOthers(t *testing.T) {
	slots := newSlots()
	b := testRule(per(1, 800), per(1, 1)) // LeaseMax would be 1 at this rate
	b.Rule.Anonymous = limit.Limit{Count: 100_000, Window: limit.Second, Burst: 800}
	busy, other := worker(slots, b), worker(slots, b)
	for range 790 {
		decide(busy, from("192.0.2.1:1", 0))
	}
	if v := decide(other, from("192.0.2.1:1", 0)); !v.Allowed {
		t.Errorf("ten calls before the limit another worker was refused: %+v", v)
	}
}

func TestAPushKeepsBucketsAndNeverRefills(t *testing.T) {
	slots := newSlots()
	e := worker(slots, testRule(per(1, 10), per(1, 10)))
	drain := func(now limit.Micros) (admitted int) {
		for decide(e, from("192.0.2.1:1", now)).Allowed {
			admitted++
		}
		return admitted
	}
	if n := drain(0); n != 10 {
		t.Fatalf("%d admitted, want 10", n)
	}
	push := func(l limit.Limit) {
		b := testRule(l, l)
		b.Release++
		e.Install(b, 0, 0)
	}
	push(per(1, 100))
	if n := drain(0); n != 0 {
		t.Errorf("raising the limit let %d in at once", n)
	}
	push(per(100, 100))
	if n := drain(500 * limit.Millisecond); n != 0 {
		t.Errorf("%d admitted after half a second at 1 a second: the new rate counts from the first call that sees it", n)
	}
	if n := drain(600 * limit.Millisecond); n != 10 {
		t.Errorf("%d admitted after 100 ms at the raised rate, want 10", n)
	}
	if n := drain(3 * limit.Second); n != 100 {
		t.Errorf("%d admitted from a full bucket of 100", n)
	}
	push(per(1, 5))
	if n := drain(2 * limit.Minute); n != 5 {
		t.Errorf("%d admitted after lowering, want 5", n)
	}
}

// A larger table, which an operator pushes when an attack fills the old one, puts buckets elsewhere.
func TestAPushOfAnotherTableSizeRefillsNobody(t *testing.T) {
	for _, sizes := range [][2]uint32{{1 << 10, 1 << 14}, {1 << 14, 1 << 10}} {
		slots := newSlots()
		b := testRule(per(1, 10), per(1, 10))
		b.TableEntries = sizes[0]
		engines := []*Engine{worker(slots, b), worker(slots, b)}
		now := limit.Micros(limit.Hour)
		const clients = 100
		admitted := func() (n int) {
			for i := range clients {
				for decide(engines[i%2], from(fmt.Sprintf("192.0.2.%d:1", i), now)).Allowed {
					n++
				}
			}
			return n
		}
		if n := admitted(); n != clients*10 {
			t.Fatalf("%d admitted, want %d", n, clients*10)
		}
		b.Release, b.TableEntries = 2, sizes[1]
		for _, e := range engines {
			e.Install(b, now, 0)
		}
		now += 2 * limit.Second
		if n := admitted(); n != clients*2 {
			t.Errorf("from %d to %d entries: %d admitted 2 s later, want the %d that came since", sizes[0], sizes[1], n, clients*2)
		}
		engines[0], engines[1] = engines[1], engines[0]
		now += 20 * limit.Second
		if n := admitted(); n != clients*10 {
			t.Errorf("from %d to %d entries: %d admitted after a refill, want %d", sizes[0], sizes[1], n, clients*10)
		}
	}
}

func TestRulesOfOtherNamesShareNoBuckets(t *testing.T) {
	e := worker(newSlots(), testRule(per(1, 1), per(1, 1)))
	decide(e, from("192.0.2.1:1", 0))
	b := testRule(per(1, 1), per(1, 1))
	b.Rule.Name = "another"
	e.Install(b, 0, 0)
	if !decide(e, from("192.0.2.1:1", 0)).Allowed {
		t.Error("a rule of another name starts from a used bucket")
	}
}

func TestEntriesHoldNoMoreThan32Bytes(t *testing.T) {
	if size := unsafe.Sizeof(entry{}); size != 32 {
		t.Errorf("an entry of the local table has %d bytes", size)
	}
	e := worker(newSlots(), testRule(per(1, 1), per(1, 1)))
	if size := uintptr(len(e.local.sets)) * unsafe.Sizeof(e.local.sets[0]); size != 2<<20 {
		t.Errorf("the local table has %d bytes, want 2 MiB", size)
	}
	if setSize != 160 {
		t.Errorf("a slot has %d bytes, want 160", setSize)
	}
}

// A push while other workers still run the old release must not confuse either.
func TestTwoReleasesOverOneSlotStayWithinTheLargerBound(t *testing.T) {
	slots := newSlots()
	b := func(l limit.Limit) bundle.Bundle { return testRule(l, l) }
	old, young := worker(slots, b(per(10, 100))), worker(slots, b(per(10, 50)))
	admitted := 0
	for range 300 {
		for _, e := range []*Engine{old, young} {
			if decide(e, from("192.0.2.1:1", 0)).Allowed {
				admitted++
			}
		}
	}
	if admitted > 100 {
		t.Errorf("%d admitted, want 100 at most", admitted)
	}
}
