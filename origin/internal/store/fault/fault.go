// Package fault wraps a store that fails on a test's command.
package fault

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weirproject/weir/origin/internal/limiter"
)

// Op is a request to a store.
type Op uint8

// The requests, as a set.
const (
	Take Op = 1 << iota
	Refund
	Reset
	Any = Take | Refund | Reset
)

// Fault is what goes wrong with a request. The zero value is no fault: the request is done, and answered.
type Fault struct {
	On    Op  // which requests; 0 stands for [Any]
	Times int // how many of them; 0: all, until [Store.Heal]

	// Gate, if not nil, holds the request back until it opens. A context that ends first is a failure with the reason
	// "deadline", and nothing is done.
	Gate *Gate
	// Reason, if not "", is that of a [limiter.StoreError] in place of an answer.
	Reason string
	// Done has a request with a Reason done all the same: its reply is what was lost.
	Done bool
	// Twice has the request done twice, as by a sender that did not know that it had arrived. The first is answered.
	Twice bool
	// Lost tells which counters are in a part of the store that fails, with Reason or else "unreachable", while the rest
	// answers. With Done their charges are made all the same. When all of a call's are lost, the call fails.
	Lost func(limiter.Counter) bool
}

var errInjected = errors.New("injected by a test")

func (f Fault) err() error {
	reason := f.Reason
	if reason == "" {
		reason = "unreachable"
	}
	return &limiter.StoreError{Reason: reason, Err: errInjected}
}

// Gate holds requests. It is made by [NewGate].
type Gate struct {
	arrived chan struct{}
	open    chan struct{}
	once    sync.Once
}

// NewGate makes a closed gate.
func NewGate() *Gate { return &Gate{arrived: make(chan struct{}), open: make(chan struct{})} }

// Arrived gives a value for each request that is held, once somebody receives it.
func (g *Gate) Arrived() <-chan struct{} { return g.arrived }

// Open lets all requests through, those held and those to come.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

func (g *Gate) wait(ctx context.Context) error {
	arrived := g.arrived
	for {
		select {
		case arrived <- struct{}{}:
			arrived = nil // it is told once
		case <-g.open:
			return nil
		case <-ctx.Done():
			return &limiter.StoreError{Reason: "deadline", Err: ctx.Err()}
		}
	}
}

// Request is one that the store was asked, as it was asked.
type Request struct {
	Op   Op
	Call limiter.Call
}

// Store is a [limiter.Store] in front of another one, which it passes all requests to as long as there is no fault. It is
// safe for concurrent use.
type Store struct {
	behind limiter.Store

	mu     sync.Mutex
	faults []Fault
	spoilt map[limiter.Counter]bool
	asked  []Request
}

// New makes a store without a fault.
func New(behind limiter.Store) *Store {
	return &Store{behind: behind, spoilt: map[limiter.Counter]bool{}}
}

// Behind is the store that requests are passed to.
func (s *Store) Behind() limiter.Store { return s.behind }

// Inject adds a fault. A request meets the first one, in the order they were added, that is about it.
func (s *Store) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.On == 0 {
		f.On = Any
	}
	if f.Times == 0 {
		f.Times = -1
	}
	s.faults = append(s.faults, f)
}

// Heal ends all faults. Requests that a gate holds stay there until it opens.
func (s *Store) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
	clear(s.spoilt)
}

// Spoil puts a foreign value under a counter's name, until the counter is reset.
func (s *Store) Spoil(c limiter.Counter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoilt[c] = true
}

// Asked are the requests since it was called last, in the order they came.
func (s *Store) Asked() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// meet notes a request, giving the fault that it meets.
func (s *Store) meet(op Op, c *limiter.Call) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := *c // a call is its caller's again, so the record has slices of its own
	call.Charges, call.Outcomes = slices.Clone(c.Charges), slices.Clone(c.Outcomes)
	s.asked = append(s.asked, Request{op, call})
	for i, f := range s.faults {
		if f.On&op == 0 {
			continue
		}
		if s.faults[i].Times--; s.faults[i].Times == 0 {
			s.faults = slices.Delete(s.faults, i, i+1)
		}
		return f
	}
	return Fault{}
}

// do passes a request on, as the fault will have it.
func (s *Store) do(ctx context.Context, f Fault, c *limiter.Call, request func(context.Context, *limiter.Call) error) error {
	if f.Gate != nil {
		if err := f.Gate.wait(ctx); err != nil {
			return err
		}
	}
	if f.Lost != nil {
		return s.part(ctx, f, c, request)
	}
	if f.Reason != "" {
		if f.Done {
			unseen := copyOf(c)
			if err := request(ctx, &unseen); err != nil {
				return err
			}
		}
		return f.err()
	}
	again := copyOf(c)
	err := request(ctx, c)
	if f.Twice && err == nil {
		err = request(ctx, &again)
	}
	return err
}

// copyOf is a call whose outcomes nobody sees.
func copyOf(c *limiter.Call) limiter.Call {
	call := *c
	call.Outcomes = slices.Clone(c.Outcomes)
	return call
}

// part passes on what is in the parts that answer.
func (s *Store) part(ctx context.Context, f Fault, c *limiter.Call, request func(context.Context, *limiter.Call) error) error {
	here, gone := limiter.Call{Now: c.Now, ID: c.ID}, limiter.Call{Now: c.Now, ID: c.ID}
	var at []int // the places of here's charges
	for i, charge := range c.Charges {
		part := &here
		if f.Lost(charge.Counter) {
			part = &gone
			c.Outcomes[i] = limiter.Outcome{Status: limiter.Lost, Err: f.err()}
		} else {
			at = append(at, i)
		}
		part.Charges, part.Outcomes = append(part.Charges, charge), append(part.Outcomes, c.Outcomes[i])
	}
	if f.Done && len(gone.Charges) > 0 {
		gone.ID = limiter.CallID{} // the store behind is one: it would take the rest for a repeat
		if err := request(ctx, &gone); err != nil {
			return err
		}
	}
	if len(here.Charges) == 0 && len(gone.Charges) > 0 {
		return f.err()
	}
	if err := request(ctx, &here); err != nil {
		return err
	}
	for i, place := range at {
		c.Outcomes[place] = here.Outcomes[i]
	}
	return nil
}
