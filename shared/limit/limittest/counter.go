package limittest

import (
	"slices"

	"github.com/weirproject/weir/shared/limit"
)

// Counter is one counter of any algorithm, for tests that treat them alike.
type Counter interface {
	Take(l limit.Limit, now limit.Micros, cost int64) limit.Decision
	Peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision
	// Refund gives a charge back; charged is the instant it was taken at plus its Hold.
	Refund(l limit.Limit, now limit.Micros, cost int64, charged limit.Micros)
	// ResetAfter is the time until the counter equals a fresh one.
	ResetAfter(l limit.Limit, now limit.Micros) limit.Micros
	Clone() Counter
	// Recoded are this counter written and read: as bytes, as integers.
	Recoded() []Counter
	// State is the state value, for messages and comparisons.
	State() any
}

// Algorithms are the names that [New] knows.
var Algorithms = []string{"token-bucket", "gcra", "sliding-window", "fixed-window", "leaky-bucket", "leaky-queue", "sliding-log"}

// New is a counter that was never used; nil for an algorithm that is not known. Only fixed windows have an offset.
func New(algorithm string, l limit.Limit, now, offset limit.Micros) Counter {
	switch algorithm {
	case "token-bucket":
		return Of(limit.FullTokenBucket(l, now))
	case "gcra":
		return Of(limit.FullGCRA(l, now))
	case "sliding-window":
		return Of(limit.SlidingWindow{})
	case "fixed-window":
		return &counter[fixedWindow]{fixedWindow{offset: offset}}
	case "leaky-bucket":
		return Of(limit.LeakyBucket{})
	case "leaky-queue":
		return Of(limit.LeakyQueue{})
	case "sliding-log":
		return Of(limit.SlidingLog{})
	}
	return nil
}

// Of is a counter in this state; nil for a type that is none of package limit's.
func Of(state any) Counter {
	switch s := state.(type) {
	case limit.TokenBucket:
		return &counter[tokenBucket]{tokenBucket{s}}
	case limit.GCRA:
		return &counter[gcra]{gcra{s}}
	case limit.SlidingWindow:
		return &counter[slidingWindow]{slidingWindow{s}}
	case limit.FixedWindow:
		return &counter[fixedWindow]{fixedWindow{s: s}}
	case limit.LeakyBucket:
		return &counter[leakyBucket]{leakyBucket{s}}
	case limit.LeakyQueue:
		return &counter[leakyQueue]{leakyQueue{s}}
	case limit.SlidingLog:
		return &counter[slidingLog]{slidingLog{s}}
	}
	return nil
}

// state gives the methods of a state value, which differ a little from one to the next, one shape.
type state[S any] interface {
	take(l limit.Limit, now limit.Micros, cost int64) (S, limit.Decision)
	peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision
	refund(l limit.Limit, now limit.Micros, cost int64, charged limit.Micros) S
	resetAfter(l limit.Limit, now limit.Micros) limit.Micros
	clone() S
	recoded() []S
	value() any
}

type counter[S state[S]] struct{ s S }

func (c *counter[S]) Take(l limit.Limit, now limit.Micros, cost int64) (d limit.Decision) {
	c.s, d = c.s.take(l, now, cost)
	return d
}

func (c *counter[S]) Peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	return c.s.peek(l, now, cost)
}

func (c *counter[S]) Refund(l limit.Limit, now limit.Micros, cost int64, charged limit.Micros) {
	c.s = c.s.refund(l, now, cost, charged)
}

func (c *counter[S]) ResetAfter(l limit.Limit, now limit.Micros) limit.Micros {
	return c.s.resetAfter(l, now)
}

func (c *counter[S]) Clone() Counter { return &counter[S]{c.s.clone()} }

func (c *counter[S]) Recoded() (all []Counter) {
	for _, s := range c.s.recoded() {
		all = append(all, &counter[S]{s})
	}
	return all
}

func (c *counter[S]) State() any { return c.s.value() }

type tokenBucket struct{ s limit.TokenBucket }

func (b tokenBucket) take(l limit.Limit, now limit.Micros, cost int64) (tokenBucket, limit.Decision) {
	next, d := b.s.Take(l, now, cost)
	return tokenBucket{next}, d
}
func (b tokenBucket) peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	return b.s.Peek(l, now, cost)
}
func (b tokenBucket) refund(l limit.Limit, now limit.Micros, cost int64, _ limit.Micros) tokenBucket {
	return tokenBucket{b.s.Refund(l, now, cost)}
}
func (b tokenBucket) resetAfter(l limit.Limit, now limit.Micros) limit.Micros {
	return b.s.FullAfter(l, now)
}
func (b tokenBucket) clone() tokenBucket { return b }
func (b tokenBucket) value() any         { return b.s }
func (b tokenBucket) recoded() []tokenBucket {
	read, _ := limit.ReadTokenBucket(b.s.Append(nil))
	return []tokenBucket{{read}, {limit.TokenBucketOf(b.s.Integers())}}
}

type gcra struct{ s limit.GCRA }

func (g gcra) take(l limit.Limit, now limit.Micros, cost int64) (gcra, limit.Decision) {
	next, d := g.s.Take(l, now, cost)
	return gcra{next}, d
}
func (g gcra) peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	return g.s.Peek(l, now, cost)
}
func (g gcra) refund(l limit.Limit, now limit.Micros, cost int64, _ limit.Micros) gcra {
	return gcra{g.s.Refund(l, now, cost)}
}
func (g gcra) resetAfter(l limit.Limit, now limit.Micros) limit.Micros { return g.s.FullAfter(l, now) }
func (g gcra) clone() gcra                                             { return g }
func (g gcra) value() any                                              { return g.s }
func (g gcra) recoded() []gcra {
	read, _ := limit.ReadGCRA(g.s.Append(nil))
	return []gcra{{read}, {limit.GCRAOf(g.s.Integers(), g.s.Window)}}
}

