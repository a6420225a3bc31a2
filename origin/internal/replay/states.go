package replay

import (
	"hash/fnv"
	"slices"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// states are the counters of one rule, one for each principal that is not fresh.
type states interface {
	// peek tells what a call would be answered; take charges it.
	peek(principal []byte, l limit.Limit, now limit.Micros, cost int64) limit.Decision
	take(principal []byte, l limit.Limit, now limit.Micros, cost int64) limit.Decision
	// expire drops what equals a fresh state at before. It gives the bytes that the rest takes.
	expire(before limit.Micros) int64
	// shed drops the counters that are nearest to fresh, about a tenth, telling how many.
	shed() int
	size() int64 // bytes, about
	count() int
}

// algorithm is one of shared/limit's, as replay uses it. offset is the principal's, for fixed windows.
type algorithm[S any] struct {
	fresh func(l limit.Limit, now limit.Micros) S
	peek  func(s S, l limit.Limit, now limit.Micros, cost int64, offset limit.Micros) limit.Decision
	take  func(s S, l limit.Limit, now limit.Micros, cost int64, offset limit.Micros) (S, limit.Decision)
	bytes func(s S) int64 // beyond the state itself; nil for none
}

// plain adapts an algorithm without an offset, whose zero value is fresh.
func plain[S interface {
	Peek(limit.Limit, limit.Micros, int64) limit.Decision
	Take(limit.Limit, limit.Micros, int64) (S, limit.Decision)
}](fresh func(limit.Limit, limit.Micros) S) algorithm[S] {
	if fresh == nil {
		fresh = func(limit.Limit, limit.Micros) (s S) { return s }
	}
	return algorithm[S]{
		fresh: fresh,
		peek: func(s S, l limit.Limit, now limit.Micros, cost int64, _ limit.Micros) limit.Decision {
			return s.Peek(l, now, cost)
		},
		take: func(s S, l limit.Limit, now limit.Micros, cost int64, _ limit.Micros) (S, limit.Decision) {
			return s.Take(l, now, cost)
		},
	}
}

// newStates makes the counters of a rule.
func newStates(r *rule.Rule) states {
	switch r.Algorithm {
	case rule.TokenBucket:
		return newTable(plain(limit.FullTokenBucket), false)
	case rule.GCRA:
		return newTable(plain(limit.FullGCRA), false)
	case rule.LeakyBucket:
		return newTable(plain[limit.LeakyBucket](nil), false)
	case rule.LeakyQueue:
		return newTable(plain[limit.LeakyQueue](nil), false)
	case rule.SlidingLog:
		log := plain[limit.SlidingLog](nil)
		log.bytes = func(s limit.SlidingLog) int64 { return int64(s.Len()) * 16 }
		return newTable(log, false)
	case rule.FixedWindow:
		return newTable(algorithm[limit.FixedWindow]{
			fresh: func(limit.Limit, limit.Micros) limit.FixedWindow { return limit.FixedWindow{} },
			peek:  limit.FixedWindow.Peek,
			take:  limit.FixedWindow.Take,
		}, r.Offset)
	default:
		return newTable(plain[limit.SlidingWindow](nil), false)
	}
}

// counter is one principal's state, with the instant from which it equals a fresh one.
type counter[S any] struct {
	state S
	until limit.Micros
}

// table holds the counters of one rule.
type table[S any] struct {
	algorithm[S]
	offset   bool
	counters map[string]*counter[S]
	bytes    int64
}

func newTable[S any](a algorithm[S], offset bool) *table[S] {
	return &table[S]{algorithm: a, offset: offset, counters: map[string]*counter[S]{}}
}

// perCounter is what a counter takes in memory beside its name: map slot, string header, the counter itself.
const perCounter = 112

func (t *table[S]) offsetOf(principal []byte, l limit.Limit) limit.Micros {
	if !t.offset {
		return 0
	}
	return limit.Micros(hash(principal) % uint64(l.Window))
}

func hash(principal []byte) uint64 {
	h := fnv.New64a()
	h.Write(principal)
	return h.Sum64()
}

func (t *table[S]) state(principal []byte, l limit.Limit, now limit.Micros) (S, *counter[S]) {
	if c, known := t.counters[string(principal)]; known {
		return c.state, c
	}
	return t.fresh(l, now), nil
}

func (t *table[S]) peek(principal []byte, l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	s, _ := t.state(principal, l, now)
	return t.algorithm.peek(s, l, now, cost, t.offsetOf(principal, l))
}

func (t *table[S]) take(principal []byte, l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	s, c := t.state(principal, l, now)
	after, d := t.algorithm.take(s, l, now, cost, t.offsetOf(principal, l))
	switch {
	case c == nil && (!d.Allowed || cost == 0):
		return d // a fresh state stays fresh
	case c == nil:
		c = &counter[S]{}
		t.counters[string(principal)] = c
		t.bytes += perCounter + int64(len(principal))
	case t.algorithm.bytes != nil:
		t.bytes -= t.algorithm.bytes(c.state)
	}
	c.state, c.until = after, now+min(d.ResetAfter, limit.Never-max(now, 0))
	if t.algorithm.bytes != nil {
		t.bytes += t.algorithm.bytes(after)
	}
	return d
}

func (t *table[S]) drop(principal string, c *counter[S]) {
	delete(t.counters, principal)
	t.bytes -= perCounter + int64(len(principal))
	if t.algorithm.bytes != nil {
		t.bytes -= t.algorithm.bytes(c.state)
	}
}

func (t *table[S]) expire(before limit.Micros) int64 {
	for principal, c := range t.counters {
		if c.until <= before {
			t.drop(principal, c)
		}
	}
	return t.bytes
}

func (t *table[S]) shed() int {
	if len(t.counters) == 0 {
		return 0
	}
	untils := make([]limit.Micros, 0, len(t.counters))
	for _, c := range t.counters {
		untils = append(untils, c.until)
	}
	slices.Sort(untils)
	last, from := (len(untils)-1)/10, len(t.counters)
	before := untils[last]
	t.expire(before - 1)
	// Those of one fixed window are fresh at one instant: of them go as many as still have to, by their hash.
	var ties []uint64
	for principal, c := range t.counters {
		if c.until == before {
			ties = append(ties, hash([]byte(principal)))
		}
	}
	slices.Sort(ties)
	most := ties[last-(from-len(t.counters))]
	for principal, c := range t.counters {
		if c.until == before && hash([]byte(principal)) <= most {
			t.drop(principal, c)
		}
	}
	return from - len(t.counters)
}

func (t *table[S]) size() int64 { return t.bytes }
func (t *table[S]) count() int  { return len(t.counters) }
