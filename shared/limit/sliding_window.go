package limit

// SlidingWindow is the state of a sliding window counter: the calls of the current window plus those of the
// previous one, weighted by the share of it that is still in view. Windows are aligned to multiples of
// [Limit.Window], so that all processes agree on them. The zero value is a counter that was never used.
//
// A changed count applies at once: raised, it has room at the next call; lowered, it refuses until what was admitted
// before has gone out of view. After a change of Window, whose calls lay elsewhere in the new windows than they can be
// told apart by, all that was in view counts whole, as [MaxCount] at most.
//
// Formula: used(now) = Current + Previous·(Window-e)/Window with e = now-Start, compared exactly with Count.
// It is the approximation that large CDNs use ("How we built rate limiting capable of scaling to millions of
// domains", Cloudflare 2017). Against an exact log of calls it can admit or refuse wrongly when calls bunch within
// a window: the package's README has the figures. A rule that needs exactness names [SlidingLog].
type SlidingWindow struct {
	Start    Micros // start of the current window, a multiple of Window
	Current  int64  // cost admitted since Start
	Previous int64  // cost admitted in the window before
}

// Take charges cost at now. It returns the state to keep: the charged one when admitted; otherwise s unchanged,
// except that a Start beyond the bound of a clock step is re-anchored. Cost 0 is a peek for cost 1. A cost outside
// [CheckCost] is refused as [Never] and changes nothing.
func (s SlidingWindow) Take(l Limit, now Micros, cost int64) (next SlidingWindow, d Decision) {
	at, keep := s.settle(l, now)
	left := l.Count - at.used(l, now)
	if 0 < cost && cost <= left {
		at.Current, left, d.Allowed, keep = at.Current+cost, left-cost, true, true
	} else {
		d.Allowed, d.RetryAfter = at.fits(l, now, cost, left)
	}
	d.Limit, d.Remaining, d.ResetAfter = l.Count, max(0, left), at.freshAfter(l, now)
	if keep {
		return at, d
	}
	return s, d
}

// Peek tells what Take would answer, with Remaining and ResetAfter as they stand before the charge. Cost 0 asks
// for cost 1, so that a limit which is just used up says refused.
func (s SlidingWindow) Peek(l Limit, now Micros, cost int64) (d Decision) {
	at, _ := s.settle(l, now)
	left := l.Count - at.used(l, now)
	d.Allowed, d.RetryAfter = at.fits(l, now, cost, left)
	d.Limit, d.Remaining, d.ResetAfter = l.Count, max(0, left), at.freshAfter(l, now)
	return d
}

// Refund gives back a charge of cost that was taken at the instant charged. It goes to the window it came from,
// never below zero; a window that is no longer in view takes nothing back.
func (s SlidingWindow) Refund(l Limit, now Micros, cost int64, charged Micros) SlidingWindow {
	if CheckCost(cost) != nil || cost == 0 {
		return s
	}
	at, _ := s.settle(l, now)
	switch windowStart(charged, l.Window) {
	case at.Start:
		at.Current = max(0, at.Current-cost)
	case at.Start - l.Window:
		at.Previous = max(0, at.Previous-cost)
	default:
		return s
	}
	return at
}

// FreshAfter is the time until the state equals a fresh one: the time that a store has to keep it for.
func (s SlidingWindow) FreshAfter(l Limit, now Micros) Micros {
	at, _ := s.settle(l, now)
	return at.freshAfter(l, now)
}

// settle brings the windows to now. A Start ahead of now counts as now at that Start; one further ahead than a
// window can only come from a clock that stepped back, so the counter is re-anchored as just used up at now, and
// frees again at the limit's rate.
func (s SlidingWindow) settle(l Limit, now Micros) (at SlidingWindow, stepped bool) {
	start := windowStart(now, l.Window)
	if s.Current|s.Previous < 0 { // damaged
		s.Current, s.Previous = l.Count, l.Count
	}
	if s.Start == start {
		return s, false
	}
	if up := nextStart(s.Start, l.Window); up != s.Start { // the window's length changed
		s = SlidingWindow{Start: up, Current: min(saturate(s.Current, s.Previous), MaxCount)}
	}
	switch ahead := sub(s.Start, start); {
	case ahead > l.Window:
		e := int64(now - start)
		return SlidingWindow{Start: start, Current: mulDivUp(l.Count, e, int64(l.Window)), Previous: l.Count}, true
	case ahead >= 0:
		return s, false
	case ahead == -l.Window:
		return SlidingWindow{Start: start, Previous: s.Current}, false
	default:
		return SlidingWindow{Start: start}, false
	}
}

// used is ceil(Current + Previous·(Window-e)/Window) of a settled state. Costs are whole, so a call fits the exact sum
// if, and only if, it fits this one.
func (s SlidingWindow) used(l Limit, now Micros) int64 {
	inView := l.Window
	if now > s.Start {
		inView -= now - s.Start
	}
	return saturate(s.Current, mulDivUp(s.Previous, int64(inView), int64(l.Window)))
}

// fits tells whether a settled state with left = Count - used has room for a cost, and if not, after which time it has.
func (s SlidingWindow) fits(l Limit, now Micros, cost, left int64) (ok bool, retry Micros) {
	cost = asked(cost)
	switch {
	case cost < 0 || cost > l.Count:
		return false, Never
	case cost <= left:
		return true, 0
	}
	return false, s.fitsAfter(l, now, cost)
}

// fitsAfter is the time until a refused cost fits: the earliest e of this window at which Previous·(Window-e) ≤
// room·Window, or that of the next one, where Current has become Previous. Rounding e up to the microsecond is rounding
// its share down.
func (s SlidingWindow) fitsAfter(l Limit, now Micros, cost int64) Micros {
	start, weighed := max(s.Start, windowStart(now, l.Window)), s.Previous
	room := l.Count - s.Current - cost
	if room < 0 {
		start, weighed, room = add(start, l.Window), s.Current, l.Count-cost
	}
	e := int64(l.Window) - mulDivDown(room, int64(l.Window), weighed) // more than 0, since the cost does not fit
	return sub(add(start, Micros(e)), now)
}

func (s SlidingWindow) freshAfter(l Limit, now Micros) Micros {
	ahead := sub(s.Start, now)
	switch {
	case s.Current > 0:
		return 2*l.Window + ahead
	case s.Previous > 0:
		return l.Window + ahead
	}
	return 0
}

// windowStart is the start of the window that holds now; instants before the base round down as well.
func windowStart(now, window Micros) Micros {
	r := now % window
	if r < 0 {
		r += window
	}
	return now - r
}

// nextStart is the first start of a window at or after the instant at.
func nextStart(at, window Micros) Micros {
	if start := windowStart(at, window); start != at {
		return add(start, window)
	}
	return at
}

// saturate is a+b for a, b ≥ 0, held at twice [MaxCount], which is above every limit.
func saturate(a, b int64) int64 {
	const top = 2 * MaxCount
	if a > top || b > top || a+b > top {
		return top
	}
	return a + b
}
