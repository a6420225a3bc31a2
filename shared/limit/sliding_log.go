package limit

// MaxLogCount is the largest Count of a [SlidingLog], and so the most entries that one keeps: 160 kB a counter.
const MaxLogCount = 10_000

// ErrLogCount is what [Limit.CheckLog] says of a count that a log would grow too long for.
var ErrLogCount error = outOfBounds("count of a sliding log must be 0 to 10000")

// CheckLog is [Limit.Check] with the bound of a [SlidingLog].
func (l Limit) CheckLog() error {
	if l.Count > MaxLogCount {
		return ErrLogCount
	}
	return l.Check()
}

// SlidingLog is the state of a sliding log: the instant and cost of each admitted call of the last Window. It is exact: no
// interval of Window ever sees more than Count. Refused calls are not stored, so a caller who hammers does not lengthen
// the log, which holds at most Count entries. The zero value is a counter that was never used.
//
// A changed limit applies at once to the calls in the log: raised, there is room at the next call; lowered, it refuses
// until enough of them have gone out of view. A count above [MaxLogCount] counts as that.
//
// Unlike other states, a log owns memory: what Take and Refund return takes over that of the log they were called on,
// which must not be used again.
type SlidingLog struct {
	entries []LogEntry // by At, no two alike
	used    int64      // sum of the costs
}

// LogEntry is what was admitted at one instant.
type LogEntry struct {
	At   Micros
	Cost int64 // 1 or more
}

// Len is the number of entries, of which some may have gone out of view.
func (s SlidingLog) Len() int { return len(s.entries) }

// Take charges cost at now. It returns the state to keep: the charged one when admitted; otherwise s unchanged, except
// that entries beyond the bound of a clock step are re-anchored. Cost 0 is a peek for cost 1. A cost outside [CheckCost] is
// refused as [Never] and changes nothing.
func (s SlidingLog) Take(l Limit, now Micros, cost int64) (next SlidingLog, d Decision) {
	at, keep := s.settle(l, now)
	if 0 < cost && cost <= logQuota(l)-at.used {
		at, d.Allowed, keep = at.with(now, cost), true, true
	} else {
		d.Allowed, d.RetryAfter = at.fits(l, now, cost)
	}
	d.Limit, d.Remaining, d.ResetAfter = logQuota(l), max(0, logQuota(l)-at.used), at.freshAfter(l, now)
	if keep {
		return at, d
	}
	return s, d
}

// Peek tells what Take would answer, with Remaining and ResetAfter as they stand before the charge. Cost 0 asks for
// cost 1, so that a limit which is just used up says refused.
func (s SlidingLog) Peek(l Limit, now Micros, cost int64) (d Decision) {
	at, _ := s.settle(l, now)
	d.Allowed, d.RetryAfter = at.fits(l, now, cost)
	d.Limit, d.Remaining, d.ResetAfter = logQuota(l), max(0, logQuota(l)-at.used), at.freshAfter(l, now)
	return d
}

// Refund gives back a charge of cost that was taken at the instant charged. A charge that is no longer in view, or was
// never made, gives nothing back. Of a charge that a late clock had logged at a later instant, the entries from charged on
// give it back, the oldest first.
func (s SlidingLog) Refund(l Limit, now Micros, cost int64, charged Micros) SlidingLog {
	if CheckCost(cost) != nil || cost == 0 {
		return s
	}
	at, _ := s.settle(l, now)
	if sub(now, charged) >= l.Window {
		return s
	}
	kept := at.entries[:0]
	for _, e := range at.entries {
		if e.At >= charged {
			back := min(cost, e.Cost)
			e.Cost, cost, at.used = e.Cost-back, cost-back, at.used-back
		}
		if e.Cost > 0 {
			kept = append(kept, e)
		}
	}
	at.entries = kept
	return at
}

// FreshAfter is the time until the state equals a fresh one: the time that a store has to keep it for.
func (s SlidingLog) FreshAfter(l Limit, now Micros) Micros {
	at, _ := s.settle(l, now)
	return at.freshAfter(l, now)
}

// logQuota is the count that a log holds its calls to.
func logQuota(l Limit) int64 { return min(l.Count, MaxLogCount) }

// settle drops what has gone out of view at now. A last entry ahead of now waits; one further ahead than a window
// can only come from a clock that stepped back, so the log is re-anchored as used up at now.
func (s SlidingLog) settle(l Limit, now Micros) (at SlidingLog, stepped bool) {
	if len(s.entries) == 0 {
		return s, false
	}
	if last := s.entries[len(s.entries)-1].At; sub(last, now) > l.Window {
		return SlidingLog{}.with(now, logQuota(l)), true
	}
	gone := 0
	for gone < len(s.entries) && sub(now, s.entries[gone].At) >= l.Window {
		s.used -= s.entries[gone].Cost
		gone++
	}
	s.entries = s.entries[gone:]
	return s, false
}

// with is the log with one more charge.
func (s SlidingLog) with(now Micros, cost int64) SlidingLog {
	if cost == 0 {
		return s
	}
	s.used += cost
	if n := len(s.entries); n > 0 && s.entries[n-1].At >= now {
		s.entries[n-1].Cost += cost
		return s
	}
	s.entries = append(s.entries, LogEntry{At: now, Cost: cost})
	return s
}

// fits tells whether a settled state has room for a cost, and if not, after which time it has.
func (s SlidingLog) fits(l Limit, now Micros, cost int64) (ok bool, retry Micros) {
	cost = asked(cost)
	switch {
	case cost < 0 || cost > logQuota(l):
		return false, Never
	case cost <= logQuota(l)-s.used:
		return true, 0
	}
	return false, s.fitsAfter(l, now, s.used+cost-logQuota(l))
}

// fitsAfter is the time until at least excess has gone out of view.
func (s SlidingLog) fitsAfter(l Limit, now Micros, excess int64) Micros {
	for _, e := range s.entries {
		if excess -= e.Cost; excess <= 0 {
			return sub(add(e.At, l.Window), now)
		}
	}
	return Never
}

func (s SlidingLog) freshAfter(l Limit, now Micros) Micros {
	if len(s.entries) == 0 {
		return 0
	}
	return sub(add(s.entries[len(s.entries)-1].At, l.Window), now)
}
