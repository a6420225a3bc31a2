package storetest

import (
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/rule"
)

// A value that is no counter stops its own call, charges nobody, and disturbs no other.
func foreign(f *fixture, a rule.Algorithm) {
	if len(f.Foreign) == 0 {
		f.Skip("nobody else writes into the store")
	}
	n := 0
	for kind, spoil := range f.Foreign {
		spoilt, good, full := f.charge(n, a, 10, 1), f.charge(n+1, a, 10, 2), f.charge(n+2, a, 10, 1)
		n += 3
		f.mustTake(f.charge(n-1, a, 10, 10))
		spoil(f.T, f.store, spoilt)
		for range 2 {
			outcomes, ok := f.take(good, spoilt, full)
			f.wantStatus(outcomes, limiter.Admitted, limiter.Foreign, limiter.Refused)
			if ok || outcomes[0].Charged || outcomes[1].Charged {
				f.Errorf("%s: admitted %v, %+v", kind, ok, outcomes)
			}
		}
		outcomes, _ := f.take(good, spoilt)
		f.wantStatus(outcomes, limiter.Admitted, limiter.Foreign)
		f.wantUsed(0, good)
		outcomes, _ = f.take(shadowed(spoilt), good)
		f.wantStatus(outcomes, limiter.Foreign, limiter.Admitted)
		f.wantUsed(2, good)
		asks := spoilt
		asks.Cost = 0
		outcomes, _ = f.take(asks)
		f.wantStatus(outcomes, limiter.Foreign)
		f.refund(noID, []limiter.Charge{spoilt, good}, []limiter.Outcome{{Charged: true, At: f.now}, {Status: limiter.Foreign}})
		outcomes, _ = f.take(onlyIfThere(spoilt))
		f.wantStatus(outcomes, limiter.Foreign)
		f.wantUsed(2, good)
		f.reset(spoilt)
		if o := f.mustTake(spoilt); !o[0].Made || o[0].Decision.Remaining != 9 {
			f.Errorf("%s, after a reset: %+v", kind, o)
		}
	}
}
