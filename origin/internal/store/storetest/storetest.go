// Package storetest is the suite that every store of counters passes.
package storetest

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// start is the instant that stores with a clock of ours begin at; a window of an hour begins there.
const start limit.Micros = 500_000 * limit.Hour

// window is one that no test run crosses by accident, on a store's own clock either: see [Run].
const window = limit.MaxWindow / 2

// Run runs the suite on stores that open makes, each empty. They may decide by their own clock: all windows here are
// half a year long. A run that happens to cross such a window's edge fails, once in that time.
func Run(t *testing.T, open func(t *testing.T) limiter.Store) {
	for name, test := range map[string]func(*testing.T, limiter.Store){
		"one of a hundred parallel calls gets the last one": lastOne,
		"a refusal charges no rule":                         refusalIsFree,
		"a peek charges nothing":                            peekIsFree,
		"a changed limit applies at the next call":          changedLimit,
		"different names are different counters":            namesApart,
		"many rules are decided in one step":                manyRules,
		"parallel calls over several rules admit exactly":   parallelRules,
		"the largest numbers are exact":                     largest,
		"a limit of nothing refuses":                        nothing,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// Name is the n-th of names that all differ, spread over shards as real ones are; all belong to one rule.
func Name(n int) (c limiter.Counter) {
	copy(c[:], "w1:{0000}:storetest-r")
	var h [16]byte
	binary.LittleEndian.PutUint64(h[:], uint64(n)*0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(h[8:], uint64(n+1)*0xbf58476d1ce4e5b9)
	base64.RawURLEncoding.Encode(c[len(c)-22:], h[:])
	return c
}

func charge(n int, count, cost int64) limiter.Charge {
	return limiter.Charge{Counter: Name(n), Algorithm: rule.SlidingWindow, Limit: limit.Limit{Count: count, Window: window}, Cost: cost}
}

// take makes one call and tells whether it was admitted as a whole.
func take(t testing.TB, s limiter.Store, charges ...limiter.Charge) ([]limiter.Outcome, bool) {
	t.Helper()
	outcomes := make([]limiter.Outcome, len(charges))
	if err := s.Take(context.Background(), &limiter.Call{Now: start, Charges: charges, Outcomes: outcomes}); err != nil {
		t.Error(err)
		return outcomes, false
	}
	for _, o := range outcomes {
		if o.Status != limiter.Admitted {
			return outcomes, false
		}
	}
	return outcomes, true
}

// used is what a counter holds.
func used(t testing.TB, s limiter.Store, n int) int64 {
	t.Helper()
	outcomes, _ := take(t, s, charge(n, limit.MaxCount, 0))
	return limit.MaxCount - outcomes[0].Decision.Remaining
}

func lastOne(t *testing.T, s limiter.Store) {
	for range 9 {
		if _, ok := take(t, s, charge(1, 10, 1)); !ok {
			t.Fatal("refused below the limit")
		}
	}
	if n := parallel(100, func(int) bool { _, ok := take(t, s, charge(1, 10, 1)); return ok }); n != 1 {
		t.Errorf("%d of 100 parallel calls got the last one", n)
	}
}

// parallel runs n calls at once and counts those that say yes.
func parallel(n int, call func(i int) bool) int64 {
	var yes atomic.Int64
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-gate
			if call(i) {
				yes.Add(1)
			}
		})
	}
	close(gate)
	wg.Wait()
	return yes.Load()
}

func refusalIsFree(t *testing.T, s limiter.Store) {
	take(t, s, charge(1, 2, 2))
	for range 20 {
		outcomes, ok := take(t, s, charge(2, 100, 1), charge(1, 2, 1), charge(3, 100, 1))
		if ok || outcomes[0].Status != limiter.Admitted || outcomes[1].Status != limiter.Refused || outcomes[2].Status != limiter.Admitted {
			t.Fatalf("outcomes %+v", outcomes)
		}
	}
	if used(t, s, 1) != 2 || used(t, s, 2) != 0 || used(t, s, 3) != 0 {
		t.Errorf("after 20 refusals the counters hold %d, %d, %d, want 2, 0, 0", used(t, s, 1), used(t, s, 2), used(t, s, 3))
	}
	// A refused call of 5 with 2 left leaves 2.
	take(t, s, charge(4, 10, 8))
	if _, ok := take(t, s, charge(4, 10, 5)); ok || used(t, s, 4) != 8 {
		t.Errorf("a call of 5 with 2 left: admitted %v, %d used", ok, used(t, s, 4))
	}
}

