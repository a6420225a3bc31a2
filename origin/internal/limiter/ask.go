package limiter

import (
	"context"

	"github.com/weirproject/weir/shared/limit"
)

// maxRounds is how often the store is asked again for one call: twice for a wider counter, once for counters that are
// foreign, once more for one that becomes so meanwhile. A store that says so even then is as good as none.
const maxRounds = 4

// ask answers all charges that memory did not: from the store, and by failure mode those that it has no answer for.
// What was charged for a call that is refused after all is given back.
func (l *Limiter) ask(ctx context.Context, w *work, p *plan, now limit.Micros) {
	l.sendAside(ctx, w, p, now, w.openAll(l.o.Slot))
	for rounds := 0; len(w.open) > 0; rounds++ {
		l.reserve(w, now)
		if err := l.take(ctx, w, now); err != nil {
			w.enforcedOnly()
			for _, i := range w.open {
				w.outcomes[i] = Outcome{Status: Lost, Err: err}
			}
			l.fail(w, p, w.open)
			break
		}
		w.enforcedOnly() // shadow rules are answered by now, or not at all
		if w.refused() {
			break
		}
		if rounds == maxRounds && (w.has(Unmade) || w.has(Foreign)) {
			l.fail(w, p, w.open) // nothing was charged: as if there were no store
			break
		}
		if w.has(Unmade) {
			if l.widen(w, p, now) {
				break
			}
			continue // nothing was charged: all once more
		}
		if foreign := w.having(Foreign); len(foreign) > 0 {
			l.logged.tell(l.o.Log, w, foreign, now)
			l.o.Metrics.StoreErrors.WithLabelValues("foreign").Add(float64(len(foreign)))
			l.fail(w, p, foreign)
			if w.refused() {
				break
			}
			w.reopen() // they pass, so the others are to be charged after all
			continue
		}
		l.fail(w, p, w.having(Lost))
		break
	}
	if w.refused() {
		l.giveBack(ctx, w)
		w.forgetUndone(p, l.o.Slot)
	}
}

// forgetUndone has the deny cache forget the counters of other slots than the refusing one's: they were charged for a moment,
// in which others may have been refused by that.
func (w *work) forgetUndone(p *plan, slot func(*Counter) uint32) {
	if slot == nil || w.enforced < 2 {
		return
	}
	for i := range w.charges {
		c := &w.charges[i]
		if c.Shadow || c.Cost == 0 || w.answers[i] != byStore || w.outcomes[i].Status != Admitted {
			continue
		}
		for j := range w.charges {
			if !w.charges[j].Shadow && slot(&w.charges[j].Counter) != slot(&c.Counter) {
				p.deny.Drop(c.Counter)
				break
			}
		}
	}
}

// openAll opens the charges that no memory answered, but for shadow ones that share no slot with an enforced one: these
// are told apart, so that they delay no answer.
func (w *work) openAll(slot func(*Counter) uint32) (aside []int) {
	w.open = w.open[:0]
	for i := range w.charges {
		if w.answers[i] != unanswered {
			continue
		}
		if w.charges[i].Shadow && !w.sharesSlot(i, slot) {
			aside = append(aside, i)
			continue
		}
		w.open = append(w.open, i)
	}
	return aside
}

func (w *work) sharesSlot(shadow int, slot func(*Counter) uint32) bool {
	if slot == nil {
		return w.enforced > 0
	}
	of := slot(&w.charges[shadow].Counter)
	for i := range w.charges {
		if !w.charges[i].Shadow && slot(&w.charges[i].Counter) == of {
			return true
		}
	}
	return false
}

// enforcedOnly closes shadow charges.
func (w *work) enforcedOnly() {
	kept := w.open[:0]
	for _, i := range w.open {
		if !w.charges[i].Shadow {
			kept = append(kept, i)
		}
	}
	w.open = kept
}

// reopen leaves those charges open that no failure mode has answered.
func (w *work) reopen() {
	kept := w.open[:0]
	for _, i := range w.open {
		if w.answers[i] == unanswered || w.answers[i] == byStore {
			w.answers[i] = unanswered
			kept = append(kept, i)
		}
	}
	w.open = kept
}

func (w *work) has(s Status) bool {
	for _, i := range w.open {
		if w.outcomes[i].Status == s {
			return true
		}
	}
	return false
}

