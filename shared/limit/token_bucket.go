package limit

import "math/bits"

// TokenBucket is the state of a token bucket: it holds up to [Limit.Capacity] tokens, gains Count per Window
// continuously, and a call takes its cost in tokens or is refused. In any interval t it admits cost ≤
// B + Count·t/Window.
//
// The level is Tokens + Part/Window tokens as of Last. Keeping the remainder Part makes refill exact: 997 per
// second gains 997,000 in 1,000 s however often it is asked. The zero value is an empty bucket at instant 0; a new
// counter starts from [FullTokenBucket].
//
// Formula: level(now) = min(B, level(Last) + (now-Last)·Count/Window), the lazy form of the leaky bucket as a
// meter (Turner 1986, "New directions in communications") seen from the token side.
type TokenBucket struct {
	Tokens int64  // whole tokens, 0 to capacity
	Part   int64  // numerator of the started token over Window, 0 to Window-1
	Last   Micros // instant that the level stands for; it never moves back, save as settle tells
}

// FullTokenBucket is the state of a counter that was never used.
func FullTokenBucket(l Limit, now Micros) TokenBucket {
	return TokenBucket{Tokens: l.Capacity(), Last: now}
}

// Take charges cost at now. It returns the state to keep: the charged one when admitted; otherwise s unchanged,
// except that a Last beyond the bound of a clock step is re-anchored. Cost 0 is a peek for cost 1. A cost outside
// [CheckCost] is refused as [Never] and changes nothing.
func (s TokenBucket) Take(l Limit, now Micros, cost int64) (TokenBucket, Decision) {
	at, stepped := s.settle(l, now)
	d := at.decide(l, now, cost)
	if d.Allowed && cost > 0 {
		at.Tokens -= cost
		d.Remaining = at.Tokens
		d.ResetAfter = at.fullAfter(l, now)
		return at, d
	}
	if stepped {
		return at, d
	}
	return s, d
}

// Peek tells what Take would answer, with Remaining and ResetAfter as they stand before the charge. Cost 0 asks
// for cost 1, so that a limit which is just used up says refused.
func (s TokenBucket) Peek(l Limit, now Micros, cost int64) Decision {
	at, _ := s.settle(l, now)
	return at.decide(l, now, cost)
}

// Refund gives cost tokens back, never beyond full. A cost outside [CheckCost] gives nothing back.
func (s TokenBucket) Refund(l Limit, now Micros, cost int64) TokenBucket {
	at, _ := s.settle(l, now)
	if CheckCost(cost) != nil || cost == 0 {
		return s
	}
	if room := l.Capacity() - at.Tokens; cost >= room {
		at.Tokens, at.Part = l.Capacity(), 0
	} else {
		at.Tokens += cost
	}
	return at
}

// FullAfter is the time until the bucket is full, 0 when it is; [Never] for a limit that does not refill.
func (s TokenBucket) FullAfter(l Limit, now Micros) Micros {
	at, _ := s.settle(l, now)
	return at.fullAfter(l, now)
}

// settle brings the level to now. A negative elapsed time counts as zero and leaves Last ahead; a Last further
// ahead than one full refill can only come from a clock that stepped back, so the bucket is re-anchored at now
// with no tokens, and nobody waits for longer than that refill because of the step.
func (s TokenBucket) settle(l Limit, now Micros) (at TokenBucket, stepped bool) {
	capacity, window := l.Capacity(), uint64(l.Window)
	// A lowered limit clamps the level, a raised one never refills it. Damaged values count to the strict side.
	s.Tokens = max(s.Tokens, 0)
	if s.Part < 0 || uint64(s.Part) >= window {
		s.Part = 0
	}
	if s.Tokens >= capacity {
		s.Tokens, s.Part = capacity, 0
	}
	if l.Count == 0 {
		s.Last = max(s.Last, now)
		return s, false
	}
	elapsed := sub(now, s.Last)
	if elapsed <= 0 {
		if elapsed < 0 && -(elapsed+1) >= Micros(mulDivUp(capacity, int64(l.Window), l.Count)) {
			return TokenBucket{Last: now}, true
		}
		return s, false
	}
	s.Last = now
	hi, lo := bits.Mul64(uint64(elapsed), uint64(l.Count))
	lo, carry := bits.Add64(lo, uint64(s.Part), 0)
	hi += carry
	if hi >= window { // 2^64 tokens and more: full
		s.Tokens, s.Part = capacity, 0
		return s, false
	}
	gained, part := bits.Div64(hi, lo, window)
	if gained >= uint64(capacity-s.Tokens) {
		s.Tokens, s.Part = capacity, 0
		return s, false
	}
	s.Tokens += int64(gained)
	s.Part = int64(part)
	return s, false
}

// decide answers for a settled state.
func (s TokenBucket) decide(l Limit, now Micros, cost int64) Decision {
	capacity := l.Capacity()
	reset := s.fullAfter(l, now)
	if cost == 0 {
		cost = 1
	}
	if cost < 0 || cost > capacity {
		return never(capacity, s.Tokens, reset)
	}
	d := Decision{Allowed: cost <= s.Tokens, Limit: capacity, Remaining: s.Tokens, ResetAfter: reset}
	if !d.Allowed {
		d.RetryAfter = s.holds(l, now, cost)
	}
	return d
}

func (s TokenBucket) fullAfter(l Limit, now Micros) Micros {
	if s.Tokens >= l.Capacity() {
		return 0
	}
	return s.holds(l, now, l.Capacity())
}

// holds is the time from now until the settled bucket holds want > Tokens tokens:
// ceil(((want-Tokens)·Window - Part) / Count), counted from Last where that is ahead.
func (s TokenBucket) holds(l Limit, now Micros, want int64) Micros {
	if l.Count == 0 {
		return Never
	}
	hi, lo := bits.Mul64(uint64(want-s.Tokens), uint64(l.Window))
	lo, borrow := bits.Sub64(lo, uint64(s.Part), 0)
	hi -= borrow
	if hi >= uint64(l.Count) {
		return Never // outside Limit.Check's bound on refill
	}
	wait, rest := bits.Div64(hi, lo, uint64(l.Count))
	if rest > 0 {
		wait++
	}
	if wait >= uint64(Never) {
		return Never
	}
	return add(max(sub(s.Last, now), 0), Micros(wait))
}
