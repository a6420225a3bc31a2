package storetest

import (
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

var noID limiter.CallID

func refund(f *fixture, a rule.Algorithm) {
	first, second, other := f.charge(1, a, 10, 3), f.charge(1, a, 10, 2), f.charge(2, a, 10, 4)
	one := f.mustTake(first)
	two := f.mustTake(second, other)
	f.wantUsed(5, first)
	f.refund(noID, []limiter.Charge{second, other}, two)
	f.wantUsed(3, first)
	f.wantUsed(0, other)
	f.refund(noID, []limiter.Charge{first}, one)
	f.wantUsed(0, first)
	// No more than is owed: the counter has room for its limit, and not for one more.
	f.refund(noID, []limiter.Charge{first}, one)
	f.refund(noID, []limiter.Charge{second, other}, two)
	f.mustTake(f.charge(1, a, 10, 10))
	if _, ok := f.take(f.charge(1, a, 10, 1)); ok {
		f.Error("refunds beyond what was charged made room above the limit")
	}
}

func refundMakesNone(f *fixture, a rule.Algorithm) {
	c := f.charge(1, a, 10, 3)
	outcomes := f.mustTake(c)
	f.reset(c)
	f.writesNothing(func() {
		f.refund(noID, []limiter.Charge{c}, outcomes)
		f.refund(noID, []limiter.Charge{f.charge(2, a, 10, 1)}, []limiter.Outcome{{Charged: true, At: outcomes[0].At}})
	})
	if o := f.mustTake(c); !o[0].Made || o[0].Decision.Remaining != 7 {
		f.Errorf("after a refund without a counter: %+v", o)
	}
}

func refundOfNothing(f *fixture, a rule.Algorithm) {
	c, full := f.charge(1, a, 10, 2), f.charge(2, a, 1, 1)
	f.mustTake(c)
	f.mustTake(full)
	charges := []limiter.Charge{c, full, f.charge(3, a, 10, 0)}
	refused, ok := f.take(charges...)
	if ok {
		f.Fatal("admitted above the limit")
	}
	f.writesNothing(func() { f.refund(noID, charges, refused) })
	f.wantUsed(2, c)
	f.wantUsed(1, full)
}

// A refund comes with the limit of its charge. What it leaves as it is, by which a queue is what it was, lasts by the limit
// of later charges, however soon it would be over by that of the first one.
func refundAfterLowered(f *fixture, a rule.Algorithm) {
	f.virtual()
	by := func(count int64) limiter.Charge {
		c := f.charge(1, a, 0, 1)
		c.Limit = limit.Limit{Count: count, Window: limit.Hour}
		return c
	}
	f.now = start
	high, low := by(8), by(2)
	if a.HasBurst() {
		high.Limit.Burst, low.Limit.Burst = 2, 2
	}
	want := newModel(high, f.now)
	first := f.mustTake(high)
	want.Take(high.Limit, f.now, 1)
	f.mustTake(low)
	want.Take(low.Limit, f.now, 1)
	f.refund(noID, []limiter.Charge{high}, first)
	want.Refund(high.Limit, f.now, 1, first[0].At)
	for range 8 {
		f.now += limit.Hour / 10
		if got, d := f.peek(low), want.Peek(low.Limit, f.now, 0); got != d {
			f.Errorf("%d µs on: %+v, package limit %+v", f.now-start, got, d)
		}
	}
}

func reset(f *fixture, a rule.Algorithm) {
	one, two, other := f.charge(1, a, 10, 10), f.charge(2, a, 10, 3), f.charge(3, a, 10, 1)
	f.mustTake(one, two, other)
	f.reset(one, two, f.charge(4, a, 10, 1))
	f.wantUsed(0, one, two)
	f.wantUsed(1, other)
	if o := f.mustTake(one, two); !o[0].Made || !o[1].Made || o[0].Decision.Remaining != 0 {
		f.Errorf("after a reset: %+v", o)
	}
}

func refundIntoWindow(f *fixture, a rule.Algorithm) {
	f.virtual()
	hour := limit.Limit{Count: 10, Window: limit.Hour}
	c := limiter.Charge{Counter: f.charge(1, a, 10, 4).Counter, Algorithm: a, Limit: hour, Cost: 4}
	more := c
	more.Cost = 5
	f.now = start + limit.Hour - 1
	outcomes := f.mustTake(c)
	f.mustTake(more)
	// want is what a counter of package limit makes of the same.
	want := func(at limit.Micros) int64 {
		w := newModel(c, start+limit.Hour-1)
		w.Take(hour, start+limit.Hour-1, 4)
		w.Take(hour, start+limit.Hour-1, 5)
		w.Refund(hour, at, 4, outcomes[0].At)
		return 10 - w.Peek(hour, at, 0).Remaining
	}
	f.now = start + limit.Hour + limit.Minute // in the next window
	f.refund(noID, []limiter.Charge{c}, outcomes)
	f.wantUsed(want(f.now), c)
	if a == rule.SlidingWindow && f.used(c) != 5 || a == rule.FixedWindow && f.used(c) != 0 {
		f.Errorf("a refund in the next window leaves %d used", f.used(c))
	}
	// Long after, nothing of it is owed, and it is not taken from what is.
	f.now = start + 100*limit.Hour
	late := f.mustTake(more)
	f.refund(noID, []limiter.Charge{c}, outcomes)
	if a == rule.SlidingWindow || a == rule.FixedWindow || a == rule.SlidingLog || a == rule.LeakyQueue {
		f.wantUsed(5, c)
		f.refund(noID, []limiter.Charge{more}, late)
		f.wantUsed(0, c)
	}
}
