package limiter

import "github.com/weirproject/weir/shared/limit"

// Share is what one of n processes may admit of a limit by itself while they share no counter: an n-th of its count and of
// its burst, rounded down, at least 1 of each. So all of them together admit at most the limit where it is n or more, else n. A
// count of 0 stays 0. Below one process there is none: n < 1 counts as 1.
func Share(l limit.Limit, n int64) limit.Limit {
	if n <= 1 || l.Count == 0 {
		return l
	}
	whole := l
	l.Count = max(1, l.Count/n)
	if l.Burst > 0 {
		l.Burst = max(1, l.Burst/n)
	}
	if l.Check() != nil && whole.Check() == nil {
		// Rounding a count down lengthens the time to full, by less than twice: beyond what can be computed, of limits that
		// are near that bound. A burst of the count fills in one window.
		l.Burst = 0
	}
	return l
}

// processes is how many share the limits, as far as is known.
func (l *Limiter) processes() int64 {
	if l.o.Processes == nil {
		return 1
	}
	return l.o.Processes()
}
