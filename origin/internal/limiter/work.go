package limiter

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/weirproject/weir/origin/internal/denycache"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// work is the scratch of one check, reused: entry i of each slice is about the same rule.
type work struct {
	matched  []rule.Matched
	rules    []applied
	charges  []Charge
	outcomes []Outcome
	answers  []answer
	passes   []denycache.Pass
	call     Call // to the store
}

// applied is a rule that applies to the request.
type applied struct {
	rule *rule.Rule // in work.matched
	*planned
}

// answer says what answered for a rule.
type answer uint8

const (
	byStore answer = iota
	byLocal
	byOpen
	byClosed
)

// find collects the rules that apply to a request, with their counters.
func (w *work) find(n *namer, p *plan, req *Request) {
	w.matched = p.release.Set.Match(rule.Origin, rule.Request{Method: req.Method, Path: req.Path, Host: req.Host, HasHeader: req.HasHeader}, w.matched[:0])
	w.rules, w.charges = w.rules[:0], w.charges[:0]
	for i := range w.matched {
		m := &w.matched[i]
		ru := applied{&m.Rule, &p.rules[m.Rule.Index]}
		c := Charge{Algorithm: m.Rule.Algorithm, Limit: m.Rule.Limit, Cost: req.Cost}
		if req.Peek {
			c.Cost = 0
		} else if req.Cost == 0 {
			c.Cost = m.Rule.Cost
		}
		if n.name(&c.Counter, ru, req, m.Pattern) {
			w.rules, w.charges = append(w.rules, ru), append(w.charges, c)
		}
	}
	w.outcomes, w.answers, w.passes = resize(w.outcomes, len(w.charges)), resize(w.answers, len(w.charges)), resize(w.passes, len(w.charges))
}

// resize is s with n zero elements.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// view is a rule's decision as headers show it.
func (w *work) view(i int, d limit.Decision) header.View {
	ru := w.rules[i].rule
	return header.View{Rule: ru.Name, Mode: ru.Headers, Limit: ru.Limit, Decision: d}
}

// fail answers for the charges at indexes by the failure modes of their rules. The local ones are taken together, with
// charge only, and only if no rule fails closed: a refusal charges nobody.
func (w *work) fail(fallback Store, now limit.Micros, indexes []int, charge bool) {
	var local []int
	for _, i := range indexes {
		w.outcomes[i] = Outcome{Status: Admitted}
		switch w.rules[i].rule.OnStoreFailure {
		case rule.Open:
			w.answers[i] = byOpen
		case rule.Closed:
			w.answers[i], w.outcomes[i].Status = byClosed, Refused
			charge = false
		default:
			w.answers[i] = byLocal
			local = append(local, i)
		}
	}
	if len(local) == 0 {
		return
	}
	charges, outcomes := w.pick(local), make([]Outcome, len(local))
	if !charge {
		for i := range charges {
			charges[i].Cost = 0
		}
	}
	// The fallback is in this process: it always answers.
	if err := fallback.Take(context.Background(), &Call{Now: now, Charges: charges, Outcomes: outcomes}); err != nil {
		return
	}
	for i, at := range local {
		w.outcomes[at] = outcomes[i]
	}
}

// giveBack refunds what the fallback was charged for a request that is refused after all.
func (w *work) giveBack(fallback Store, now limit.Micros) {
	var local []int
	for i, a := range w.answers {
		if a == byLocal && w.outcomes[i].Status == Admitted {
			local = append(local, i)
		}
	}
	if len(local) == 0 {
		return
	}
	outcomes := make([]Outcome, len(local))
	for i, at := range local {
		outcomes[i] = w.outcomes[at]
	}
	// The fallback is in this process: it always answers.
	_ = fallback.Refund(context.Background(), &Call{Now: now, Charges: w.pick(local), Outcomes: outcomes})
}

func (w *work) pick(indexes []int) []Charge {
	charges := make([]Charge, len(indexes))
	for i, at := range indexes {
		charges[i] = w.charges[at]
	}
	return charges
}

// foreign are the charges whose counter holds something that is not ours.
func (w *work) foreign() (indexes []int) {
	for i := range w.outcomes {
		if w.outcomes[i].Status == Foreign {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// others are the indexes that are not in some, which ascends.
func (w *work) others(some []int) (rest []int) {
	for i := range w.charges {
		if len(some) > 0 && some[0] == i {
			some = some[1:]
			continue
		}
		rest = append(rest, i)
	}
	return rest
}

func (w *work) admitted() bool {
	for i := range w.outcomes {
		if w.outcomes[i].Status == Refused {
			return false
		}
	}
	return true
}

// settle turns one outcome into a view, counts it, and remembers a refusal. admitted tells whether all rules admit.
func (w *work) settle(i int, p *plan, now limit.Micros, admitted bool, v *Verdict) {
	c, ru, o := w.charges[i], w.rules[i], w.outcomes[i]
	if c.Cost > 0 {
		if w.answers[i] == byStore {
			p.deny.Learn(c.Counter, w.passes[i], c.Cost, o.Decision, o.Next, o.AskAgain, now)
		} else { // the fallback's word ends when the store is back
			p.deny.Leave(c.Counter, w.passes[i])
		}
	}
	switch w.answers[i] {
	case byOpen:
		v.Degraded = true
		ru.metrics.Count(telemetry.Open, telemetry.Local)
		return
	case byClosed:
		v.Degraded = true
		v.Code = header.LimiterUnavailable
		ru.metrics.Count(telemetry.Closed, telemetry.Local)
		v.Views = append(v.Views, w.view(i, limit.Decision{Limit: c.Limit.Count, RetryAfter: closedRetry, ResetAfter: closedRetry}))
		return
	}
	d, source := o.Decision, telemetry.Store
	if w.answers[i] == byLocal {
		source, v.Degraded = telemetry.Local, true
	}
	v.Views = append(v.Views, w.view(i, d))
	switch {
	case !d.Allowed:
		ru.metrics.Count(refusal(d), source)
	case admitted:
		ru.metrics.Count(telemetry.Allow, source)
	}
}

// closedRetry is what a client is told while a rule fails closed: the store is looked for twice a second.
const closedRetry = limit.Second

// foreignLog tells of foreign values at most once in a while: an attacker who can write to the store must not be able to
// fill the log.
type foreignLog struct{ next atomic.Int64 }

const foreignEvery = limit.Minute

func (f *foreignLog) tell(log *slog.Logger, w *work, indexes []int, now limit.Micros) {
	next := f.next.Load()
	if int64(now) < next || !f.next.CompareAndSwap(next, int64(now+foreignEvery)) {
		return
	}
	for _, i := range indexes {
		log.Error("a counter's name holds a value that is no counter: its rule answers by on-store-failure until it expires",
			"rule", w.rules[i].rule.Name, "counter", string(w.charges[i].Counter[:]), "reason", "foreign")
	}
}
