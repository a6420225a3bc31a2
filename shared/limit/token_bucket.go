package limit

// TokenBucket is the state of a token bucket: it holds up to [Limit.Capacity] tokens, gains Count per Window
// continuously, and a call takes its cost in tokens or is refused. In any interval t it admits cost ≤
// B + Count·t/Window.
//
// The level is Tokens + Part/Window tokens as of Last. Keeping the remainder Part makes refill exact: 997 per
// second gains 997,000 in 1,000 s however often it is asked. The zero value is an empty bucket at instant 0; a new
// counter starts from [FullTokenBucket].
//
// A changed limit keeps the level, clamped to the new capacity, and never refills it: the time since Last counts at Count, the
// rate that it passed under, and the new rate counts from the first call that sees it. A bucket that was full stays full.
// After a change of Window, Part is taken as a share of the new one, which is less than a token off, and the time since
// Last counts by the new one: a store's counters are named by their window, so that theirs never changes.
//
// Formula: level(now) = min(B, level(Last) + (now-Last)·Count/Window), the lazy form of the leaky bucket as a
// meter (Turner 1986, "New directions in communications") seen from the token side.
type TokenBucket struct {
	Tokens int64  // whole tokens, 0 to capacity
	Part   int64  // numerator of the started token over Window, 0 to Window-1
	Last   Micros // instant that the level stands for; it never moves back, save as refill tells
	Count  int64  // the count of the limit that the time since Last passed under; 0: that of the limit at hand
}

// FullTokenBucket is the state of a counter that was never used.
func FullTokenBucket(l Limit, now Micros) TokenBucket {
	return TokenBucket{Tokens: l.Capacity(), Last: now, Count: l.Count}
}

// Take charges cost at now. It returns the state to keep: the charged one when admitted; otherwise s unchanged, except
// that a Last beyond the bound of a clock step is re-anchored, and a state of another count is measured by this one. Cost 0 is a peek for cost 1. A cost outside
// [CheckCost] is refused as [Never] and changes nothing.
func (s TokenBucket) Take(l Limit, now Micros, cost int64) (next TokenBucket, d Decision) {
	at, keep := s.sound().refill(l, now)
	if 0 < cost && cost <= at.Tokens {
		at.Tokens, d.Allowed, keep = at.Tokens-cost, true, true
	} else {
		d.Allowed, d.RetryAfter = at.fits(l, now, cost)
	}
	d.Limit, d.Remaining, d.ResetAfter = l.Capacity(), at.Tokens, at.fullAfter(l, now)
	if keep {
		return at, d
	}
	return s, d
}

// Peek tells what Take would answer, with Remaining and ResetAfter as they stand before the charge. Cost 0 asks
// for cost 1, so that a limit which is just used up says refused.
func (s TokenBucket) Peek(l Limit, now Micros, cost int64) (d Decision) {
	at, _ := s.sound().refill(l, now)
	d.Allowed, d.RetryAfter = at.fits(l, now, cost)
	d.Limit, d.Remaining, d.ResetAfter = l.Capacity(), at.Tokens, at.fullAfter(l, now)
	return d
}

// Refund gives cost tokens back, never beyond full. A cost outside [CheckCost] gives nothing back.
func (s TokenBucket) Refund(l Limit, now Micros, cost int64) TokenBucket {
	if CheckCost(cost) != nil || cost == 0 {
		return s
	}
	at, _ := s.sound().refill(l, now)
	return at.refund(l, cost)
}

// FullAfter is the time until the bucket is full, 0 when it is, as a bucket of capacity 0 always is.
func (s TokenBucket) FullAfter(l Limit, now Micros) Micros {
	at, _ := s.sound().refill(l, now)
	return at.fullAfter(l, now)
}

// At is the bucket as it stands at now, under a limit of its count: for who changes limits of states that keep no Count.
func (s TokenBucket) At(l Limit, now Micros) TokenBucket {
	at, _ := s.sound().refill(l, now)
	return at
}

// sound is s with damaged values counted to the strict side.
func (s TokenBucket) sound() TokenBucket {
	if uint64(s.Tokens) > uint64(MaxCount) { // negative ones are larger still
		s.Tokens, s.Part = 0, 0
	}
	if uint64(s.Count) > uint64(MaxCount) {
		s.Count = 0
	}
	return s
}

// refill brings the level to now. Tokens may be negative, as a leaky bucket's are when its limit was lowered.
//
// A lowered limit clamps the level, a raised one never refills it. A negative elapsed time counts as zero and leaves
// Last ahead; a Last further ahead than one full refill can only come from a clock that stepped back, so the bucket is
// re-anchored at now with no tokens, and nobody waits for longer than that refill because of the step. keep tells that
// the change is to be kept whatever the verdict.
func (s TokenBucket) refill(l Limit, now Micros) (at TokenBucket, keep bool) {
	capacity, count := l.Capacity(), s.Count
	if count != l.Count && l.Count > 0 {
		if count == 0 {
			count = l.Count
		} else {
			keep = true
		}
		s.Count = l.Count
	}
	if uint64(s.Part) >= uint64(l.Window) {
		s.Part = 0
	}
	if s.Tokens >= capacity {
		s.Tokens, s.Part = capacity, 0
	}
	elapsed := sub(now, s.Last)
	switch {
	case elapsed <= 0:
		if elapsed < 0 && l.Count > 0 && -(elapsed+1) >= Micros(mulDivUp(capacity, int64(l.Window), l.Count)) {
			return TokenBucket{Last: now, Count: l.Count}, true
		}
		return s, keep
	case s.Tokens == capacity:
		s.Last = now
		return s, keep
	}
	s.Last = now
	gained, part, ok := mulAddDiv(uint64(elapsed), uint64(count), uint64(s.Part), uint64(l.Window))
	if !ok || gained >= uint64(capacity-s.Tokens) {
		s.Tokens, s.Part = capacity, 0
		return s, keep
	}
	s.Tokens += int64(gained)
	s.Part = int64(part)
	return s, keep
}

// fits tells whether a settled state has room for a cost, and if not, after which time it has.
func (s TokenBucket) fits(l Limit, now Micros, cost int64) (ok bool, retry Micros) {
	cost = asked(cost)
	switch {
	case cost < 0 || cost > l.Capacity():
		return false, Never
	case cost <= s.Tokens:
		return true, 0
	}
	return false, s.holdsAfter(l, now, cost)
}

// refund gives a settled state a checked cost back.
func (s TokenBucket) refund(l Limit, cost int64) TokenBucket {
	if capacity := l.Capacity(); cost >= capacity-s.Tokens {
		s.Tokens, s.Part = capacity, 0
	} else {
		s.Tokens += cost
	}
	return s
}

func (s TokenBucket) fullAfter(l Limit, now Micros) Micros {
	capacity := l.Capacity()
	if s.Tokens >= capacity {
		return 0
	}
	return s.holdsAfter(l, now, capacity)
}

// holdsAfter is the time from now until the settled bucket holds want > Tokens tokens:
// ceil(((want-Tokens)·Window - Part) / Count), counted from Last where that is ahead.
func (s TokenBucket) holdsAfter(l Limit, now Micros, want int64) Micros {
	if l.Count == 0 {
		return Never
	}
	wait := roundUp(mulSubDiv(uint64(want-s.Tokens), uint64(l.Window), uint64(s.Part), uint64(l.Count)))
	if s.Last > now {
		return add(sub(s.Last, now), wait)
	}
	return wait
}
