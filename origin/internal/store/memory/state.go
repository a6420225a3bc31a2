package memory

import (
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// state is the state of any algorithm: a [rule.Algorithm] says how to read it. Fields rather than an interface, so that a
// counter is one block without an allocation of its own; a log alone has one.
type state struct {
	algorithm  rule.Algorithm
	a, b, c, d int64
	log        *limit.SlidingLog // nil for one that was never used
}

// fresh is the state of a counter that was never used.
func fresh(c *limiter.Charge, now limit.Micros) state {
	switch c.Algorithm {
	case rule.TokenBucket:
		return tokenBucket(limit.FullTokenBucket(c.Limit, now))
	case rule.GCRA:
		return gcra(limit.FullGCRA(c.Limit, now))
	}
	return state{algorithm: c.Algorithm}
}

func tokenBucket(s limit.TokenBucket) state {
	return state{algorithm: rule.TokenBucket, a: s.Tokens, b: s.Part, c: int64(s.Last), d: s.Count}
}

func (s *state) tokenBucket() limit.TokenBucket {
	return limit.TokenBucket{Tokens: s.a, Part: s.b, Last: limit.Micros(s.c), Count: s.d}
}

func gcra(s limit.GCRA) state {
	return state{algorithm: rule.GCRA, a: int64(s.Spent), b: s.Part, c: s.Count, d: int64(s.Window)}
}

func (s *state) gcra() limit.GCRA {
	return limit.GCRA{Spent: limit.Micros(s.a), Part: s.b, Count: s.c, Window: limit.Micros(s.d)}
}

func slidingWindow(s limit.SlidingWindow) state {
	return state{algorithm: rule.SlidingWindow, a: int64(s.Start), b: s.Current, c: s.Previous}
}

func (s *state) slidingWindow() limit.SlidingWindow {
	return limit.SlidingWindow{Start: limit.Micros(s.a), Current: s.b, Previous: s.c}
}

func fixedWindow(s limit.FixedWindow) state {
	return state{algorithm: rule.FixedWindow, a: int64(s.Start), b: s.Used}
}

func (s *state) fixedWindow() limit.FixedWindow {
	return limit.FixedWindow{Start: limit.Micros(s.a), Used: s.b}
}

func leaky(algorithm rule.Algorithm, s limit.LeakyBucket) state {
	return state{algorithm: algorithm, a: s.Level, b: s.Part, c: int64(s.Last), d: s.Count}
}

func (s *state) leaky() limit.LeakyBucket {
	return limit.LeakyBucket{Level: s.a, Part: s.b, Last: limit.Micros(s.c), Count: s.d}
}

// take charges c's cost, or re-anchors a state beyond a clock step.
func (s *state) take(c *limiter.Charge, now limit.Micros) (next state, d limit.Decision) {
	switch s.algorithm {
	case rule.TokenBucket:
		n, d := s.tokenBucket().Take(c.Limit, now, c.Cost)
		return tokenBucket(n), d
	case rule.GCRA:
		n, d := s.gcra().Take(c.Limit, now, c.Cost)
		return gcra(n), d
	case rule.FixedWindow:
		n, d := s.fixedWindow().Take(c.Limit, now, c.Cost, c.Offset)
		return fixedWindow(n), d
	case rule.LeakyBucket:
		n, d := s.leaky().Take(c.Limit, now, c.Cost)
		return leaky(s.algorithm, n), d
	case rule.LeakyQueue:
		n, d := limit.LeakyQueue(s.leaky()).Take(c.Limit, now, c.Cost)
		return leaky(s.algorithm, limit.LeakyBucket(n)), d
	case rule.SlidingLog:
		next = *s
		if next.log == nil {
			next.log = &limit.SlidingLog{}
		}
		*next.log, d = next.log.Take(c.Limit, now, c.Cost) // a log's memory goes over to the next one
		return next, d
	default:
		n, d := s.slidingWindow().Take(c.Limit, now, c.Cost)
		return slidingWindow(n), d
	}
}

// peek tells what take would answer to a call of some cost.
func (s *state) peek(c *limiter.Charge, now limit.Micros, cost int64) limit.Decision {
	switch s.algorithm {
	case rule.TokenBucket:
		return s.tokenBucket().Peek(c.Limit, now, cost)
	case rule.GCRA:
		return s.gcra().Peek(c.Limit, now, cost)
	case rule.FixedWindow:
		return s.fixedWindow().Peek(c.Limit, now, cost, c.Offset)
	case rule.LeakyBucket:
		return s.leaky().Peek(c.Limit, now, cost)
	case rule.LeakyQueue:
		return limit.LeakyQueue(s.leaky()).Peek(c.Limit, now, cost)
	case rule.SlidingLog:
		if s.log == nil {
			return limit.SlidingLog{}.Peek(c.Limit, now, cost)
		}
		return s.log.Peek(c.Limit, now, cost)
	default:
		return s.slidingWindow().Peek(c.Limit, now, cost)
	}
}

// refund gives back what c was charged at the instant charged.
func (s *state) refund(c *limiter.Charge, now, charged limit.Micros) state {
	switch s.algorithm {
	case rule.TokenBucket:
		return tokenBucket(s.tokenBucket().Refund(c.Limit, now, c.Cost))
	case rule.GCRA:
		return gcra(s.gcra().Refund(c.Limit, now, c.Cost))
	case rule.FixedWindow:
		return fixedWindow(s.fixedWindow().Refund(c.Limit, now, c.Cost, charged, c.Offset))
	case rule.LeakyBucket:
		return leaky(s.algorithm, s.leaky().Refund(c.Limit, now, c.Cost))
	case rule.LeakyQueue:
		return leaky(s.algorithm, limit.LeakyBucket(limit.LeakyQueue(s.leaky()).Refund(c.Limit, now, c.Cost, charged)))
	case rule.SlidingLog:
		*s.log = s.log.Refund(c.Limit, now, c.Cost, charged)
		return *s
	default:
		return slidingWindow(s.slidingWindow().Refund(c.Limit, now, c.Cost, charged))
	}
}

// freshAfter is the time until the state equals a fresh one.
func (s *state) freshAfter(c *limiter.Charge, now limit.Micros) limit.Micros {
	return s.peek(c, now, 1).ResetAfter
}
