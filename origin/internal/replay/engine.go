package replay

import (
	"cmp"
	"slices"

	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// slack is how far back a trace may jump without meeting counters that were dropped as fresh: access logs are written
// when an answer ends, not when its call came in.
const slack = limit.Minute

// block is how many calls must agree that an instant has passed before counters are dropped as fresh at it: a line or two
// of a clock that was ahead must not make the trace forget everybody.
const block = 4096

// Decision is what one rule said to one call.
type Decision struct {
	At        limit.Micros
	Rule      *rule.Rule // valid during the callback
	Principal []byte     // valid during the callback
	Unlimited bool       // the caller has no limit under the rule
	limit.Decision
	// Charged is false for a refusal, for a peek, and for an admission that another rule's refusal made void.
	Charged bool
	peek    bool
}

// Engine decides calls by a rule set. It is for one goroutine.
type Engine struct {
	set      *rule.Set
	networks rules.Networks
	states   []states
	absent   []int64 // calls that a rule matched and whose principal it could not name
	maxBytes int64
	low      limit.Micros // the earliest instant of the calls since lowOf was 0
	lowOf    int          // how many calls low is of
	passed   limit.Micros // the low of the last full block: where the trace is, whatever instants single lines have
	inserted int64        // counters since the last sweep, at most
	held     int64        // counters that the last sweep left
	shed     int64

	matched []rule.Matched
	asked   []asked
	parts   []rule.Part
	names   []byte
}

// asked is one rule that applies to the call at hand.
type asked struct {
	rule      *rule.Rule // in Engine.matched
	from, to  int        // of the principal in Engine.names
	limit     limit.Limit
	cost      int64
	unlimited bool
	decision  limit.Decision
	charged   bool
}

// NewEngine makes an engine whose counters take about maxBytes at most. Beyond it, counters nearest to fresh are dropped:
// see [Engine.Shed].
func NewEngine(set *rule.Set, maxBytes int64) *Engine {
	e := &Engine{set: set, networks: rules.NewNetworks(set.EdgeSettings), maxBytes: maxBytes, absent: make([]int64, set.Len())}
	for r := range set.Rules() {
		e.states = append(e.states, newStates(&r))
	}
	return e
}

// Shed is how many counters were dropped for want of memory before they were fresh: their principals may have been
// admitted too much.
func (e *Engine) Shed() int64 { return e.shed }

// Counters is how many principals are remembered now.
func (e *Engine) Counters() (n int) {
	for _, s := range e.states {
		n += s.count()
	}
	return n
}

// Decide answers a call, telling emit what each rule says in the order of the file, the edge's rules first. A call that
// the edge refuses does not reach the origin: no rule is asked about one from a denied address, none of the edge's about
// one from an exempt address.
func (e *Engine) Decide(c *Call, emit func(*Decision)) (t rules.Treatment) {
	if e.lowOf == 0 {
		e.low = c.At
	}
	e.low = min(e.low, c.At)
	if e.lowOf++; e.lowOf == block {
		e.passed, e.lowOf = e.low, 0
	}
	if t, _ = e.networks.Find(c.Address); t == rules.Denied {
		return t
	}
	for _, where := range []rule.Where{rule.Edge, rule.Origin} {
		if where == rule.Edge && t == rules.Exempt {
			continue
		}
		if !e.decide(where, c, emit) {
			break
		}
	}
	if e.inserted > max(block, e.held) {
		e.sweep()
	}
	return t
}

// decide answers for the rules of one tier: all enforced ones must admit, else none of them is charged.
func (e *Engine) decide(where rule.Where, c *Call, emit func(*Decision)) (admitted bool) {
	e.find(where, c)
	admitted = true
	for i := range e.asked {
		a := &e.asked[i]
		if a.unlimited || a.rule.Mode == rule.Shadow {
			continue
		}
		a.decision = e.states[a.rule.Index].peek(e.names[a.from:a.to], a.limit, c.At, a.cost)
		admitted = admitted && a.decision.Allowed
	}
	for i := range e.asked {
		a := &e.asked[i]
		switch {
		case a.unlimited:
			a.decision, a.charged = limit.Decision{Allowed: true}, admitted && a.cost > 0
			continue
		case a.rule.Mode == rule.Shadow: // as if it were enforced alone
		case !admitted && a.decision.Allowed: // void
			continue
		}
		a.decision = e.states[a.rule.Index].take(e.names[a.from:a.to], a.limit, c.At, a.cost)
		a.charged = a.decision.Allowed && a.cost > 0
		e.inserted++
	}
	for i := range e.asked {
		a := &e.asked[i]
		emit(&Decision{At: c.At, Rule: a.rule, Principal: e.names[a.from:a.to], Unlimited: a.unlimited, Decision: a.decision, Charged: a.charged, peek: a.cost == 0 && admitted})
	}
	return admitted
}

// find collects the rules that apply.
func (e *Engine) find(where rule.Where, c *Call) {
	e.matched = e.set.Match(where, rule.Request{Method: c.Method, Path: c.Path, Host: c.Host, HasHeader: c.hasHeader}, e.matched[:0])
	slices.SortFunc(e.matched, func(a, b rule.Matched) int { return cmp.Compare(a.Rule.Index, b.Rule.Index) })
	e.asked, e.names = e.asked[:0], e.names[:0]
	present := c.present()
	for i := range e.matched {
		m := &e.matched[i]
		var missing rule.Choice
		if e.parts, missing = m.Rule.Principal(present, e.parts[:0]); missing != nil {
			e.absent[m.Rule.Index]++
			continue
		}
		a := asked{rule: &m.Rule, from: len(e.names), cost: m.Rule.Cost}
		if c.HasCost {
			a.cost = c.Cost
		}
		e.names = appendPrincipal(e.names, &m.Rule, e.parts, c, m.Pattern)
		a.to = len(e.names)
		if where == rule.Edge {
			a.limit = m.Rule.Limit
			if m.Rule.Valid != nil && c.Caller.Key != "" {
				a.limit = *m.Rule.Valid
			}
		} else {
			g := e.set.Grant(&m.Rule, e.parts, c.Caller)
			a.limit, a.unlimited = g.Limit, g.Unlimited
		}
		e.asked = append(e.asked, a)
	}
}

// sweep drops counters that are fresh, after as many charges as there are counters, so that it costs a charge no more
// than a look at one; then, if memory is still short, those nearest to fresh.
func (e *Engine) sweep() {
	before := e.passed - slack
	var total int64
	for _, s := range e.states {
		total += s.expire(before)
	}
	for total > e.maxBytes {
		largest := e.states[0]
		for _, s := range e.states {
			if s.size() > largest.size() {
				largest = s
			}
		}
		total -= largest.size()
		n := largest.shed()
		total += largest.size()
		e.shed += int64(n)
		if n == 0 {
			break
		}
	}
	e.inserted, e.held = 0, int64(e.Counters())
}
