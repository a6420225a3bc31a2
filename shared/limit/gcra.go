package limit

// GCRA is the state of the generic cell rate algorithm: one instant a counter. It gives the same verdicts as a token
// bucket of the same limit, with the emission interval Window/Count in place of a refill.
//
// The literature keeps the theoretical arrival time (TAT) and admits a call at now ≥ TAT - burst offset. Here Spent is
// that difference for a call of no cost, TAT - Capacity·Window/Count: the instant at which the counter would hold
// nothing, since when it has earned (now-Spent)·Count/Window. Part/Count µs are the fraction of Spent, so that 997 per
// second is 997,000 in 1,000 s.
//
// Count and Window are the rate that Spent was measured by. With them a changed limit keeps the level, clamped to the
// new capacity, where a bare TAT would hand out the difference; the new rate counts from the first call that sees it.
// A call on a late clock is judged by what was earned at its own instant: one instant cannot tell how late it is.
// A store whose counters are named by their window need not keep Window: see [GCRA.Integers].
//
// Formula: ITU-T I.371 annex A, virtual scheduling, shifted by the burst offset.
//
// The zero value is a counter without a history, which counts as used up at the first call that sees it; a new counter
// starts from [FullGCRA].
type GCRA struct {
	Spent  Micros // whole µs; a call that is admitted moves it on by cost·Window/Count
	Part   int64  // numerator of the started µs over Count, 0 to Count-1
	Count  int64  // the count of the limit that the state is measured by
	Window Micros // its window
}

// FullGCRA is the state of a counter that was never used.
func FullGCRA(l Limit, now Micros) GCRA {
	return holding(l, now, l.Capacity(), 0)
}

// Take charges cost at now. It returns the state to keep: the charged one when admitted; otherwise s unchanged, except
// that a Spent beyond the bound of a clock step is re-anchored, and a state of another rate is measured by this one. Cost
// 0 is a peek for cost 1. A cost outside [CheckCost] is refused as [Never] and changes nothing.
func (s GCRA) Take(l Limit, now Micros, cost int64) (next GCRA, d Decision) {
	at, level, keep := s.settle(l, now)
	if 0 < cost && cost <= level {
		at = at.charged(l, now, cost, level)
		level, d.Allowed, keep = level-cost, true, true
	} else {
		d.Allowed, d.RetryAfter = at.fits(l, now, cost, level)
	}
	d.Limit, d.Remaining, d.ResetAfter = l.Capacity(), level, at.fullAfter(l, now, level)
	if keep {
		return at, d
	}
	return s, d
}

// Peek tells what Take would answer, with Remaining and ResetAfter as they stand before the charge. Cost 0 asks for
// cost 1, so that a limit which is just used up says refused.
func (s GCRA) Peek(l Limit, now Micros, cost int64) (d Decision) {
	at, level, _ := s.settle(l, now)
	d.Allowed, d.RetryAfter = at.fits(l, now, cost, level)
	d.Limit, d.Remaining, d.ResetAfter = l.Capacity(), level, at.fullAfter(l, now, level)
	return d
}

// Refund gives cost back, never beyond full. A cost outside [CheckCost] gives nothing back.
func (s GCRA) Refund(l Limit, now Micros, cost int64) GCRA {
	if CheckCost(cost) != nil || cost == 0 || l.Count == 0 {
		return s
	}
	at, level, _ := s.settle(l, now)
	if cost >= l.Capacity()-level {
		return FullGCRA(l, max(now, at.Spent)) // a Spent ahead of now is owed first
	}
	back, part, _ := mulAddDiv(uint64(cost), uint64(l.Window), 0, uint64(l.Count))
	return at.back(back, int64(part))
}

// FullAfter is the time until the counter equals one never used, 0 when it does, as one of capacity 0 always does.
func (s GCRA) FullAfter(l Limit, now Micros) Micros {
	at, level, _ := s.settle(l, now)
	return at.fullAfter(l, now, level)
}

