// Package breaker spares callers the wait for a part of the store that fails.
package breaker

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
)

// A part that fails more than one call in twenty within a second is left alone for five, then asked by one call. Below
// twenty calls a second a share says nothing: one failure of ten is chance.
const (
	Window     = time.Second
	MinSample  = 20
	MaxFailing = 20 // one call in so many
	OpenTime   = 5 * time.Second

	bucket = 100 * time.Millisecond // by which the window moves on
)

// State is a breaker's, as the metric weir_breaker_state shows it.
type State int

// The states.
const (
	Closed  State = iota // calls go through
	Probing              // one call went through, the others wait for its end
	Open                 // no call goes through
)

// String is the state's name in lower case.
func (s State) String() string { return [...]string{"closed", "probing", "open"}[s] }

// Result is how a call that went through came out.
type Result uint8

// The results.
const (
	OK Result = iota
	Failed
	Void // says nothing about the part: its caller went away
)

var (
	errVoid = errors.New("void")
	results = [...]error{OK: nil, Failed: errors.New("failed"), Void: errVoid}
)

// Breaker is the breaker of one part. Make it with [New]. It is safe for concurrent use.
type Breaker struct {
	two *gobreaker.TwoStepCircuitBreaker[struct{}]
}

// New makes a closed breaker. onChange, which may be nil, is called at each change of state, one call at a time; it must
// not call the breaker.
func New(onChange func(State)) *Breaker {
	return &Breaker{gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1, Interval: Window, BucketPeriod: bucket, Timeout: OpenTime,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			ended := c.TotalSuccesses + c.TotalFailures
			return ended >= MinSample && c.TotalFailures*MaxFailing > ended
		},
		IsExcluded: func(err error) bool { return err == errVoid },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if onChange != nil {
				onChange(stateOf(to))
			}
		},
	})}
}

// Allow asks whether a call may go through. If it may, done is to be called once with how it came out, at most by its
// deadline: while the part is probed everybody waits for that.
func (b *Breaker) Allow() (done func(Result), ok bool) {
	began := time.Now()
	report, err := b.two.Allow()
	if err != nil {
		return nil, false
	}
	return func(r Result) {
		// gobreaker counts a call at its beginning, and forgets one that began before the window: with a deadline of a
		// second and more a part that answers nobody would never be left alone.
		if time.Since(began) >= Window-bucket && b.two.State() == gobreaker.StateClosed {
			report(errVoid)
			if report, err = b.two.Allow(); err != nil {
				return
			}
		}
		report(results[r])
	}, true
}

// State is the state now. A part that was left alone for long enough is Probing, though no call may have come yet.
func (b *Breaker) State() State { return stateOf(b.two.State()) }

func stateOf(s gobreaker.State) State {
	switch s {
	case gobreaker.StateOpen:
		return Open
	case gobreaker.StateHalfOpen:
		return Probing
	}
	return Closed
}
