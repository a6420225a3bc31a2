package limiter

import (
	"context"
	"sync"

	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/limit"
)

// maxAside bounds the calls for shadow rules alone that are at the store: at a round trip of half a millisecond, 256 are
// 500,000 a second, and a store that hangs for its deadline holds no more than that many goroutines.
const maxAside = 256

// aside is what shadow rules ask beside the calls that they must not delay. The limiter owns its goroutines.
type aside struct {
	slots chan struct{}
	calls sync.WaitGroup
}

// sendAside asks the store for shadow charges without waiting for the answer. Where too many such calls are under way, they
// are skipped, and counted as that.
func (l *Limiter) sendAside(ctx context.Context, w *work, p *plan, now limit.Micros, indexes []int) {
	if len(indexes) == 0 {
		return
	}
	select {
	case l.aside.slots <- struct{}{}:
	default:
		for _, i := range indexes {
			p.deny.Leave(w.charges[i].Counter, w.passes[i])
			w.rules[i].metrics.Count(telemetry.ShadowSkipped, telemetry.Local)
			w.answers[i] = elsewhere
		}
		return
	}
	own := &work{req: Request{Cost: w.req.Cost}, id: w.id.beside()}
	for k, i := range indexes {
		own.rules = append(own.rules, w.rules[i])
		ru := *w.rules[i].rule // the check's scratch holds it
		own.rules[k].rule = &ru
		own.charges = append(own.charges, w.charges[i])
		own.passes = append(own.passes, w.passes[i])
		own.open = append(own.open, k)
		w.answers[i] = elsewhere
	}
	own.outcomes, own.answers = make([]Outcome, len(indexes)), make([]answer, len(indexes))
	ctx = context.WithoutCancel(ctx)
	l.aside.calls.Go(func() {
		defer func() { <-l.aside.slots }()
		l.reserve(own, now)
		_ = l.take(ctx, own, now) // what has no answer then is skipped
		now := l.o.Now()
		for i := range own.charges {
			l.settleShadow(own, p, i, now)
		}
	})
}

// beside is the id of what a call asks beside: the store is not to take the one for a repeat of the other.
func (id CallID) beside() CallID {
	if id != (CallID{}) {
		id[0] ^= 1
	}
	return id
}

// settleShadow counts what a shadow rule would have said, and remembers a refusal as an enforced one's. One whose counter
// the store could not ask or make is skipped.
func (l *Limiter) settleShadow(w *work, p *plan, i int, now limit.Micros) {
	c, o, count := &w.charges[i], &w.outcomes[i], w.rules[i].metrics.Count
	source := telemetry.Store
	switch w.answers[i] {
	case elsewhere:
		return
	case byMemory, byPenalty:
		source = telemetry.DenyCache
	case byStore:
		l.learn(w, p, i, now)
	default:
		p.deny.Leave(c.Counter, w.passes[i])
		count(telemetry.ShadowSkipped, telemetry.Store)
		return
	}
	if o.Status == Refused {
		l.lengthen(w, i, o.Decision, now)
		count(telemetry.ShadowDeny, source)
	} else {
		count(telemetry.Allow, source)
	}
}
