// Package limit decides whether a call fits its limit.
//
// Every algorithm is a small state value with the same methods. Take charges a call, Peek asks without charging, Refund
// gives a charge back, FullAfter, EmptyAfter or FreshAfter tells how long the state is worth keeping. State, now and cost go in; state
// and [Decision] come out. Nothing here reads a clock, locks or logs, and nothing but [SlidingLog] allocates, so that the
// edge (Wasm) and the origin run the very same code.
//
// Arithmetic is exact: products go through 128 bits, fractions are kept as remainders, no float decides anything.
// Within the bounds of [Limit.Check], at instants from 0 to 2^61 µs, no operation wraps. A state that was damaged on its way
// is answered all the same: a field out of its range counts to the strict side.
package limit

import (
	"math"
	"math/bits"
)

// Micros is an instant or a duration in microseconds. Instants count from a base that all users of one counter
// share: the Unix epoch at the origin, Envoy's monotonic clock at the edge.
type Micros int64

// After is the instant that lies wait ≥ 0 past m; [Never] for what lies beyond all instants.
func (m Micros) After(wait Micros) Micros { return add(m, wait) }

// Until is how long after m the instant is, 0 for one that has passed, [Never] for Never.
func (m Micros) Until(instant Micros) Micros {
	if instant == Never {
		return Never
	}
	return max(0, instant-m)
}

// Durations that rules are written in.
const (
	Millisecond Micros = 1_000
	Second             = 1_000 * Millisecond
	Minute             = 60 * Second
	Hour               = 60 * Minute
	Day                = 24 * Hour
)

// Bounds of a [Limit]. Counts and costs stay where a store's doubles are exact; windows stay where a window of
// microseconds, times such a count, fits 128 bits with room to add.
const (
	MaxCount  int64  = 1<<53 - 1
	MinWindow Micros = Millisecond
	MaxWindow Micros = 366 * Day
	// MaxRefill bounds the time a bucket takes from empty to full, so that every instant it computes fits Micros.
	MaxRefill Micros = 100 * 366 * Day
)

// Never is the RetryAfter of a cost that the limit can never admit, however long the caller waits.
const Never Micros = math.MaxInt64

// Limit is how much of something may happen: Count per Window. Burst is the capacity of a bucket; 0 stands for
// Count, and window algorithms ignore it. A Count of 0 denies everything.
type Limit struct {
	Count  int64
	Window Micros
	Burst  int64
}

// outOfBounds is an error that needs no package of its own: errors would add 12 kB to a Wasm module.
type outOfBounds string

func (e outOfBounds) Error() string { return string(e) }

// Errors of [Limit.Check] and [CheckCost], each naming its bound.
var (
	ErrCount  error = outOfBounds("count must be 0 to 9007199254740991 (2^53-1)")
	ErrWindow error = outOfBounds("window must be 1ms to 366d")
	ErrBurst  error = outOfBounds("burst must be 1 to 9007199254740991 (2^53-1)")
	ErrRefill error = outOfBounds("burst x window / count, the time from empty to full, must be at most 36600 days")
	ErrCost   error = outOfBounds("cost must be 0 to 9007199254740991 (2^53-1)")
)

// Check tells whether l is within the bounds that all arithmetic of this package is exact in.
func (l Limit) Check() error {
	switch {
	case l.Count < 0 || l.Count > MaxCount:
		return ErrCount
	case l.Window < MinWindow || l.Window > MaxWindow:
		return ErrWindow
	case l.Burst < 0 || l.Burst > MaxCount:
		return ErrBurst
	case l.Count > 0 && mulDivUp(l.Capacity(), int64(l.Window), l.Count) > int64(MaxRefill):
		return ErrRefill
	}
	return nil
}

// CheckCost tells whether a cost is one that a decision may be asked about.
func CheckCost(cost int64) error {
	if cost < 0 || cost > MaxCount {
		return ErrCost
	}
	return nil
}

// Capacity is what a bucket of this limit holds when full: Burst, or Count where no burst is given. A limit of
// count 0 holds nothing.
func (l Limit) Capacity() int64 {
	if l.Burst == 0 || l.Count == 0 {
		return l.Count
	}
	return l.Burst
}

// Decision is the answer to one call against one limit.
type Decision struct {
	Allowed bool
	// Limit is the quota a caller may spend at once: the capacity of a bucket, the count of a window.
	Limit int64
	// Remaining is what is left after this call, never negative.
	Remaining int64
	// RetryAfter is 0 for an allowed call, [Never] for a cost that can never pass, else the exact time after
	// which the same call is admitted, and before which it is refused, if nothing else happens.
	RetryAfter Micros
	// ResetAfter is the time until the state equals a fresh one, if nothing else happens.
	ResetAfter Micros
	// Hold is how long an allowed call has to wait before it may go on. Only [LeakyQueue] holds calls.
	Hold Micros
}

// mulAddDiv is (a·b + plus) / c as quotient and remainder for c > 0; ok tells whether the quotient fits 64 bits.
func mulAddDiv(a, b, plus, c uint64) (quotient, rest uint64, ok bool) {
	hi, lo := bits.Mul64(a, b)
	lo, carry := bits.Add64(lo, plus, 0)
	return div(hi+carry, lo, c)
}

// mulSubDiv is (a·b - minus) / c as quotient and remainder for a·b ≥ minus and c > 0; ok as in mulAddDiv.
func mulSubDiv(a, b, minus, c uint64) (quotient, rest uint64, ok bool) {
	hi, lo := bits.Mul64(a, b)
	lo, borrow := bits.Sub64(lo, minus, 0)
	return div(hi-borrow, lo, c)
}

// div tells 64-bit dividends apart because Wasm and 32-bit targets have no wider division: there it is several times
// faster, here it costs nothing.
func div(hi, lo, c uint64) (quotient, rest uint64, ok bool) {
	if hi == 0 {
		return lo / c, lo % c, true
	}
	if hi >= c {
		return 0, 0, false
	}
	quotient, rest = bits.Div64(hi, lo, c)
	return quotient, rest, true
}

// roundUp is the duration of whole µs and a started one where rest > 0, [Never] where it does not fit Micros.
func roundUp(whole, rest uint64, ok bool) Micros {
	if !ok || whole >= uint64(Never) {
		return Never
	}
	if rest > 0 {
		whole++
	}
	return Micros(whole)
}

// mulDivUp is ceil(a·b/c) for a, b ≥ 0 and c > 0, or math.MaxInt64 where that does not fit.
func mulDivUp(a, b, c int64) int64 {
	return int64(roundUp(mulAddDiv(uint64(a), uint64(b), 0, uint64(c))))
}

// mulDivDown is floor(a·b/c) for a, b ≥ 0 and c > 0, or math.MaxInt64 where that does not fit.
func mulDivDown(a, b, c int64) int64 {
	q, _, ok := mulAddDiv(uint64(a), uint64(b), 0, uint64(c))
	if !ok || q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}

// asked is the cost that a call is judged by: 0, a peek, asks for 1.
func asked(cost int64) int64 {
	if cost == 0 {
		return 1
	}
	return cost
}

// sub is a-b without wrapping: an instant that lies further back than Micros reaches counts as the furthest.
func sub(a, b Micros) Micros {
	d := a - b
	if (a >= b) != (d >= 0) {
		if a >= b {
			return math.MaxInt64
		}
		return math.MinInt64
	}
	return d
}

// add is a+b for b ≥ 0, held at the largest Micros.
func add(a, b Micros) Micros {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