// settle measures the state by the limit at hand, and says how many whole tokens it holds. A level of the capacity means
// full, and leaves at.Spent further back than that. A Spent ahead of now holds nothing and waits; one further ahead than
// a full refill can only come from a clock that went back, and is re-anchored at now, so that nobody waits for longer
// than that refill because of the step. keep tells that the change is to be kept whatever the verdict.
func (s GCRA) settle(l Limit, now Micros) (at GCRA, level int64, keep bool) {
	if l.Count == 0 {
		return s, 0, false
	}
	if s.Count != l.Count || s.Window != l.Window {
		s, keep = s.measuredBy(l, now), true
	}
	if uint64(s.Part) >= uint64(s.Count) {
		return GCRA{Spent: now, Count: l.Count, Window: l.Window}, 0, true // damaged
	}
	elapsed := sub(now, s.Spent)
	if elapsed <= 0 {
		if elapsed < 0 && -(elapsed+1) >= Micros(mulDivUp(l.Capacity(), int64(l.Window), l.Count)) {
			return GCRA{Spent: now, Count: l.Count, Window: l.Window}, 0, true
		}
		return s, 0, keep
	}
	earned, _, ok := mulSubDiv(uint64(elapsed), uint64(l.Count), uint64(s.Part), uint64(l.Window))
	if capacity := l.Capacity(); !ok || earned >= uint64(capacity) {
		return s, capacity, keep
	}
	return s, int64(earned), keep
}

// measuredBy carries the level over to another rate, rounded down where the windows differ. A state without a valid
// rate is damaged, and holds nothing.
func (s GCRA) measuredBy(l Limit, now Micros) GCRA {
	if s.Count < 1 || s.Count > MaxCount || uint64(s.Part) >= uint64(s.Count) || s.Window < MinWindow || s.Window > MaxWindow {
		return GCRA{Spent: now, Count: l.Count, Window: l.Window}
	}
	elapsed := sub(now, s.Spent)
	if elapsed <= 0 { // nothing is earned that could be carried over
		return GCRA{Spent: add(s.Spent, min(Micros(s.Part), 1)), Count: l.Count, Window: l.Window}
	}
	level, part, ok := mulSubDiv(uint64(elapsed), uint64(s.Count), uint64(s.Part), uint64(s.Window))
	if capacity := l.Capacity(); !ok || level >= uint64(capacity) {
		return FullGCRA(l, now)
	}
	return holding(l, now, int64(level), mulDivDown(int64(part), int64(l.Window), int64(s.Window)))
}

// holding is the state that holds level + part/Window tokens at now.
func holding(l Limit, now Micros, level, part int64) GCRA {
	if l.Count == 0 {
		return GCRA{Spent: now, Window: l.Window}
	}
	back, rest, _ := mulAddDiv(uint64(level), uint64(l.Window), uint64(part), uint64(l.Count))
	return GCRA{Spent: now, Count: l.Count, Window: l.Window}.back(back, int64(rest))
}

// back moves Spent back by whole µs and part/Count of one.
func (s GCRA) back(whole uint64, part int64) GCRA {
	s.Spent = sub(s.Spent, Micros(whole))
	if s.Part -= part; s.Part < 0 {
		s.Spent, s.Part = s.Spent-1, s.Part+s.Count
	}
	return s
}

// charged is a settled state after a cost that its level has room for.
func (s GCRA) charged(l Limit, now Micros, cost, level int64) GCRA {
	if capacity := l.Capacity(); level == capacity {
		return holding(l, now, capacity-cost, 0)
	}
	wait, part, _ := mulAddDiv(uint64(cost), uint64(l.Window), uint64(s.Part), uint64(l.Count))
	s.Spent, s.Part = s.Spent+Micros(wait), int64(part)
	return s
}

// fits tells whether a settled state that holds level has room for a cost, and if not, after which time it has.
func (s GCRA) fits(l Limit, now Micros, cost, level int64) (ok bool, retry Micros) {
	cost = asked(cost)
	switch {
	case cost < 0 || cost > l.Capacity():
		return false, Never
	case cost <= level:
		return true, 0
	}
	return false, s.earnsAfter(l, now, cost)
}

// fullAfter is the time until a settled state that holds level is full.
func (s GCRA) fullAfter(l Limit, now Micros, level int64) Micros {
	capacity := l.Capacity()
	if level >= capacity {
		return 0
	}
	return s.earnsAfter(l, now, capacity)
}

// earnsAfter is the time from now until a settled state holds want tokens: Spent + ceil((want·Window + Part) / Count).
func (s GCRA) earnsAfter(l Limit, now Micros, want int64) Micros {
	wait := roundUp(mulAddDiv(uint64(want), uint64(l.Window), uint64(s.Part), uint64(l.Count)))
	return sub(add(s.Spent, wait), now)
}
