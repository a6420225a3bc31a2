package limit

// FixedWindow is the state of a fixed window counter: one count, forgotten when the next window begins. Windows are
// aligned to multiples of [Limit.Window], all principals' alike unless an offset parts them. The zero value is a counter
// that was never used.
//
// It admits up to twice its count in a time as short as the caller likes: a whole count at the end of one window, another
// at the start of the next. That is what it is, not an error of it.
//
// A changed count applies at once: raised, it has room at the next call; lowered, it refuses until the window is over. A
// window of another length counts what it may have seen whole.
type FixedWindow struct {
	Start Micros // start of the window, a multiple of Window plus the offset
	Used  int64  // cost admitted since Start
}

// Take charges cost at now. It returns the state to keep: the charged one when admitted; otherwise s unchanged, except
// that a Start beyond the bound of a clock step is re-anchored. offset, 0 to Window-1, shifts the windows of a principal,
// so that not all of them begin at once; it must be the same at each call. Cost 0 is a peek for cost 1. A cost outside
// [CheckCost] is refused as [Never] and changes nothing.
func (s FixedWindow) Take(l Limit, now Micros, cost int64, offset Micros) (next FixedWindow, d Decision) {
	at, keep := s.settle(l, now, offset)
	if 0 < cost && cost <= l.Count-at.Used {
		at.Used, d.Allowed, keep = at.Used+cost, true, true
	} else {
		d.Allowed, d.RetryAfter = at.fits(l, now, cost)
	}
	d.Limit, d.Remaining, d.ResetAfter = l.Count, max(0, l.Count-at.Used), at.freshAfter(l, now)
	if keep {
		return at, d
	}
	return s, d
}

// Peek tells what Take would answer, with Remaining and ResetAfter as they stand before the charge. Cost 0 asks for
// cost 1, so that a limit which is just used up says refused.
func (s FixedWindow) Peek(l Limit, now Micros, cost int64, offset Micros) (d Decision) {
	at, _ := s.settle(l, now, offset)
	d.Allowed, d.RetryAfter = at.fits(l, now, cost)
	d.Limit, d.Remaining, d.ResetAfter = l.Count, max(0, l.Count-at.Used), at.freshAfter(l, now)
	return d
}

// Refund gives back a charge of cost that was taken at the instant charged, never below zero. A window that is over
// takes nothing back.
func (s FixedWindow) Refund(l Limit, now Micros, cost int64, charged, offset Micros) FixedWindow {
	at, _ := s.settle(l, now, offset)
	if CheckCost(cost) != nil || cost == 0 || windowStart(sub(charged, offset), l.Window)+offset != at.Start {
		return s
	}
	at.Used = max(0, at.Used-cost)
	return at
}

// FreshAfter is the time until the state equals a fresh one: the time that a store has to keep it for.
func (s FixedWindow) FreshAfter(l Limit, now Micros, offset Micros) Micros {
	at, _ := s.settle(l, now, offset)
	return at.freshAfter(l, now)
}

// settle brings the window to now. A Start ahead of now stands until now reaches it; one further ahead than a window can
// only come from a clock that stepped back, so the window at now counts as used up.
func (s FixedWindow) settle(l Limit, now, offset Micros) (at FixedWindow, stepped bool) {
	start := windowStart(sub(now, offset), l.Window) + offset
	if s.Used == 0 {
		return FixedWindow{Start: start}, false
	}
	if s.Used < 0 {
		s.Used = l.Count // damaged
	}
	if s.Start != start { // where the window's length changed, Start is none of a window
		s.Start = add(nextStart(sub(s.Start, offset), l.Window), offset)
	}
	switch ahead := sub(s.Start, start); {
	case ahead > l.Window:
		return FixedWindow{Start: start, Used: l.Count}, true
	case ahead >= 0:
		return s, false
	default:
		return FixedWindow{Start: start}, false
	}
}

// fits tells whether a settled state has room for a cost, and if not, after which time it has.
func (s FixedWindow) fits(l Limit, now Micros, cost int64) (ok bool, retry Micros) {
	cost = asked(cost)
	switch {
	case cost < 0 || cost > l.Count:
		return false, Never
	case cost <= l.Count-s.Used:
		return true, 0
	}
	return false, sub(add(s.Start, l.Window), now)
}

func (s FixedWindow) freshAfter(l Limit, now Micros) Micros {
	if s.Used == 0 {
		return 0
	}
	return max(0, sub(add(s.Start, l.Window), now))
}
