package limit

// LeakyBucket is the state of a leaky bucket as a meter: each call pours its cost in, the level drains by Count per Window,
// and a call that would overflow [Limit.Capacity] is refused. It is a token bucket seen from the other side, with the same
// verdicts: its level is what a token bucket lacks to be full.
//
// A changed limit keeps the level. Raised, there is room at once; lowered, the level drains at the new rate until it is
// below the new capacity, where a token bucket would cut it there. The time since Last counts at Count, as a token bucket's.
// What would take longer than [MaxRefill] to drain is cut.
//
// The level is Level - Part/Window as of Last. The zero value is an empty bucket, a counter that was never used.
//
// Formula: level(now) = max(0, level(Last) - (now-Last)·Count/Window) (Turner 1986, "New directions in communications").
type LeakyBucket struct {
	Level int64  // the level, rounded up
	Part  int64  // numerator over Window of what has drained of the last whole unit, 0 to Window-1
	Last  Micros // instant that the level stands for; it moves as a token bucket's
	Count int64  // the count of the limit that the time since Last passed under; 0: that of the limit at hand
}

// Take charges cost at now. It returns the state to keep: the charged one when admitted; otherwise s unchanged, except
// that a Last beyond the bound of a clock step is re-anchored, and a state of another count is measured by this one. Cost 0 is a peek for cost 1. A cost outside [CheckCost] is
// refused as [Never] and changes nothing.
func (s LeakyBucket) Take(l Limit, now Micros, cost int64) (next LeakyBucket, d Decision) {
	room, keep := s.room(l, now)
	if 0 < cost && cost <= room.Tokens {
		room.Tokens, d.Allowed, keep = room.Tokens-cost, true, true
	} else {
		d.Allowed, d.RetryAfter = room.fits(l, now, cost)
	}
	d.Limit, d.Remaining, d.ResetAfter = l.Capacity(), max(0, room.Tokens), room.fullAfter(l, now)
	if keep {
		return leaky(l, room), d
	}
	return s, d
}

// Peek tells what Take would answer, with Remaining and ResetAfter as they stand before the charge. Cost 0 asks for
// cost 1, so that a bucket which is just full says refused.
func (s LeakyBucket) Peek(l Limit, now Micros, cost int64) (d Decision) {
	room, _ := s.room(l, now)
	d.Allowed, d.RetryAfter = room.fits(l, now, cost)
	d.Limit, d.Remaining, d.ResetAfter = l.Capacity(), max(0, room.Tokens), room.fullAfter(l, now)
	return d
}

// Refund takes cost out of the bucket, never below empty. A cost outside [CheckCost] takes nothing out.
func (s LeakyBucket) Refund(l Limit, now Micros, cost int64) LeakyBucket {
	if CheckCost(cost) != nil || cost == 0 {
		return s
	}
	room, _ := s.room(l, now)
	return leaky(l, room.refund(l, cost))
}

// EmptyAfter is the time until the bucket is empty, 0 when it is; [Never] for a limit that does not drain.
func (s LeakyBucket) EmptyAfter(l Limit, now Micros) Micros {
	room, _ := s.room(l, now)
	return room.fullAfter(l, now)
}

// room is the bucket at now from the other side: tokens are the room that is left, below 0 where the limit was lowered.
// A clock that stepped back leaves no room. Damaged values count to the strict side.
func (s LeakyBucket) room(l Limit, now Micros) (at TokenBucket, keep bool) {
	capacity := l.Capacity()
	if uint64(s.Count) > uint64(MaxCount) {
		s.Count = 0
	}
	switch {
	case s.Level < 0:
		s.Level, s.Part = capacity, 0
	case s.Level > capacity && l.Count > 0:
		// Limit.Check holds the capacity itself below this.
		s.Level = min(s.Level, mulDivDown(int64(MaxRefill), l.Count, int64(l.Window)), MaxCount)
	}
	return TokenBucket{Tokens: capacity - s.Level, Part: s.Part, Last: s.Last, Count: s.Count}.refill(l, now)
}

// leaky is the bucket that leaves this room.
func leaky(l Limit, room TokenBucket) LeakyBucket {
	return LeakyBucket{Level: l.Capacity() - room.Tokens, Part: room.Part, Last: room.Last, Count: room.Count}
}
