package limiter

import (
	"context"
	"errors"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// fail answers for charges by the failure modes of their rules; those of outcomes that are Lost for want of room refuse. The
// local ones are taken together, each of this process's share of its limit: at the instant at which they are, which the wait
// for the store may have made another one than the call began at. By that one, a counter that others took from meanwhile
// would be as one after a clock that stepped back, and forget them.
func (l *Limiter) fail(w *work, p *plan, indexes []int) {
	now := l.o.Now()
	var local []int
	for _, i := range indexes {
		mode, busy := w.rules[i].rule.OnStoreFailure, isBusy(w.outcomes[i].Err)
		w.outcomes[i] = Outcome{Status: Admitted}
		switch {
		case mode == rule.Open:
			w.answers[i] = byOpen
		case busy:
			w.answers[i], w.outcomes[i].Status = byBusy, Refused
		case mode == rule.Closed:
			w.answers[i], w.outcomes[i].Status = byClosed, Refused
		default:
			w.answers[i] = byLocal
			c := &w.charges[i]
			// What the store said last stands as long as it said, not only until it would be asked again.
			if d, stands := p.deny.Stands(c.Counter, c.Limit, max(1, c.Cost), now); stands {
				d.Limit = c.Limit.Capacity()
				w.outcomes[i] = Outcome{Status: Refused, Decision: d}
				continue
			}
			local = append(local, i)
		}
	}
	l.fallBack(w, now, local)
}

// fallBack takes charges from counters of this process's own.
func (l *Limiter) fallBack(w *work, now limit.Micros, indexes []int) {
	if len(indexes) == 0 {
		return
	}
	n := l.processes()
	whole := make([]int64, len(indexes))
	for k, i := range indexes {
		c := &w.charges[i]
		whole[k] = c.Limit.Capacity()
		c.Limit = Share(c.Limit, n) // which the client is shown, and a refund goes by
	}
	charges, outcomes := w.pick(indexes), make([]Outcome, len(indexes))
	for i := range charges {
		charges[i].Existing = false
	}
	err := l.o.Fallback.Take(context.Background(), &Call{Now: now, ID: w.id, Charges: charges, Outcomes: outcomes})
	for k, i := range indexes {
		if w.outcomes[i] = outcomes[k]; err != nil { // it is in this process: it always answers
			w.answers[i], w.outcomes[i] = byClosed, Outcome{Status: Refused}
			continue
		}
		if d := &w.outcomes[i].Decision; w.outcomes[i].Status == Refused && d.RetryAfter == limit.Never && charges[k].Cost <= whole[k] {
			// More than the share, not than the limit: it passes once the store is back, which nobody can tell.
			d.RetryAfter, d.ResetAfter = closedRetry, max(closedRetry, d.ResetAfter)
		}
	}
}

func isBusy(err error) bool {
	failed, ok := errors.AsType[*StoreError](err)
	return ok && failed.Reason == Busy
}
