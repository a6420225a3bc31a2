// Package storetest is the suite that every store of counters passes.
package storetest

import (
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
	"github.com/weirproject/weir/shared/rule"
)

func lastOne(f *fixture, a rule.Algorithm) {
	for range 9 {
		f.mustTake(f.charge(1, a, 10, 1))
	}
	if n := parallel(100, func(int) bool { _, ok := f.take(f.charge(1, a, 10, 1)); return ok }); n != 1 {
		f.Errorf("%d of 100 parallel calls got the last one", n)
	}
	f.wantUsed(10, f.charge(1, a, 10, 1))
}

func refusalIsFree(f *fixture, a rule.Algorithm) {
	full, before, after := f.charge(1, a, 2, 1), f.charge(2, a, 100, 1), f.charge(3, a, 100, 1)
	f.mustTake(f.charge(1, a, 2, 2))
	f.writesNothing(func() {
		for range 20 {
			outcomes, ok := f.take(before, full, after)
			if ok || outcomes[0].Charged || outcomes[1].Charged || outcomes[2].Charged {
				f.Errorf("outcomes %+v", outcomes)
			}
			f.wantStatus(outcomes, limiter.Admitted, limiter.Refused, limiter.Admitted)
			if left := outcomes[0].Decision.Remaining; left != 100 {
				f.Errorf("a bystander's decision tells of %d left, want 100", left)
			}
		}
	})
	f.wantUsed(2, full)
	f.wantUsed(0, before, after)
	// A refused call of 5 with 2 left leaves 2.
	f.mustTake(f.charge(4, a, 10, 8))
	if _, ok := f.take(f.charge(4, a, 10, 5)); ok {
		f.Error("a call of 5 with 2 left was admitted")
	}
	f.wantUsed(8, f.charge(4, a, 10, 5))
}

func peekIsFree(f *fixture, a rule.Algorithm) {
	f.writesNothing(func() {
		for range 5 {
			if outcomes := f.mustTake(f.charge(1, a, 1, 0)); outcomes[0].Charged || outcomes[0].Made || outcomes[0].Decision.Remaining != 1 {
				f.Errorf("a peek at a counter never used: %+v", outcomes[0])
			}
		}
	})
	f.mustTake(f.charge(1, a, 1, 1))
	f.writesNothing(func() {
		if outcomes, ok := f.take(f.charge(1, a, 1, 0)); ok || outcomes[0].Decision.Remaining != 0 || outcomes[0].Charged {
			f.Errorf("a peek at a used-up limit: admitted %v, %+v", ok, outcomes)
		}
	})
}

// What a raised and a lowered limit make of a counter is for package limit to say: windows follow at once, buckets keep
// their level.
func changedLimit(f *fixture, a rule.Algorithm) {
	want := limittest.New(a.String(), limit.Limit{Count: 10, Window: long}, f.now, 0)
	for _, step := range []struct{ count, cost int64 }{{10, 10}, {10, 1}, {20, 1}, {5, 1}, {30, 1}, {30, 2}, {3, 0}, {0, 1}, {10, 1}} {
		c := f.charge(1, a, step.count, step.cost)
		outcomes, ok := f.take(c)
		d := want.Peek(c.Limit, f.now, 0)
		if c.Cost > 0 {
			d = want.Take(c.Limit, f.now, c.Cost)
		}
		if got := outcomes[0].Decision; ok != d.Allowed || got.Remaining != d.Remaining || f.At != nil && got != d {
			f.Errorf("cost %d under %d: admitted %v, %+v, package limit %+v", step.cost, step.count, ok, got, d)
		}
	}
}

func largest(f *fixture, a rule.Algorithm) {
	count := limit.MaxCount
	switch a {
	case rule.SlidingLog:
		count = limit.MaxLogCount
	case rule.SlidingWindow, rule.FixedWindow:
	default:
		f.virtual() // such a bucket gains 570 tokens a µs
	}
	f.mustTake(f.charge(1, a, count, count-1))
	if _, ok := f.take(f.charge(1, a, count, 2)); ok {
		f.Error("admitted above the largest limit")
	}
	f.mustTake(f.charge(1, a, count, 1))
	f.wantUsed(count, f.charge(1, a, count, 0))
}

func nothing(f *fixture, a rule.Algorithm) {
	f.writesNothing(func() {
		outcomes, ok := f.take(f.charge(1, a, 0, 1))
		if ok || outcomes[0].Charged || outcomes[0].Decision.RetryAfter != limit.Never {
			f.Errorf("a limit of 0: admitted %v, %+v", ok, outcomes)
		}
	})
}

func never(f *fixture, a rule.Algorithm) {
	f.writesNothing(func() {
		outcomes, ok := f.take(f.charge(1, a, 4, 5))
		if ok || outcomes[0].Status != limiter.Refused || outcomes[0].Decision.RetryAfter != limit.Never {
			f.Errorf("a cost of 5 under a limit of 4: admitted %v, %+v", ok, outcomes)
		}
	})
	f.mustTake(f.charge(1, a, 4, 4))
}

// next: what an outcome says of the calls after it.
func next(f *fixture, a rule.Algorithm) {
	for left := int64(2); left >= 0; left-- {
		o := f.mustTake(f.charge(1, a, 3, 1))[0]
		if !o.Charged || !o.Decision.Allowed || o.Decision.Limit != 3 || o.Decision.Remaining != left || o.Decision.RetryAfter != 0 {
			f.Errorf("with %d left: %+v", left, o)
		}
		if o.Next.Allowed != (left > 0) || o.Next.Remaining != left || o.AskAgain < 0 || o.AskAgain > o.Next.RetryAfter || (o.AskAgain == 0) != (left > 0) {
			f.Errorf("with %d left, of what comes next: %+v", left, o)
		}
		if f.At != nil && (o.At != f.now+o.Decision.Hold || o.Next != f.peek(f.charge(1, a, 3, 1))) {
			f.Errorf("with %d left at %d: %+v", left, f.now, o)
		}
	}
	outcomes, ok := f.take(f.charge(1, a, 3, 1))
	o := outcomes[0]
	if ok || o.Decision.RetryAfter <= 0 || o.Decision.RetryAfter > 2*long || o.AskAgain <= 0 || o.AskAgain > o.Decision.RetryAfter {
		f.Errorf("a refusal: %+v", o)
	}
}
