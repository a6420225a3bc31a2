package valkey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/rule"
)

// Strategy is how counters are kept on a server.
type Strategy uint8

// The strategies.
const (
	Auto     Strategy = iota // Function, unless the server has no functions: then Commands
	Function                 // a function library decides in one atomic step
	Commands                 // plain commands, for the algorithms that count in windows
)

// ParseStrategy reads a strategy's name.
func ParseStrategy(name string) (Strategy, error) {
	for s := Auto; s <= Commands; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return Auto, fmt.Errorf("%q is no strategy: want auto, function, commands", name)
}

// String is the strategy's name.
func (s Strategy) String() string { return [...]string{"auto", "function", "commands"}[s] }

// Supports tells whether a strategy keeps an algorithm: Auto as Function does.
func (s Strategy) Supports(a rule.Algorithm) bool {
	return s != Commands || a == rule.SlidingWindow || a == rule.FixedWindow
}

// Unsupported tells which rules of file, kept in a store, are of an algorithm that supports denies.
func Unsupported(file string, set *rule.Set, supports func(rule.Algorithm) bool) (faults rule.Faults) {
	for r := range set.Rules() {
		if r.Where == rule.Origin && !supports(r.Algorithm) {
			faults = append(faults, rule.Fault{At: rule.Source{File: file, Line: int(r.Line)}, Field: fmt.Sprintf("rules[%d].algorithm", r.Index), Value: r.Algorithm.String(),
				Want: "rule " + r.Name + " needs functions, which store.strategy commands, or a server without them, does not have: want sliding-window, fixed-window, or another server"})
		}
	}
	return faults
}

// strategy carries out what [limiter.Store] promises, by requests to servers.
type strategy interface {
	take(ctx context.Context, c *limiter.Call) error
	refund(ctx context.Context, c *limiter.Call) error
	reset(ctx context.Context, c *limiter.Call) error
	// prepare gives a server that was connected to what it needs; probe asks it as a check would, charging nobody.
	prepare(ctx context.Context, n *node, client valkey.Client) error
	probe(ctx context.Context, n *node) error
	supports(a rule.Algorithm) bool
	// clockEvery is how often a server that answers has to be asked for its time.
	clockEvery() time.Duration
}

var (
	errUndecided   = errors.New("not connected yet")
	errNoFunctions = errors.New("the server has no functions")
)

// startStrategy chooses what needs no server to tell.
func (s *Store) startStrategy() {
	switch s.options.Strategy {
	case Function:
		s.choose(&functions{s})
	case Commands:
		s.choose(newCommands(s))
	}
}

func (s *Store) choose(st strategy) { s.strategy.Store(&st) }

// chosen is the strategy in force.
func (s *Store) chosen() (strategy, error) {
	if st := s.strategy.Load(); st != nil {
		return *st, nil
	}
	return nil, &limiter.StoreError{Reason: reasonUnreachable, Err: errUndecided}
}

// prepare makes a server ready for checks; the first one says what auto means.
func (s *Store) prepare(ctx context.Context, n *node, client valkey.Client) error {
	if st := s.strategy.Load(); st != nil {
		return (*st).prepare(ctx, n, client)
	}
	var st strategy = &functions{s}
	kind := Function
	err := st.prepare(ctx, n, client)
	if errors.Is(err, errNoFunctions) {
		st, kind = newCommands(s), Commands
		err = st.prepare(ctx, n, client)
	}
	if err == nil && s.strategy.CompareAndSwap(nil, &st) {
		s.options.Log.Info("store strategy", "store", n.addr, "strategy", kind.String())
		if s.options.OnStrategy != nil {
			s.options.OnStrategy(kind)
		}
	}
	return err
}
