// Package limit decides whether a call fits its limit.
//
// Every algorithm is a small state value with the same three methods. Take charges a call, Peek asks without
// charging, Refund gives a charge back. State, now and cost go in; state and [Decision] come out. Nothing here
// reads a clock, allocates, locks or logs, so that the edge (Wasm) and the origin run the very same code.
//
// Arithmetic is exact: products go through 128 bits, fractions are kept as remainders, no float decides anything.
// Within the bounds of [Limit.Check] no operation wraps.
package limit

import (
	"errors"
	"math"
	"math/bits"
)

// Micros is an instant or a duration in microseconds. Instants count from a base that all users of one counter
// share: the Unix epoch at the origin, Envoy's monotonic clock at the edge.
type Micros int64

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

// Errors of [Limit.Check] and [CheckCost], each naming its bound.
var (
	ErrCount  = errors.New("count must be 0 to 9007199254740991 (2^53-1)")
	ErrWindow = errors.New("window must be 1ms to 366d")
	ErrBurst  = errors.New("burst must be 1 to 9007199254740991 (2^53-1)")
	ErrRefill = errors.New("burst x window / count, the time from empty to full, must be at most 36600 days")
	ErrCost   = errors.New("cost must be 0 to 9007199254740991 (2^53-1)")
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
}

// refused builds the decision of a call whose cost is outside the limit's reach for good.
func never(quota, remaining int64, reset Micros) Decision {
	return Decision{Limit: quota, Remaining: remaining, RetryAfter: Never, ResetAfter: reset}
}

// mulDivUp is ceil(a·b/c) for a, b ≥ 0 and c > 0, or math.MaxInt64 where that does not fit.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, r := bits.Div64(hi, lo, uint64(c))
	if r > 0 {
		q++
	}
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}

// mulDivDown is floor(a·b/c) for a, b ≥ 0 and c > 0, or math.MaxInt64 where that does not fit.
func mulDivDown(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}

// productAtMost tells whether a·b ≤ c·d, all factors ≥ 0.
func productAtMost(a, b, c, d int64) bool {
	abHi, abLo := bits.Mul64(uint64(a), uint64(b))
	cdHi, cdLo := bits.Mul64(uint64(c), uint64(d))
	return abHi < cdHi || abHi == cdHi && abLo <= cdLo
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
