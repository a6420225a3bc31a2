package campaign

import (
	"reflect"
	"slices"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// modelled is what a rule asks of a call, by the oracle's own reading of the rules.
type modelled struct {
	key       string // rule, algorithm, window, principal: what makes a counter another one
	spec      ruleSpec
	algorithm rule.Algorithm
	limit     limit.Limit
	offset    limit.Micros // of fixed windows
	cost      int64
}

// result is what the oracle knows of a charge.
type result struct {
	admitted, charged bool
	d                 limit.Decision
	next              limit.Micros // how long a call of cost 1 right after it waits
	at                limit.Micros
}

// counters are the counters of one store, by package limit alone: what it is asked, it does, all or none.
type counters struct {
	held    map[string]*held
	foreign map[string]limit.Micros // until when a foreign value is under a counter's name
	ids     map[string]limit.Micros
	ops     []op // all that it did, so that some of it can be undone
}

type held struct {
	state any
	until limit.Micros // from here on the counter is a fresh one
}

// op is one thing that was done.
type op struct {
	kind    string
	now     limit.Micros
	id      string
	charges []modelled
	results []result     // of a refund
	blocked bool         // a take that charges nothing, for what else it asked
	until   limit.Micros // of a spoil
}

func newCounters() *counters {
	return &counters{held: map[string]*held{}, foreign: map[string]limit.Micros{}, ids: map[string]limit.Micros{}}
}

func (c *counters) do(o op) []result {
	c.ops = append(c.ops, o)
	switch o.kind {
	case "take":
		return c.take(o)
	case "refund":
		c.refund(o)
	case "reset":
		for _, m := range o.charges {
			delete(c.held, m.key)
			delete(c.foreign, m.key)
		}
	case "spoil":
		delete(c.held, o.charges[0].key)
		c.foreign[o.charges[0].key] = o.until
	case "expire": // what is over by now must not come back when the clock goes back
		for key, h := range c.held {
			if o.now >= h.until {
				delete(c.held, key)
			}
		}
		for key, until := range c.foreign {
			if o.now >= until {
				delete(c.foreign, key)
			}
		}
	}
	return nil
}

// part parts charges into those of counters and foreign values.
func (c *counters) part(now limit.Micros, all []modelled) (here, foreign []modelled) {
	for _, m := range all {
		if until, is := c.foreign[m.key]; is && now < until {
			foreign = append(foreign, m)
		} else {
			here = append(here, m)
		}
	}
	return here, foreign
}

// undo forgets all but the first n things that were done.
func (c *counters) undo(n int) {
	ops := c.ops[:n]
	*c = *newCounters()
	for _, o := range ops {
		c.do(o)
	}
}

func (c *counters) load(m modelled, now limit.Micros) (state any, kept bool) {
	if h := c.held[m.key]; h != nil && now < h.until {
		return h.state, true
	}
	switch m.algorithm {
	case rule.TokenBucket:
		return limit.FullTokenBucket(m.limit, now), false
	case rule.GCRA:
		return limit.FullGCRA(m.limit, now), false
	case rule.FixedWindow:
		return limit.FixedWindow{}, false
	case rule.LeakyBucket:
		return limit.LeakyBucket{}, false
	case rule.LeakyQueue:
		return limit.LeakyQueue{}, false
	case rule.SlidingLog:
		return limit.SlidingLog{}, false
	}
	return limit.SlidingWindow{}, false
}

func (c *counters) take(o op) []result {
	repeat := o.id != "" && o.now < c.ids[o.id]
	results, states, all := make([]result, len(o.charges)), make([]any, len(o.charges)), !o.blocked
	for i, m := range o.charges {
		state, kept := c.load(m, o.now)
		if repeat {
			results[i] = result{admitted: true, d: peek(state, m, o.now, m.cost), at: o.now}
			continue
		}
		next, d := take(state, m, o.now)
		results[i], states[i] = result{admitted: d.Allowed, d: d, at: o.now + d.Hold}, next
		all = all && d.Allowed
		if !d.Allowed && kept && !reflect.DeepEqual(state, next) {
			c.held[m.key] = &held{next, o.now.After(peek(next, m, o.now, 1).ResetAfter)}
		}
	}
	if repeat {
		return results
	}
	for i, m := range o.charges {
		if !all {
			if results[i].admitted {
				state, _ := c.load(m, o.now)
				results[i].d = peek(state, m, o.now, m.cost)
			}
			continue
		}
		c.held[m.key] = &held{states[i], o.now.After(results[i].d.ResetAfter)}
		results[i].charged, results[i].next = true, peek(states[i], m, o.now, 1).RetryAfter
	}
	if all && o.id != "" {
		c.ids[o.id] = o.now + limit.Minute
	}
	return results
}

func (c *counters) refund(o op) {
	if o.id != "" {
		delete(c.ids, o.id)
	}
	for i, m := range o.charges {
		state, kept := c.load(m, o.now)
		if !kept || !o.results[i].charged {
			continue
		}
		// By the limit of the charge: what is left as it is lasts by that of later ones.
		if next := refund(state, m, o.now, o.results[i].at); !reflect.DeepEqual(state, next) {
			c.held[m.key] = &held{next, o.now.After(peek(next, m, o.now, 1).ResetAfter)}
		}
	}
}

// peek tells what a call of these charges would be answered, and changes nothing.
func (c *counters) peek(now limit.Micros, m modelled) limit.Decision {
	state, _ := c.load(m, now)
	return peek(state, m, now, m.cost)
}

// ownLog is a log in memory of its own, since one that is charged hands its memory on.
func ownLog(s limit.SlidingLog) limit.SlidingLog {
	s, _ = limit.SlidingLogOf(s.Integers())
	return s
}

func take(state any, m modelled, now limit.Micros) (any, limit.Decision) {
	switch s := state.(type) {
	case limit.TokenBucket:
		return pair(s.Take(m.limit, now, m.cost))
	case limit.GCRA:
		return pair(s.Take(m.limit, now, m.cost))
	case limit.FixedWindow:
		return pair(s.Take(m.limit, now, m.cost, m.offset))
	case limit.LeakyBucket:
		return pair(s.Take(m.limit, now, m.cost))
	case limit.LeakyQueue:
		return pair(s.Take(m.limit, now, m.cost))
	case limit.SlidingLog:
		return pair(ownLog(s).Take(m.limit, now, m.cost))
	case limit.SlidingWindow:
		return pair(s.Take(m.limit, now, m.cost))
	}
	panic("no algorithm")
}

func pair[S any](s S, d limit.Decision) (any, limit.Decision) { return s, d }

func peek(state any, m modelled, now limit.Micros, cost int64) limit.Decision {
	switch s := state.(type) {
	case limit.FixedWindow:
		return s.Peek(m.limit, now, cost, m.offset)
	case interface {
		Peek(limit.Limit, limit.Micros, int64) limit.Decision
	}:
		return s.Peek(m.limit, now, cost)
	}
	panic("no algorithm")
}

func refund(state any, m modelled, now, at limit.Micros) any {
	switch s := state.(type) {
	case limit.FixedWindow:
		return s.Refund(m.limit, now, m.cost, at, m.offset)
	case limit.SlidingWindow:
		return s.Refund(m.limit, now, m.cost, at)
	case limit.SlidingLog:
		return ownLog(s).Refund(m.limit, now, m.cost, at)
	case limit.LeakyQueue:
		return s.Refund(m.limit, now, m.cost, at)
	case limit.TokenBucket:
		return s.Refund(m.limit, now, m.cost)
	case limit.GCRA:
		return s.Refund(m.limit, now, m.cost)
	case limit.LeakyBucket:
		return s.Refund(m.limit, now, m.cost)
	}
	panic("no algorithm")
}

// charged are those of a call whose rules are in names, or are not.
func split(all []modelled, name string) (here, gone []modelled) {
	for _, m := range all {
		if m.spec.name == name {
			gone = append(gone, m)
		} else {
			here = append(here, m)
		}
	}
	return here, gone
}

func has(all []modelled, key string) bool {
	return slices.ContainsFunc(all, func(m modelled) bool { return m.key == key })
}
