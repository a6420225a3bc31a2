package storetest

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// start is the instant that stores with a clock of ours begin at: a window of an hour begins there.
const start limit.Micros = 500_000 * limit.Hour

// long is a window that no run crosses by accident, on a store's own clock either: see [Suite.At].
const long = limit.MaxWindow / 2

// Name is the n-th of names that all differ, spread over shards as real ones are; all belong to one rule.
func Name(n int) (c limiter.Counter) {
	copy(c[:], "w1:{0000}:storetest-r")
	var h [16]byte
	binary.LittleEndian.PutUint64(h[:], uint64(n)*0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(h[8:], uint64(n+1)*0xbf58476d1ce4e5b9)
	base64.RawURLEncoding.Encode(c[len(c)-22:], h[:])
	return c
}

// ID is the n-th of call ids that all differ, none of them zero.
func ID(n int) (id limiter.CallID) {
	binary.BigEndian.PutUint64(id[:], uint64(n+1)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(id[8:], uint64(n+1))
	return id
}

// fixture is a store in a test.
type fixture struct {
	Suite
	*testing.T
	store limiter.Store
	now   limit.Micros
}

func (s Suite) fixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{Suite: s, T: t, store: s.Open(t), now: start}
}

// charge asks for cost from counter n, whose limit is count in a long window.
func (f *fixture) charge(n int, a rule.Algorithm, count, cost int64) limiter.Charge {
	c := limiter.Charge{Counter: Name(n), Algorithm: a, Limit: limit.Limit{Count: count, Window: long}, Cost: cost}
	if f.Spread {
		const digits = "0123456789abcdef"
		for i, h := 0, uint32(n+1)*0x9e3779b1; i < 4; i++ {
			c.Counter[len("w1:{")+i] = digits[h>>(28-4*i)&15]
		}
	}
	return c
}

func shadowed(c limiter.Charge) limiter.Charge {
	c.Shadow = true
	return c
}

func onlyIfThere(c limiter.Charge) limiter.Charge {
	c.Existing = true
	return c
}

func (f *fixture) context() context.Context {
	if f.At == nil {
		return context.Background()
	}
	return f.At(context.Background(), f.store, f.now)
}

// take makes one call and tells whether its enforced charges were admitted as a whole.
func (f *fixture) take(charges ...limiter.Charge) ([]limiter.Outcome, bool) {
	f.Helper()
	return f.takeAs(limiter.CallID{}, charges...)
}

// takeAs is take of a call with an id.
func (f *fixture) takeAs(id limiter.CallID, charges ...limiter.Charge) ([]limiter.Outcome, bool) {
	f.Helper()
	outcomes := make([]limiter.Outcome, len(charges))
	for i := range outcomes { // whatever stood there before is not the store's answer
		outcomes[i] = limiter.Outcome{Status: limiter.Lost, Charged: true, Made: true, At: -1, AskAgain: -1}
	}
	if err := f.store.Take(f.context(), &limiter.Call{Now: f.now, ID: id, Charges: charges, Outcomes: outcomes}); err != nil {
		f.Errorf("take: %v", err)
		return outcomes, false
	}
	admitted := true
	for i, o := range outcomes {
		admitted = admitted && (charges[i].Shadow || o.Status == limiter.Admitted)
	}
	return outcomes, admitted
}

// mustTake is take of a call that is to be admitted.
func (f *fixture) mustTake(charges ...limiter.Charge) []limiter.Outcome {
	f.Helper()
	outcomes, ok := f.take(charges...)
	if !ok {
		f.Fatalf("refused: %+v", outcomes)
	}
	return outcomes
}

func (f *fixture) refund(id limiter.CallID, charges []limiter.Charge, outcomes []limiter.Outcome) {
	f.Helper()
	if err := f.store.Refund(f.context(), &limiter.Call{Now: f.now, ID: id, Charges: charges, Outcomes: outcomes}); err != nil {
		f.Errorf("refund: %v", err)
	}
}

func (f *fixture) reset(charges ...limiter.Charge) {
	f.Helper()
	if err := f.store.Reset(f.context(), &limiter.Call{Now: f.now, Charges: charges, Outcomes: make([]limiter.Outcome, len(charges))}); err != nil {
		f.Errorf("reset: %v", err)
	}
}

// peek is how c's counter stands.
func (f *fixture) peek(c limiter.Charge) limit.Decision {
	f.Helper()
	c.Cost, c.Shadow, c.Existing = 0, false, false
	outcomes, _ := f.take(c)
	return outcomes[0].Decision
}

// used is what c's counter holds, at most its limit.
func (f *fixture) used(c limiter.Charge) int64 {
	f.Helper()
	d := f.peek(c)
	return d.Limit - d.Remaining
}

// wantUsed checks what counters hold.
func (f *fixture) wantUsed(want int64, charges ...limiter.Charge) {
	f.Helper()
	for _, c := range charges {
		if got := f.used(c); got != want {
			f.Errorf("counter %s holds %d, want %d", c.Counter, got, want)
		}
	}
}

// wantStatus checks the statuses of outcomes.
func (f *fixture) wantStatus(outcomes []limiter.Outcome, want ...limiter.Status) {
	f.Helper()
	for i, o := range outcomes {
		if o.Status != want[i] {
			f.Errorf("charge %d has status %d, want %d: %+v", i, o.Status, want[i], o)
		}
	}
}

// writesNothing checks that act leaves the store as it is, as far as it can be looked into.
func (f *fixture) writesNothing(act func()) {
	f.Helper()
	if f.Contents == nil {
		act()
		return
	}
	before := f.Contents(f.T, f.store)
	act()
	if after := f.Contents(f.T, f.store); !maps.Equal(before, after) {
		f.Errorf("the store was written to:\nbefore %q\nafter  %q", before, after)
	}
}

// virtual skips what needs a clock of the test's.
func (f *fixture) virtual() {
	f.Helper()
	if f.At == nil {
		f.Skip("the store goes by its own clock")
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