func peekIsFree(t *testing.T, s limiter.Store) {
	for range 5 {
		if _, ok := take(t, s, charge(1, 1, 0)); !ok {
			t.Fatal("a peek at a free limit was refused")
		}
	}
	take(t, s, charge(1, 1, 1))
	if outcomes, ok := take(t, s, charge(1, 1, 0)); ok || outcomes[0].Decision.Remaining != 0 {
		t.Errorf("a peek at a used-up limit: %v, %+v", ok, outcomes)
	}
}

func changedLimit(t *testing.T, s limiter.Store) {
	take(t, s, charge(1, 10, 10))
	if _, ok := take(t, s, charge(1, 10, 1)); ok {
		t.Error("admitted above the limit")
	}
	if _, ok := take(t, s, charge(1, 20, 1)); !ok {
		t.Error("refused under a raised limit")
	}
	if _, ok := take(t, s, charge(1, 5, 1)); ok || used(t, s, 1) != 11 {
		t.Errorf("under a lowered limit: admitted %v, %d used, want 11", ok, used(t, s, 1))
	}
}

func namesApart(t *testing.T, s limiter.Store) {
	for n := range 500 {
		if _, ok := take(t, s, charge(n, 1, 1)); !ok {
			t.Fatalf("counter %d was used up by another's call", n)
		}
	}
	for n := range 500 {
		if used(t, s, n) != 1 {
			t.Fatalf("counter %d holds %d", n, used(t, s, n))
		}
	}
}

func manyRules(t *testing.T, s limiter.Store) {
	var charges []limiter.Charge
	for n := range 20 {
		charges = append(charges, charge(n, int64(n+1), 1))
	}
	if outcomes, ok := take(t, s, charges...); !ok {
		t.Fatalf("outcomes %+v", outcomes)
	}
	outcomes, ok := take(t, s, charges...)
	if ok {
		t.Fatal("a used-up rule among twenty let the call pass")
	}
	for n, o := range outcomes {
		if (o.Status == limiter.Refused) != (n == 0) || o.Decision.Remaining != int64(n) {
			t.Errorf("rule %d: %+v", n, o)
		}
	}
}

// Callers of overlapping rules in different orders: what is admitted is exact, nothing is charged twice, nobody waits
// for ever.
func parallelRules(t *testing.T, s limiter.Store) {
	admitted := parallel(60, func(i int) bool {
		charges := []limiter.Charge{charge(1, 40, 1), charge(2+i%3, 15, 1)}
		if i%2 == 1 {
			charges[0], charges[1] = charges[1], charges[0]
		}
		_, ok := take(t, s, charges...)
		return ok
	})
	if admitted != 40 || used(t, s, 1) != 40 || used(t, s, 2)+used(t, s, 3)+used(t, s, 4) != 40 {
		t.Errorf("admitted %d of 60 at a limit of 40; counters hold %d and %d, %d, %d", admitted, used(t, s, 1), used(t, s, 2), used(t, s, 3), used(t, s, 4))
	}
}

func largest(t *testing.T, s limiter.Store) {
	if _, ok := take(t, s, charge(1, limit.MaxCount, limit.MaxCount-1)); !ok {
		t.Error("refused below the largest limit")
	}
	if _, ok := take(t, s, charge(1, limit.MaxCount, 2)); ok {
		t.Error("admitted above the largest limit")
	}
	if _, ok := take(t, s, charge(1, limit.MaxCount, 1)); !ok || used(t, s, 1) != limit.MaxCount {
		t.Errorf("the last one of 2^53-1: admitted %v, %d used", ok, used(t, s, 1))
	}
}

func nothing(t *testing.T, s limiter.Store) {
	if _, ok := take(t, s, charge(1, 0, 1)); ok || used(t, s, 1) != 0 {
		t.Errorf("a limit of 0 admitted %v, %d used", ok, used(t, s, 1))
	}
}
