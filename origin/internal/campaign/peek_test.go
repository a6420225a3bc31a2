package campaign

import (
	"context"
	"fmt"

	"github.com/weirproject/weir/shared/limit"
)

// peek asks without charging.
func (p *player) peek(s step) error {
	proc := p.processes[s.process]
	all := p.asked(proc, s)
	for _, m := range all {
		if m.spec.penalty > 0 {
			return nil
		}
	}
	r := s.request()
	r.Peek = true
	p.inject(proc, s)
	v, err := proc.Check(context.Background(), r)
	if err != nil {
		return err
	}
	proc.link.takes()
	proc.link.Heal()
	proc.link.Asked()
	proc.own.Asked()
	here, gone := p.truth.part(p.storeNow(), all)
	if s.fault != "" {
		here, gone = nil, all
	}
	allowed, full := true, false
	tells := func(m modelled, d limit.Decision) error {
		allowed = allowed && d.Allowed
		view := viewOf(v, m.spec.name)
		if view == nil {
			return fmt.Errorf("rule %s is not in %+v", m.spec.name, v.Views)
		}
		if view.Decision.Remaining != d.Remaining {
			return fmt.Errorf("%s has %d left, the calls that were admitted leave %d", m.key, view.Decision.Remaining, d.Remaining)
		}
		if never := d.RetryAfter == limit.Never; never != (view.Decision.RetryAfter == limit.Never) {
			return fmt.Errorf("%s, of which a cost of %d is never admitted: %v, tells a wait of %d", m.key, m.cost, never, view.Decision.RetryAfter)
		}
		return nil
	}
	for _, m := range here {
		if err := tells(m, p.truth.peek(p.storeNow(), m)); err != nil {
			return err
		}
		one := m
		one.cost = 1
		full = full || !p.truth.peek(p.storeNow(), one).Allowed
	}
	if full { // by a call of cost 1, which a peek asks the store for: then no other rule need answer
		gone = nil
	}
	for _, m := range gone {
		switch m.spec.failure {
		case "closed":
			allowed = false
		case "local":
			if !v.Allowed && p.stands(s.process, p.now+proc.ahead, []modelled{m}) {
				allowed = false
				continue
			}
			m.limit = proc.share(m.limit)
			if err := tells(m, proc.local.peek(p.now+proc.ahead, m)); err != nil {
				return fmt.Errorf("by itself: %w", err)
			}
		}
	}
	if degraded := len(gone) > 0; v.Degraded != degraded {
		return fmt.Errorf("a peek is degraded: %v, want %v", v.Degraded, degraded)
	}
	if v.Allowed != allowed {
		return fmt.Errorf("a peek is answered %v, such a call %v: %+v", v.Allowed, allowed, v.Views)
	}
	return nil
}
