package limit

// LeakyQueue is the state of a leaky bucket as a queue, a shaper: an admitted call is told how long to wait before it may
// leave ([Decision.Hold]), so that the calls that leave never come faster than Count per Window. The queue is bounded by
// [Limit.Capacity], the call that leaves included, and a call that finds it full is refused. Verdicts are a
// [LeakyBucket]'s; a call is held until what was in the bucket before it has drained.
//
// In any interval t what leaves is at most one call and what the rate brings in t + 1 µs, since a call leaves on a whole µs.
//
// A changed limit keeps the queue. Calls that were told when to leave do so; those that come after wait for the rest of the
// queue at the new rate. The zero value is an empty queue, a counter that was never used.
type LeakyQueue struct {
	Level int64  // cost that has not left, rounded up
	Part  int64  // numerator over Window of what has left of the last whole unit, 0 to Window-1
	Last  Micros // instant that the level stands for; it moves as a token bucket's
	Count int64  // the count of the limit that the time since Last passed under; 0: that of the limit at hand
}

// Take charges cost at now and says how long to hold the call. It returns the state to keep: the charged one when admitted;
// otherwise s unchanged, except that a Last beyond the bound of a clock step is re-anchored, and a state of another count is
// measured by this one. Cost 0 is a peek for cost 1. A cost outside [CheckCost] is refused as [Never] and changes nothing.
func (s LeakyQueue) Take(l Limit, now Micros, cost int64) (LeakyQueue, Decision) {
	next, d := LeakyBucket(s).Take(l, now, cost)
	if d.Allowed {
		d.Hold = LeakyBucket(s).EmptyAfter(l, now)
	}
	return LeakyQueue(next), d
}

// Peek tells what Take would answer, with Remaining and ResetAfter as they stand before the charge. Cost 0 asks for
// cost 1, so that a queue which is just full says refused.
func (s LeakyQueue) Peek(l Limit, now Micros, cost int64) Decision {
	d := LeakyBucket(s).Peek(l, now, cost)
	if d.Allowed {
		d.Hold = d.ResetAfter
	}
	return d
}

// Refund takes a call out of the queue that was told to leave at the instant leaves and did not. It gives the call's place
// back if that is still the last: calls behind it were told theirs, and a second call in one place would leave faster than
// the rate.
func (s LeakyQueue) Refund(l Limit, now Micros, cost int64, leaves Micros) LeakyQueue {
	if CheckCost(cost) != nil || cost == 0 || l.Count == 0 {
		return s
	}
	room, _ := LeakyBucket(s).room(l, now)
	at := leaky(l, room)
	if at.lastLeaves(l, cost) != leaves {
		return s
	}
	return LeakyQueue(leaky(l, room.refund(l, cost)))
}

// EmptyAfter is the time until the queue is empty, 0 when it is; [Never] for a limit that does not drain.
func (s LeakyQueue) EmptyAfter(l Limit, now Micros) Micros {
	return LeakyBucket(s).EmptyAfter(l, now)
}

// lastLeaves is when the last call in the queue leaves, or left, if its cost is cost: Last + ceil(((Level-cost)·Window -
// Part) / Count) of a settled state, which may be in the past.
func (s LeakyBucket) lastLeaves(l Limit, cost int64) Micros {
	window, count := uint64(l.Window), uint64(l.Count)
	if s.Level > cost || s.Level == cost && s.Part == 0 {
		return add(s.Last, roundUp(mulSubDiv(uint64(s.Level-cost), window, uint64(s.Part), count)))
	}
	ago, _, ok := mulAddDiv(uint64(cost-s.Level), window, uint64(s.Part), count)
	if !ok || ago > uint64(Never) {
		return -Never
	}
	return sub(s.Last, Micros(ago))
}