type slidingWindow struct{ s limit.SlidingWindow }

func (w slidingWindow) take(l limit.Limit, now limit.Micros, cost int64) (slidingWindow, limit.Decision) {
	next, d := w.s.Take(l, now, cost)
	return slidingWindow{next}, d
}
func (w slidingWindow) peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	return w.s.Peek(l, now, cost)
}
func (w slidingWindow) refund(l limit.Limit, now limit.Micros, cost int64, charged limit.Micros) slidingWindow {
	return slidingWindow{w.s.Refund(l, now, cost, charged)}
}
func (w slidingWindow) resetAfter(l limit.Limit, now limit.Micros) limit.Micros {
	return w.s.FreshAfter(l, now)
}
func (w slidingWindow) clone() slidingWindow { return w }
func (w slidingWindow) value() any           { return w.s }
func (w slidingWindow) recoded() []slidingWindow {
	read, _ := limit.ReadSlidingWindow(w.s.Append(nil))
	return []slidingWindow{{read}, {limit.SlidingWindowOf(w.s.Integers())}}
}

type fixedWindow struct {
	s      limit.FixedWindow
	offset limit.Micros
}

func (w fixedWindow) take(l limit.Limit, now limit.Micros, cost int64) (fixedWindow, limit.Decision) {
	next, d := w.s.Take(l, now, cost, w.offset)
	return fixedWindow{next, w.offset}, d
}
func (w fixedWindow) peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	return w.s.Peek(l, now, cost, w.offset)
}
func (w fixedWindow) refund(l limit.Limit, now limit.Micros, cost int64, charged limit.Micros) fixedWindow {
	return fixedWindow{w.s.Refund(l, now, cost, charged, w.offset), w.offset}
}
func (w fixedWindow) resetAfter(l limit.Limit, now limit.Micros) limit.Micros {
	return w.s.FreshAfter(l, now, w.offset)
}
func (w fixedWindow) clone() fixedWindow { return w }
func (w fixedWindow) value() any         { return w.s }
func (w fixedWindow) recoded() []fixedWindow {
	read, _ := limit.ReadFixedWindow(w.s.Append(nil))
	return []fixedWindow{{read, w.offset}, {limit.FixedWindowOf(w.s.Integers()), w.offset}}
}

type leakyBucket struct{ s limit.LeakyBucket }

func (b leakyBucket) take(l limit.Limit, now limit.Micros, cost int64) (leakyBucket, limit.Decision) {
	next, d := b.s.Take(l, now, cost)
	return leakyBucket{next}, d
}
func (b leakyBucket) peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	return b.s.Peek(l, now, cost)
}
func (b leakyBucket) refund(l limit.Limit, now limit.Micros, cost int64, _ limit.Micros) leakyBucket {
	return leakyBucket{b.s.Refund(l, now, cost)}
}
func (b leakyBucket) resetAfter(l limit.Limit, now limit.Micros) limit.Micros {
	return b.s.EmptyAfter(l, now)
}
func (b leakyBucket) clone() leakyBucket { return b }
func (b leakyBucket) value() any         { return b.s }
func (b leakyBucket) recoded() []leakyBucket {
	read, _ := limit.ReadLeakyBucket(b.s.Append(nil))
	return []leakyBucket{{read}, {limit.LeakyBucketOf(b.s.Integers())}}
}

type leakyQueue struct{ s limit.LeakyQueue }

func (q leakyQueue) take(l limit.Limit, now limit.Micros, cost int64) (leakyQueue, limit.Decision) {
	next, d := q.s.Take(l, now, cost)
	return leakyQueue{next}, d
}
func (q leakyQueue) peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	return q.s.Peek(l, now, cost)
}
func (q leakyQueue) refund(l limit.Limit, now limit.Micros, cost int64, charged limit.Micros) leakyQueue {
	return leakyQueue{q.s.Refund(l, now, cost, charged)}
}
func (q leakyQueue) resetAfter(l limit.Limit, now limit.Micros) limit.Micros {
	return q.s.EmptyAfter(l, now)
}
func (q leakyQueue) clone() leakyQueue { return q }
func (q leakyQueue) value() any        { return q.s }
func (q leakyQueue) recoded() []leakyQueue {
	read, _ := limit.ReadLeakyQueue(q.s.Append(nil))
	return []leakyQueue{{read}, {limit.LeakyQueueOf(q.s.Integers())}}
}

type slidingLog struct{ s limit.SlidingLog }

func (g slidingLog) take(l limit.Limit, now limit.Micros, cost int64) (slidingLog, limit.Decision) {
	next, d := g.s.Take(l, now, cost)
	return slidingLog{next}, d
}
func (g slidingLog) peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	return g.s.Peek(l, now, cost)
}
func (g slidingLog) refund(l limit.Limit, now limit.Micros, cost int64, charged limit.Micros) slidingLog {
	return slidingLog{g.s.Refund(l, now, cost, charged)}
}
func (g slidingLog) resetAfter(l limit.Limit, now limit.Micros) limit.Micros {
	return g.s.FreshAfter(l, now)
}
func (g slidingLog) clone() slidingLog {
	s, _ := limit.ReadSlidingLog(g.s.Append(nil))
	return slidingLog{s}
}

// value is a copy: a log shares memory with the one it becomes.
func (g slidingLog) value() any { return slices.Clone(g.s.Integers()) }
func (g slidingLog) recoded() []slidingLog {
	read, _ := limit.SlidingLogOf(g.s.Integers())
	return []slidingLog{g.clone(), {read}}
}
