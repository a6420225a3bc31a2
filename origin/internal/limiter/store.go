package limiter

import (
	"context"
	"fmt"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Store holds counters. Implementations are safe for concurrent use.
type Store interface {
	// Take decides all charges at once, as one atomic step, at now or by the store's own clock where processes share it.
	// Only if every one is admitted are they charged, all of them; otherwise none is. A charge of cost 0 asks without
	// charging. It fills outcomes, which is as long as charges. An error, best a [*StoreError], means that nothing is
	// known: the charges may have been made or not.
	Take(ctx context.Context, now limit.Micros, charges []Charge, outcomes []Outcome) error
}

// Fallback is a store in this process, which answers for rules whose counter cannot be asked.
type Fallback interface {
	Store
	// Refund gives back charges that were taken at the instant charged. It never makes a counter.
	Refund(now limit.Micros, charges []Charge, charged limit.Micros)
}

// Charge asks for cost from a counter.
type Charge struct {
	Counter   Counter
	Algorithm rule.Algorithm
	Limit     limit.Limit
	Offset    limit.Micros // of a fixed window; 0 for all else
	Cost      int64
}

// Status is what a store says about one charge.
type Status uint8

// The statuses.
const (
	Admitted Status = iota // by this counter; charged only if every other is Admitted
	Refused
	Foreign // what is stored under the name is no counter of ours
)

// Outcome is a store's answer to one charge.
type Outcome struct {
	Status Status
	// Decision is about this call: with what is left after it where all charges were admitted, so that they were made, else
	// as the counter stands. It is meaningless for Foreign.
	Decision limit.Decision
	// Next is what a call of cost 1 would be answered right after this one, if that was charged.
	Next limit.Decision
}

// StoreError is a failed request to a store.
type StoreError struct {
	Reason string // one of a fixed few words, for metrics: deadline, unreachable, busy, stale, answer
	Err    error
}

// Error names the reason with the cause.
func (e *StoreError) Error() string { return fmt.Sprintf("store %s: %v", e.Reason, e.Err) }

// Unwrap is the cause.
func (e *StoreError) Unwrap() error { return e.Err }
