package limit

import "math/bits"

// GCRA is the state of the generic cell rate algorithm: one instant a counter. It gives the same verdicts as a token
// bucket of the same limit, with the emission interval Window/Count in place of a refill.
//
// The literature keeps the theoretical arrival time (TAT) and admits a call at now ≥ TAT - burst offset. Here Spent is
// that difference for a call of no cost, TAT - Capacity·Window/Count: the instant at which the counter would hold
// nothing, from which it has earned (now-Spent)·Count/Window since. So a changed burst or count keeps the level, where a
// bare TAT would hand out the difference. Part/Count µs are the fraction of Spent; Count is the one they were computed by.
//
// Formula: ITU-T I.371 annex A, virtual scheduling, shifted by the burst offset.
//
// The zero value is a counter that was used up at instant 0; a new one starts from [FullGCRA].
type GCRA struct {
	Spent Micros // whole microseconds; a call that was admitted moves it on by cost·Window/Count
	Part  int64  // numerator of the started microsecond over Count, 0 to Count-1
	Count int64  // the limit's count that Part and the level are measured by
}

// FullGCRA is the state of a counter that was never used.
func FullGCRA(l Limit, now Micros) GCRA {
	return GCRA{Count: l.Count}.filled(l, now)
}

// Take charges cost at now. It returns the state to keep: the charged one when admitted; otherwise s unchanged, except
// that a Spent beyond the bound of a clock step is re-anchored. Cost 0 is a peek for cost 1. A cost outside [CheckCost]
// is refused as [Never] and changes nothing.
func (s GCRA) Take(l Limit, now Micros, cost int64) (GCRA, Decision) {
	at, stepped := s.settle(l, now)
	d := at.decide(l, now, cost)
	if d.Allowed && cost > 0 {
		at.Spent, at.Part = at.earns(l, cost)
		d.Remaining = at.level(l, now)
		d.ResetAfter = at.fullAfter(l, now)
		return at, d
	}
	if stepped {
		return at, d
	}
	return s, d
}

// Peek tells what Take would answer, with Remaining and ResetAfter as they stand before the charge. Cost 0 asks for
// cost 1, so that a limit which is just used up says refused.
func (s GCRA) Peek(l Limit, now Micros, cost int64) Decision {
	at, _ := s.settle(l, now)
	return at.decide(l, now, cost)
}

// Refund gives cost back, never beyond full. A cost outside [CheckCost] gives nothing back.
func (s GCRA) Refund(l Limit, now Micros, cost int64) GCRA {
	if CheckCost(cost) != nil || cost == 0 || l.Count == 0 {
		return s
	}
	at, _ := s.settle(l, now)
	back, part := mulDivRem(uint64(cost), uint64(l.Window), uint64(l.Count))
	if back >= uint64(MaxRefill) {
		return at.filled(l, now)
	}
	at.Spent -= Micros(back)
	if at.Part -= int64(part); at.Part < 0 {
		at.Spent, at.Part = at.Spent-1, at.Part+l.Count
	}
	if at.fullAfter(l, now) == 0 {
		return at.filled(l, now)
	}
	return at
}

// FullAfter is the time until the counter equals one never used, 0 when it does; [Never] for a limit of 0.
func (s GCRA) FullAfter(l Limit, now Micros) Micros {
	at, _ := s.settle(l, now)
	return at.fullAfter(l, now)
}

// settle measures the state by the limit at hand, with Spent no further back than full. A Spent ahead of now is a
// clock that went back, and waits; one further ahead than a full refill is re-anchored at now with nothing earned, so
// that nobody waits for longer than that refill because of the step.
func (s GCRA) settle(l Limit, now Micros) (at GCRA, stepped bool) {
	if l.Count == 0 {
		return s, false
	}
	if s.Count < 1 || s.Count > MaxCount || s.Part < 0 || s.Part >= s.Count {
		return GCRA{Spent: now, Count: l.Count}, true // damaged: the strict side
	}
	if s.Count != l.Count {
		s = s.remeasured(l, now)
	}
	full := Micros(mulDivUp(l.Capacity(), int64(l.Window), l.Count))
	if s.Spent > add(now, full) {
		return GCRA{Spent: now, Count: l.Count}, true
	}
	if s.fullAfter(l, now) == 0 {
		return s.filled(l, now), false
	}
	return s, false
}

