package limiter

import (
	"log/slog"
	"sync/atomic"

	"github.com/dchest/siphash"

	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

const (
	// closedRetry is what a client is told while a rule fails closed, or there is no room: the store is looked for twice a
	// second, and calls that wait for it end by their deadline.
	closedRetry = limit.Second
	// longestHint is how long an edge may refuse by a hint: what frees a caller early here, it sees after that.
	longestHint = 30 * limit.Second
)

// settle draws the verdict from the outcomes, counts them, and remembers refusals.
func (l *Limiter) settle(w *work, p *plan, now limit.Micros, v *Verdict) {
	v.Allowed = !w.refused()
	w.shown = w.shown[:0]
	for i := range w.charges {
		if w.charges[i].Shadow {
			l.settleShadow(w, p, i, now)
		} else {
			l.settleRule(w, p, i, now, v)
		}
	}
	v.Deciding = header.Tightest(v.Views)
	if v.Allowed {
		w.receipt(v)
		return
	}
	if l.o.RetryJitter > 0 {
		for at, i := range w.shown {
			v.Views[at].Jitter = jitter(&w.charges[i].Counter, l.o.RetryJitter)
		}
	}
	i := w.shown[v.Deciding]
	switch w.answers[i] {
	case byClosed:
		v.Code = header.LimiterUnavailable
		return
	case byBusy:
		v.Code = header.Overloaded
		l.o.Metrics.Overloaded.Inc()
		return
	}
	v.Code = header.RateLimited
	v.Hint = w.hint(i, v)
}

// jitter is a counter's own part of spread, the same in every process.
func jitter(c *Counter, spread limit.Micros) limit.Micros {
	return header.Jitter(siphash.Hash(0, 0, c[:]), spread)
}

// settleRule settles one enforced charge.
func (l *Limiter) settleRule(w *work, p *plan, i int, now limit.Micros, v *Verdict) {
	c, o, metrics := &w.charges[i], &w.outcomes[i], w.rules[i].metrics
	d, source := o.Decision, telemetry.Store
	switch w.answers[i] {
	case unanswered:
		p.deny.Leave(c.Counter, w.passes[i])
		return
	case byOpen:
		p.deny.Leave(c.Counter, w.passes[i])
		w.degrade(v, i)
		metrics.Count(telemetry.Open, telemetry.Local)
		return
	case byClosed, byBusy:
		p.deny.Leave(c.Counter, w.passes[i])
		w.degrade(v, i)
		metrics.Count(telemetry.Closed, telemetry.Local)
		w.show(v, i, limit.Decision{Limit: c.Limit.Count, RetryAfter: closedRetry, ResetAfter: closedRetry})
		return
	case byLocal: // its word ends when the store is back
		p.deny.Leave(c.Counter, w.passes[i])
		w.degrade(v, i)
		source = telemetry.Local
	case byMemory, byPenalty:
		source = telemetry.DenyCache
	case byStore:
		l.learn(w, p, i, now)
	}
	if o.Status == Admitted {
		d.RetryAfter = 0 // a call whose id is remembered stands at a counter that may be full
	}
	d.Allowed = o.Status == Admitted
	if w.req.Peek {
		d = peeked(d, w.rules[i].cost(&w.req))
		v.Allowed = v.Allowed && d.Allowed
	} else if o.Status == Refused && w.answers[i] != byLocal { // a penalty would stand when the store is back, and has room
		d = l.lengthen(w, i, d, now)
	}
	w.show(v, i, d)
	switch {
	case !d.Allowed && d.RetryAfter == limit.Never:
		metrics.Count(telemetry.Never, source)
	case !d.Allowed:
		metrics.Count(telemetry.Deny, source)
	case v.Allowed:
		metrics.Count(telemetry.Allow, source)
		if o.Charged && d.Remaining*10 < d.Limit {
			metrics.NearLimit.Inc()
		}
	}
}

// degrade notes that charge i was answered without its counter.
func (w *work) degrade(v *Verdict, i int) {
	v.Degraded = true
	v.TellsDegraded = v.TellsDegraded || w.rules[i].rule.Headers == rule.Full
}

// show adds a rule's decision as headers show it.
func (w *work) show(v *Verdict, i int, d limit.Decision) {
	ru := w.rules[i].rule
	v.Views = append(v.Views, header.View{Rule: ru.Name, Mode: ru.Headers, Limit: w.charges[i].Limit, Decision: d})
	w.shown = append(w.shown, i)
}

// learn remembers what the store said: not of a peek, nor of what it did not do for this call.
func (l *Limiter) learn(w *work, p *plan, i int, now limit.Micros) {
	c, o := &w.charges[i], &w.outcomes[i]
	if c.Cost == 0 || o.Status != Refused && !o.Charged {
		p.deny.Leave(c.Counter, w.passes[i])
		return
	}
	p.deny.Learn(c.Counter, w.passes[i], c.Cost, o.Decision, o.Next, o.AskAgain, now)
}

// lengthen is a refusal with the penalty of its rule.
func (l *Limiter) lengthen(w *work, i int, d limit.Decision, now limit.Micros) limit.Decision {
	if !w.penalised(i) || d.RetryAfter == limit.Never {
		return d
	}
	longer := l.penalties.Refused(w.charges[i].Counter, w.rules[i].rule.Penalty, d, now)
	if w.answers[i] == byPenalty || longer.RetryAfter > d.RetryAfter {
		w.rules[i].metrics.Penalties.Inc()
	}
	return longer
}

// peeked is what a call of some cost would be answered where one of cost 1 would be answered d. The wait of a larger one is
// that after which it passes at the latest.
func peeked(d limit.Decision, cost int64) limit.Decision {
	switch {
	case cost <= 1 || cost <= d.Remaining && d.Allowed:
		return d
	case cost > d.Limit:
		d.RetryAfter = limit.Never
	case d.RetryAfter != limit.Never:
		d.RetryAfter = d.ResetAfter
	}
	d.Allowed, d.Hold = false, 0
	return d
}

// hint is what an edge may remember of a refusal that charge i decides: one by a single rule, of a principal that an edge
// knows as the stream's own, which stands for every call that the rule has. That of the fallback ends when the store is back,
// and that of a wider network may end with the next second.
func (w *work) hint(i int, v *Verdict) (h Hint) {
	refusals := 0
	for _, view := range v.Views {
		if !view.Decision.Allowed {
			refusals++
		}
	}
	ru, d := &w.rules[i], &v.Views[v.Deciding].Decision
	if refusals != 1 || ru.scope == "" || ru.breadth != own || w.req.Peek || w.charges[i].Cost > ru.rule.Cost ||
		d.RetryAfter <= 0 || d.RetryAfter == limit.Never || w.answers[i] == byLocal {
		return h
	}
	return Hint{Rule: ru.rule.Name, Scope: ru.scope, Wait: min(d.RetryAfter, longestHint)}
}

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
