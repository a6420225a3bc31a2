package limiter

import (
	"context"
	"fmt"
	"time"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Store holds counters. Implementations are safe for concurrent use. A [Call] is its caller's again once a method has
// returned. An error, best a [*StoreError], means that nothing is known: what was asked for may have been done or not.
type Store interface {
	// Take decides all charges, at Call.Now or by the store's own clock where processes share it. The enforced ones, which
	// have no Shadow, are all-or-none: only if every one is Admitted are they charged, all of them. Each shadow charge is
	// decided and charged as if it were the only one. A charge of cost 0 asks without charging. It fills Outcomes.
	//
	// A store in parts may lose some of them: their charges are Lost, and the others are charged if the rest of them are
	// Admitted, so that it is up to the caller to go on or to Refund.
	Take(ctx context.Context, c *Call) error
	// Refund gives back what Take charged for c, whose Outcomes are as Take left them, at most what is still owed, into the
	// window that it was charged in. It never makes a counter. A call with an ID is forgotten.
	Refund(ctx context.Context, c *Call) error
	// Reset forgets the counters of all charges, so that each is as one that was never used.
	Reset(ctx context.Context, c *Call) error
}

// Call is what one request asks of a store.
type Call struct {
	Now limit.Micros
	// By, if not zero, is when the call is answered at the latest, whatever is still asked for it: a bound on time sets it
	// at the first of its requests.
	By time.Time
	// ID, if not zero, names a call that its sender may repeat: while it is remembered, for [IDKept] from its admission
	// on, the same call is Admitted again with nothing charged.
	ID       CallID
	Charges  []Charge
	Outcomes []Outcome // as many as Charges
}

// CallID is a keyed hash of a request id, of who sent it, with the principal that is charged.
type CallID [16]byte

// IDKept is how long a store remembers a CallID.
const IDKept = limit.Minute

// Charge asks for cost from a counter.
type Charge struct {
	Counter Counter
	// Former is the counter's name under the secret that is being replaced, in the same slot; zero while there is one
	// secret. See [Rotation].
	Former    Counter
	Algorithm rule.Algorithm
	Limit     limit.Limit
	Offset    limit.Micros // of a fixed window; 0 for all else
	Cost      int64
	Shadow    bool // decided and charged by itself, whatever becomes of the other charges
	Existing  bool // a counter that does not exist is not made: its charge is Unmade
}

// Status is what a store says about one charge.
type Status uint8

// The statuses. Any of an enforced charge but Admitted and Lost keeps every enforced charge of its call from being made.
const (
	Admitted Status = iota // by this counter
	Refused
	Foreign // what is stored under the name is no counter of ours
	Unmade  // there is no such counter, and it was not to be made
	Lost    // the part of the store that has the counter did not answer: it may have been charged
)

// Outcome is a store's answer to one charge.
type Outcome struct {
	Status Status
	// Charged tells whether the charge was made by this call: not by one whose ID is remembered.
	Charged bool
	// Decision is about this call: with what is left after it where it was charged, else as the counter stands. It has a
	// meaning for Admitted and Refused alone, and says Allowed for the one and not for the other: also for a repeated
	// call, whose counter may be used up by now.
	Decision limit.Decision
	// Next is what a call of cost 1 would be answered right after this one, if this one was charged.
	Next limit.Decision
	// AskAgain is how long a refusal, by Decision or else by Next, may be answered from memory: the wait that it tells, or
	// less where that may be too long, since others' charges are still to be given back.
	AskAgain limit.Micros
	// At is the instant that Refund wants: when it was charged, by the store's clock; of a leaky queue, when the call may
	// go on.
	At limit.Micros
	// Made tells that the counter did not exist before this call charged it.
	Made bool
	// Shared tells that a store without room for the counter charged one that strangers share in place of it.
	Shared bool
	Err    error // why it is Lost
}

// StoreError is a failed request to a store.
type StoreError struct {
	Reason string // one of a fixed few words, for metrics: deadline, unreachable, stale, answer, [Busy] or [Open]
	Err    error
}

// Reasons of a store that was not asked at all.
const (
	// Busy is that too many calls of this process wait for it already. It is this process that has no room, whatever its
	// store can do.
	Busy = "busy"
	// Open is that it failed too often, and is left alone for a while.
	Open = "open"
)

// Asked tells whether the store may have done what it was asked.
func (e *StoreError) Asked() bool { return e.Reason != Busy && e.Reason != Open }

// Error is the cause with the reason.
func (e *StoreError) Error() string { return fmt.Sprintf("store: %v (%s)", e.Err, e.Reason) }

// Unwrap is the cause.
func (e *StoreError) Unwrap() error { return e.Err }