// remeasured carries the level over to another count: what was earned, (now-Spent)·Count - Part token-microseconds, is
// worth the same number of tokens.
func (s GCRA) remeasured(l Limit, now Micros) GCRA {
	elapsed := sub(now, s.Spent)
	if elapsed <= 0 { // nothing is earned that could be carried over
		return GCRA{Spent: s.Spent + min(Micros(s.Part), 1), Count: l.Count}
	}
	hi, lo := bits.Mul64(uint64(elapsed), uint64(s.Count))
	lo, borrow := bits.Sub64(lo, uint64(s.Part), 0)
	hi -= borrow
	if hi >= uint64(l.Count) {
		return s.filled(l, now)
	}
	back, part := bits.Div64(hi, lo, uint64(l.Count))
	if back >= uint64(MaxRefill) {
		return s.filled(l, now)
	}
	at := GCRA{Spent: now - Micros(back), Count: l.Count}
	if part > 0 {
		at.Spent, at.Part = at.Spent-1, l.Count-int64(part)
	}
	return at
}

// filled is the state of a full counter: a whole capacity earned by now.
func (s GCRA) filled(l Limit, now Micros) GCRA {
	if l.Count == 0 {
		return GCRA{Spent: now}
	}
	back, part := mulDivRem(uint64(l.Capacity()), uint64(l.Window), uint64(l.Count))
	at := GCRA{Spent: now - Micros(back), Count: l.Count}
	if part > 0 {
		at.Spent, at.Part = at.Spent-1, l.Count-int64(part)
	}
	return at
}

// decide answers for a settled state.
func (s GCRA) decide(l Limit, now Micros, cost int64) Decision {
	capacity := l.Capacity()
	d := Decision{Limit: capacity, Remaining: s.level(l, now), ResetAfter: s.fullAfter(l, now)}
	if cost == 0 {
		cost = 1
	}
	if cost < 0 || cost > capacity {
		d.RetryAfter = Never
		return d
	}
	due, part := s.earns(l, cost)
	if part > 0 {
		due++
	}
	d.Allowed = due <= now
	if !d.Allowed {
		d.RetryAfter = sub(due, now)
	}
	return d
}

// earns is the instant, in microseconds and a fraction over Count, by which cost is earned: Spent + cost·Window/Count.
func (s GCRA) earns(l Limit, cost int64) (at Micros, part int64) {
	hi, lo := bits.Mul64(uint64(cost), uint64(l.Window))
	lo, carry := bits.Add64(lo, uint64(s.Part), 0)
	hi += carry
	if hi >= uint64(l.Count) {
		return Never, 0 // outside Limit.Check's bound on refill
	}
	wait, rest := bits.Div64(hi, lo, uint64(l.Count))
	return add(s.Spent, Micros(min(wait, uint64(Never)))), int64(rest)
}

func (s GCRA) fullAfter(l Limit, now Micros) Micros {
	if l.Count == 0 {
		return 0
	}
	due, part := s.earns(l, l.Capacity())
	if part > 0 {
		due++
	}
	return max(0, sub(due, now))
}

// level is what a settled counter holds: floor(((now-Spent)·Count - Part) / Window), at most capacity.
func (s GCRA) level(l Limit, now Micros) int64 {
	elapsed := sub(now, s.Spent)
	if l.Count == 0 || elapsed <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(elapsed), uint64(l.Count))
	lo, borrow := bits.Sub64(lo, uint64(s.Part), 0)
	hi -= borrow
	if hi >= uint64(l.Window) {
		return l.Capacity()
	}
	whole, _ := bits.Div64(hi, lo, uint64(l.Window))
	return int64(min(whole, uint64(l.Capacity())))
}

// mulDivRem is a·b/c as quotient and remainder, with the quotient held at 2^64-1.
func mulDivRem(a, b, c uint64) (quotient, rest uint64) {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return 1<<64 - 1, 0
	}
	return bits.Div64(hi, lo, c)
}