func (w *work) having(s Status) (indexes []int) {
	for _, i := range w.open {
		if w.outcomes[i].Status == s {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// reserve makes room for the counters that open charges may make; where there is none, only counters that exist are asked.
func (l *Limiter) reserve(w *work, now limit.Micros) {
	for _, i := range w.open {
		c, ru := &w.charges[i], &w.rules[i]
		if !ru.address || c.Cost == 0 || ru.breadth == anyone || ru.reserved != 0 {
			continue
		}
		room := ru.room
		if ru.breadth == own {
			room -= room / networkShare
		}
		ru.reserved = ru.newcomers.reserve(now, room)
		c.Existing = ru.reserved == 0
	}
}

// made gives back what was reserved for a counter that was not made.
func (ru *applied) made(made bool) {
	if ru.reserved != 0 && !made {
		ru.newcomers.giveBack(ru.reserved)
	}
	ru.reserved = 0
}

// take asks the store for the open charges.
func (l *Limiter) take(ctx context.Context, w *work, now limit.Micros) error {
	w.sent, w.got = w.sent[:0], resize(w.got, len(w.open))
	for _, i := range w.open {
		w.sent = append(w.sent, w.charges[i])
	}
	w.call = Call{Now: now, By: w.call.By, ID: w.id, Charges: w.sent, Outcomes: w.got}
	if err := l.o.Store.Take(ctx, &w.call); err != nil {
		return err // counters may have been made all the same: their room stays taken
	}
	for k, i := range w.open {
		o := w.got[k]
		w.outcomes[i] = o
		if o.Status != Lost {
			w.rules[i].made(o.Made)
		}
		if o.Status == Admitted || o.Status == Refused {
			w.answers[i] = byStore
		}
	}
	return nil
}

// widen gives each charge whose counter could not be made a wider one, that of the address's network first, of everybody
// at last. It tells whether memory refuses one of them: then the store need not be asked.
func (l *Limiter) widen(w *work, p *plan, now limit.Micros) (refused bool) {
	for _, i := range w.open {
		w.answers[i] = unanswered
		if w.outcomes[i].Status != Unmade {
			continue
		}
		c, ru := &w.charges[i], &w.rules[i]
		p.deny.Leave(c.Counter, w.passes[i])
		if ru.breadth = min(ru.breadth+1, anyone); ru.breadth == anyone {
			c.Counter, c.Former = c.Counter.Overflow(), Counter{} // everybody's has one name under any secret
		} else {
			has := present(&w.req.Caller)
			w.chosen, _ = ru.rule.Principal(has, w.chosen[:0])
			w.name(l.namer, c, ru)
		}
		c.Existing = false
		if w.req.Peek || w.id != (CallID{}) {
			w.passes[i] = p.deny.Uncounted(c.Counter, c.Limit)
			continue
		}
		d, pass, hit := p.deny.Enter(c.Counter, c.Limit, c.Cost, now)
		if w.passes[i] = pass; hit {
			w.refuse(i, byMemory, d)
			refused = true
		}
	}
	return refused
}

// giveBack refunds what was charged for a call that is refused after all: by a store that lost some of its parts, by the
// fallback. A refund that fails leaves a charge until its window ends, to the refusing side.
func (l *Limiter) giveBack(ctx context.Context, w *work) {
	now := l.o.Now()
	for _, of := range [...]struct {
		by    answer
		store Store
	}{{byStore, l.o.Store}, {byLocal, l.o.Fallback}} {
		var charged []int
		for i := range w.outcomes {
			if w.answers[i] == of.by && w.outcomes[i].Charged && !w.charges[i].Shadow {
				charged = append(charged, i)
			}
		}
		if len(charged) == 0 {
			continue
		}
		outcomes := make([]Outcome, len(charged))
		for k, i := range charged {
			outcomes[k] = w.outcomes[i]
			o := &w.outcomes[i]
			o.Charged, o.Decision.Remaining = false, min(o.Decision.Limit, o.Decision.Remaining+w.charges[i].Cost)
		}
		_ = of.store.Refund(ctx, &Call{Now: now, ID: w.id, Charges: w.pick(charged), Outcomes: outcomes})
	}
}

func (w *work) pick(indexes []int) []Charge {
	charges := make([]Charge, len(indexes))
	for i, at := range indexes {
		charges[i] = w.charges[at]
	}
	return charges
}
