package limiter

import (
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/limit"
)

// remembered answers the charges that this process remembers a refusal of, and tells whether an enforced one is among
// them: then the call is refused, and no other rule is asked. A penalty stands for everybody; the deny cache does not
// answer peeks, nor a call with an id, which may have been admitted before.
func (l *Limiter) remembered(w *work, p *plan, now limit.Micros) (refused bool) {
	cached := !w.req.Peek && w.id == CallID{}
	recall := func(i int) (refused bool) {
		c := &w.charges[i]
		if d, stands := l.standing(w, i, now); stands {
			w.refuse(i, byPenalty, d)
			return true
		}
		if !cached {
			w.passes[i] = p.deny.Uncounted(c.Counter, c.Limit)
			return false
		}
		d, pass, refused := p.deny.Enter(c.Counter, c.Limit, c.Cost, now)
		if w.passes[i] = pass; refused {
			w.refuse(i, byMemory, d)
		}
		return refused
	}
	for i := range w.charges {
		if !w.charges[i].Shadow && recall(i) {
			refused = true
		}
	}
	switch {
	case refused:
		l.o.Metrics.DenyCacheHits.Inc()
	case cached && w.enforced > 0:
		l.o.Metrics.DenyCacheMisses.Inc()
	}
	for i := range w.charges {
		if !w.charges[i].Shadow {
			continue
		}
		if refused {
			w.rules[i].metrics.Count(telemetry.ShadowSkipped, telemetry.DenyCache)
			w.answers[i] = elsewhere
		} else {
			recall(i)
		}
	}
	return refused
}

// standing is the refusal that a rule's penalty keeps up.
func (l *Limiter) standing(w *work, i int, now limit.Micros) (d limit.Decision, stands bool) {
	if !w.penalised(i) {
		return d, false
	}
	return l.penalties.Standing(w.charges[i].Counter, now)
}

// penalised tells whether the charge's counter can have penalties: not one that others share, who would bear them too.
func (w *work) penalised(i int) bool {
	return w.rules[i].rule.Penalty.After > 0 && w.rules[i].breadth == own
}
