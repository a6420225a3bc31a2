package storetest

import (
	"sync/atomic"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

func repeated(f *fixture, a rule.Algorithm) {
	one, two, beside := f.charge(1, a, 10, 3), f.charge(2, a, 10, 2), shadowed(f.charge(3, a, 10, 1))
	charges := []limiter.Charge{one, beside, two}
	outcomes, ok := f.takeAs(ID(1), charges...)
	if !ok || !outcomes[0].Charged || !outcomes[1].Charged || !outcomes[2].Charged {
		f.Fatalf("the first time: admitted %v, %+v", ok, outcomes)
	}
	f.mustTake(f.charge(1, a, 10, 7)) // somebody else uses the counter up
	f.writesNothing(func() {
		for range 3 {
			again, ok := f.takeAs(ID(1), charges...)
			if !ok || !again[0].Decision.Allowed || again[0].Decision.Remaining != 0 || again[2].Decision.Remaining != 8 {
				f.Errorf("a repeat: admitted %v, %+v", ok, again)
			}
			for i, o := range again {
				if o.Charged || o.Made {
					f.Errorf("charge %d of a repeat: %+v", i, o)
				}
			}
		}
	})
	f.wantUsed(10, one)
	f.wantUsed(2, two)
	f.wantUsed(1, beside)
	if _, ok := f.takeAs(ID(2), charges...); ok {
		f.Error("another call passed for the first one")
	}
	other, ok := f.takeAs(ID(3), two)
	if !ok || !other[0].Charged {
		f.Errorf("another call: admitted %v, %+v", ok, other)
	}
	f.wantUsed(4, two)
	// Given back, it is a call that was never made.
	f.refund(ID(3), []limiter.Charge{two}, other)
	f.wantUsed(2, two)
	if again, ok := f.takeAs(ID(3), two); !ok || !again[0].Charged {
		f.Errorf("a call that was given back, again: admitted %v, %+v", ok, again)
	}
	f.wantUsed(4, two)
}

// givenBackBesideShadows: what is given back of a call is what it was charged, which leaves out shadow charges that were
// refused. That forgets the call as well.
func givenBackBesideShadows(f *fixture, a rule.Algorithm) {
	beside, c := shadowed(f.charge(1, a, 1, 2)), f.charge(2, a, 10, 3)
	copy(beside.Counter[:], "w1:{ffff}:") // of another kind of principal
	for range 2 {
		outcomes, ok := f.takeAs(ID(1), beside, c)
		if !ok || outcomes[0].Charged || !outcomes[1].Charged {
			f.Fatalf("admitted %v, %+v", ok, outcomes)
		}
		f.wantUsed(3, c)
		f.refund(ID(1), []limiter.Charge{c}, outcomes[1:])
		f.wantUsed(0, c)
	}
}

// shadowsRepeated: shadow charges that share no slot with an enforced one are a call of their own.
func shadowsRepeated(f *fixture, a rule.Algorithm) {
	one, two := shadowed(f.charge(1, a, 10, 3)), shadowed(f.charge(2, a, 1, 2))
	for i := range 3 {
		o, _ := f.takeAs(ID(1), one, two)
		if o[0].Status != limiter.Admitted || o[0].Charged != (i == 0) || o[1].Charged {
			f.Errorf("call %d: %+v", i, o)
		}
	}
	f.wantUsed(3, one)
	f.wantUsed(0, two)
	if o, _ := f.takeAs(ID(2), one); !o[0].Charged {
		f.Errorf("another call: %+v", o)
	}
}

func notRemembered(f *fixture, a rule.Algorithm) {
	c := f.charge(1, a, 3, 1)
	f.writesNothing(func() {
		f.takeAs(ID(1), f.charge(1, a, 3, 0)) // asks alone
	})
	f.mustTake(f.charge(1, a, 3, 3))
	f.writesNothing(func() {
		if _, ok := f.takeAs(ID(1), c); ok {
			f.Error("a call at the limit was admitted")
		}
	})
	f.reset(c)
	if o, ok := f.takeAs(ID(1), c); !ok || !o[0].Charged {
		f.Errorf("after a refusal, the same call: admitted %v, %+v", ok, o)
	}
}

func parallelRepeats(f *fixture, a rule.Algorithm) {
	for round := range 5 {
		var charged atomic.Int64
		c, d := f.charge(2*round, a, 3, 3), f.charge(2*round+1, a, 50, 2)
		admitted := parallel(30, func(int) bool {
			outcomes, ok := f.takeAs(ID(round), c, d)
			if outcomes[0].Charged != outcomes[1].Charged {
				f.Errorf("half charged: %+v", outcomes)
			}
			if outcomes[0].Charged {
				charged.Add(1)
			}
			return ok
		})
		if admitted != 30 || charged.Load() != 1 {
			f.Errorf("of 30 parallel repeats %d were admitted and %d charged, want all and one", admitted, charged.Load())
		}
		f.wantUsed(3, c)
		f.wantUsed(2, d)
	}
}

// minute: an id is remembered from its admission on for [limiter.IDKept], whatever comes between.
func minute(f *fixture, a rule.Algorithm) {
	if !f.RemembersByAt {
		f.Skip("the store forgets ids by its own clock")
	}
	c := f.charge(1, a, 10, 1)
	for _, at := range []struct {
		after   limit.Micros
		charged bool
	}{{0, true}, {1, false}, {limiter.IDKept - 1, false}, {limiter.IDKept, true}, {2*limiter.IDKept - 1, false}, {2 * limiter.IDKept, true}} {
		f.now = start + at.after
		if o, ok := f.takeAs(ID(1), c); !ok || o[0].Charged != at.charged {
			f.Errorf("after %d µs: admitted %v, %+v, want charged %v", at.after, ok, o, at.charged)
		}
	}
	f.wantUsed(3, c)
}
