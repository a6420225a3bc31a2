package storetest

import (
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
	"github.com/weirproject/weir/shared/rule"
)

// newModel is a counter of package limit that does what c asks for.
func newModel(c limiter.Charge, now limit.Micros) limittest.Counter {
	return limittest.New(c.Algorithm.String(), c.Limit, now, c.Offset)
}

// hourly is a charge of counter n whose limit is 7 an hour.
func (f *fixture) hourly(n int, a rule.Algorithm, cost int64) limiter.Charge {
	return limiter.Charge{Counter: f.charge(n, a, 7, cost).Counter, Algorithm: a, Limit: limit.Limit{Count: 7, Window: limit.Hour}, Cost: cost}
}

// The same call is admitted after the wait that it was told, and refused 1 µs earlier.
func exactWait(f *fixture, a rule.Algorithm) {
	f.virtual()
	for n, cost := range []int64{1, 2, 3, 7} {
		c := f.hourly(n, a, cost)
		f.now = start + limit.Micros(n)*limit.Minute + 12_345_677
		for _, before := range []int64{3, 2, 2} {
			f.mustTake(f.hourly(n, a, before))
			f.now += 123_457
		}
		for range 5 {
			outcomes, ok := f.take(c)
			if wait := outcomes[0].Decision.RetryAfter; !ok {
				f.now += wait - 1
				if early, ok := f.take(c); ok || early[0].Decision.RetryAfter != 1 {
					f.Errorf("cost %d, 1 µs before the wait of %d µs is over: admitted %v, %+v", cost, wait, ok, early)
				}
				f.now++
				f.mustTake(c)
			}
		}
	}
}

// A counter equals one never used after its ResetAfter, and not before.
func expires(f *fixture, a rule.Algorithm) {
	f.virtual()
	f.now = start + 17*limit.Minute
	o := f.mustTake(f.hourly(1, a, 4))[0]
	f.now += o.Decision.ResetAfter - 1
	if d := f.peek(f.hourly(1, a, 0)); d.Remaining == 7 || d.ResetAfter != 1 {
		f.Errorf("1 µs before it is fresh: %+v", d)
	}
	f.now++
	if d := f.peek(f.hourly(1, a, 0)); d.Remaining != 7 || d.ResetAfter != 0 {
		f.Errorf("when it is fresh: %+v", d)
	}
	f.mustTake(f.hourly(1, a, 7))
	f.wantUsed(7, f.hourly(1, a, 0))
}
