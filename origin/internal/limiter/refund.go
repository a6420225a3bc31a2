package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Receipt tells what a call was charged. It is good for one refund.
type Receipt struct {
	store, local Call
	penal        []bool // by charge of store: its rule has a penalty
	used         atomic.Bool
}

// receipt gives an admitted verdict its hold, and its receipt if somebody may want to refund it.
func (w *work) receipt(v *Verdict) {
	charged := 0
	for i := range w.outcomes {
		if o := &w.outcomes[i]; o.Charged && !w.charges[i].Shadow {
			charged++
			v.Hold = max(v.Hold, o.Decision.Hold)
		}
	}
	if charged == 0 || !w.req.Refundable && v.Hold == 0 {
		return
	}
	v.Receipt = &Receipt{store: Call{ID: w.id}, local: Call{ID: w.id}}
	for i := range w.outcomes {
		if !w.outcomes[i].Charged {
			continue
		}
		switch w.answers[i] {
		case byStore:
			v.Receipt.store.add(w, i)
			v.Receipt.penal = append(v.Receipt.penal, w.rules[i].rule.Penalty.After > 0)
		case byLocal:
			v.Receipt.local.add(w, i)
		}
	}
}

func (c *Call) add(w *work, i int) {
	c.Charges, c.Outcomes = append(c.Charges, w.charges[i]), append(c.Outcomes, w.outcomes[i])
}

// Refund gives back what a call was charged: its cost at most, into the window that it was charged in. A receipt is good
// once, whatever became of it: asked twice, a store that answered too late would give back what others paid. What is
// remembered of its counters is forgotten, but for penalties. A nil receipt is one of a call that was charged nothing.
func (l *Limiter) Refund(ctx context.Context, r *Receipt) error {
	if r == nil || r.used.Swap(true) {
		return nil
	}
	var failed []error
	for _, of := range [...]struct {
		call  *Call
		store Store
	}{{&r.store, l.o.Store}, {&r.local, l.o.Fallback}} {
		if len(of.call.Charges) == 0 {
			continue
		}
		of.call.Now = l.o.Now()
		if err := of.store.Refund(ctx, of.call); err != nil {
			failed = append(failed, err)
		}
	}
	p := l.plan.Load()
	// Others forget penalties with the rest: a caller must not get rid of its penalty by a call that it takes back. At their
	// processes such a counter opens with its wait.
	var others []Counter
	for i := range r.store.Charges {
		c := r.store.Charges[i].Counter
		p.deny.Drop(c)
		if !r.penal[i] {
			others = append(others, c)
		}
	}
	l.announce(others)
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("refund a call: %w", err)
	}
	return nil
}

func (l *Limiter) announce(counters []Counter) {
	if l.o.Announce != nil && len(counters) > 0 {
		l.o.Announce(counters)
	}
}

// Forget drops what this process remembers of a counter: its refusals and its penalty. The counter itself stays.
func (l *Limiter) Forget(c Counter) {
	l.plan.Load().deny.Drop(c)
	l.penalties.Clear(c)
}

// Reset makes the counter of h one that was never used, at the store and in what this process falls back to, and has all
// processes forget it. On an error nobody has forgotten anything: reset it again.
func (l *Limiter) Reset(ctx context.Context, h Held) error {
	charge := Charge{Counter: h.Counter, Former: h.former, Algorithm: h.Rule.Algorithm, Limit: h.Limit}
	for _, store := range [...]Store{l.o.Store, l.o.Fallback} {
		call := Call{Now: l.o.Now(), Charges: []Charge{charge}, Outcomes: make([]Outcome, 1)}
		if err := store.Reset(ctx, &call); err != nil {
			return fmt.Errorf("reset a counter of rule %s: %w", h.Rule.Name, err)
		}
	}
	l.Forget(h.Counter)
	l.announce([]Counter{h.Counter})
	return nil
}
