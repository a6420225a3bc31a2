package campaign

import (
	"fmt"
	"strings"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
)

// judge holds a verdict that the store was asked for to what was expected.
func (p *player) judge(s step, all []modelled, v limiter.Verdict, e expected) error {
	if e.degraded {
		p.count.degraded++
	}
	switch {
	case v.Allowed && !e.allowed:
		return fmt.Errorf("admitted above the limit: %s", describe(all, e))
	case !v.Allowed && e.allowed:
		return fmt.Errorf("refused under the limit: %+v, %s", v.Views, describe(all, e))
	case v.Degraded != e.degraded:
		return fmt.Errorf("degraded %v, want %v", v.Degraded, e.degraded)
	case !v.Allowed && v.Code == "":
		return fmt.Errorf("a refusal without a reason")
	case !v.Allowed && e.closed && len(all) == 1 && v.Code != header.LimiterUnavailable:
		return fmt.Errorf("refused as %s for want of a store", v.Code)
	}
	for i, r := range e.results {
		m, view := e.store[i], viewOf(v, e.store[i].spec.name)
		if view == nil {
			return fmt.Errorf("rule %s has no decision in %+v", m.spec.name, v.Views)
		}
		if e.exact && view.Decision.Remaining != r.d.Remaining {
			return fmt.Errorf("rule %s has %d left, want %d", m.spec.name, view.Decision.Remaining, r.d.Remaining)
		}
		if !r.admitted && e.exact && view.Decision.RetryAfter != r.d.RetryAfter && m.spec.penalty == 0 {
			return fmt.Errorf("rule %s tells a wait of %d, want %d", m.spec.name, view.Decision.RetryAfter, r.d.RetryAfter)
		}
		if r.d.RetryAfter == limit.Never {
			p.count.never++
		}
		p.tell(s.process, m, r)
		if !r.admitted {
			p.penalise(s.process, m, true, v)
		}
	}
	if err := p.ofFallback(v, e); err != nil {
		return err
	}
	if !v.Allowed {
		p.count.refused++
		return nil
	}
	p.count.admitted++
	rec := receipt{process: s.process, real: v.Receipt, id: id(s, all), store: e.store, charged: e.results, local: e.local, spent: e.spent}
	for i, r := range e.results {
		if r.charged {
			rec.admissions = append(rec.admissions, p.ledger.admit("", e.store[i], r.at-r.d.Hold))
			if e.lost {
				p.ledger.admissions[len(p.ledger.admissions)-1].forget()
			}
		}
	}
	for i, r := range e.spent {
		if r.charged {
			p.ledger.admit("local", of(p.processes[s.process].number, e.local)[i], r.at-r.d.Hold)
		}
	}
	p.receipts[s.n] = rec
	return nil
}

// ofFallback holds what a process tells of its own counters to what they hold.
func (p *player) ofFallback(v limiter.Verdict, e expected) error {
	for i, r := range e.spent {
		m, view := e.local[i], viewOf(v, e.local[i].spec.name)
		if view == nil {
			return fmt.Errorf("rule %s, which fell back, has no decision in %+v", m.spec.name, v.Views)
		}
		wait := r.d.RetryAfter
		if r.admitted { // a repeated call stands at a counter that may be full
			wait = 0
		}
		if wait == limit.Never && m.cost <= e.whole[i].limit.Capacity() { // above the share alone: it passes once the store is back
			wait = limit.Second
			p.count.never++
		}
		if view.Decision.RetryAfter != wait || view.Decision.Remaining != r.d.Remaining && (v.Allowed || !r.admitted) {
			return fmt.Errorf("rule %s fell back and tells %+v, want a wait of %d and %d left", m.spec.name, view.Decision, wait, r.d.Remaining)
		}
	}
	return nil
}

// byMemory holds an answer that the store was not asked for to what it would have said.
func (p *player) byMemory(s step, all []modelled, v limiter.Verdict) error {
	if v.Allowed {
		return fmt.Errorf("admitted without the store")
	}
	p.count.refused++
	for _, m := range all {
		defer p.penalise(s.process, m, p.mayRemember(s.process, m), v)
		if view := viewOf(v, m.spec.name); view != nil && view.Decision.RetryAfter == limit.Never && m.cost <= m.limit.Capacity() {
			return fmt.Errorf("rule %s never admits a cost of %d, says memory, of %+v", m.spec.name, m.cost, m.limit)
		}
	}
	if s.id != "" && len(p.penal) == 0 {
		return fmt.Errorf("a call with an id is refused from memory")
	}
	for _, m := range all {
		if p.mayRemember(s.process, m) || p.mayPenalise(s.process, m) {
			return nil
		}
	}
	return fmt.Errorf("refused from memory under the limit: %+v, %s", v.Views, describe(all, expected{}))
}

func viewOf(v limiter.Verdict, name string) *header.View {
	for i := range v.Views {
		if v.Views[i].Rule == name {
			return &v.Views[i]
		}
	}
	return nil
}

func describe(all []modelled, e expected) string {
	var b strings.Builder
	for i, m := range all {
		fmt.Fprintf(&b, "%s: %d/%d burst %d, cost %d", m.key, m.limit.Count, m.limit.Window, m.limit.Burst, m.cost)
		if i < len(e.results) && e.exact {
			fmt.Fprintf(&b, " %+v", e.results[i].d)
		}
		b.WriteString("; ")
	}
	return b.String()
}
