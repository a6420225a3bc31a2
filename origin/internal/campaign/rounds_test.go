package campaign

import (
	"github.com/weirproject/weir/shared/limit"
)

// store does to the oracle's counters what the fault lets the store's do.
func (p *player) store(proc *process, s step, all []modelled, passed bool) (e expected) {
	p.mix(s, all)
	now, name := p.storeNow(), id(s, all)
	switch s.fault {
	case "error", "done":
		if s.fault == "done" {
			p.take(now, name, all)
		}
		return p.fail(proc, name, all, expected{allowed: true}, passed)
	case "lost", "lostdone":
		here, gone := split(all, s.rule)
		if len(gone) == 0 {
			break
		}
		if s.fault == "lostdone" {
			p.take(now, "", gone)
		}
		here, foreign, results := p.take(now, name, here)
		if len(foreign) > 0 && admitted(results) { // those that are lost are asked again with the rest
			return p.again(proc, name, all, foreign, expected{allowed: true, store: here, results: results, exact: true}, passed)
		}
		e = expected{allowed: admitted(results), store: here, results: results}
		if !e.allowed {
			return e
		}
		if e = p.fail(proc, name, gone, e, passed); !e.allowed && anyCharged(e.results) {
			p.truth.do(op{kind: "refund", now: now, id: name, charges: here, results: e.results})
		}
		return e
	}
	e = p.rounds(proc, name, all, expected{allowed: true, exact: true}, passed)
	if s.fault == "twice" && !e.degraded {
		p.take(now, name, all)
	}
	return e
}

// take asks the oracle once. Where a foreign value is under a name, no counter is charged.
func (p *player) take(now limit.Micros, name string, all []modelled) (here, foreign []modelled, results []result) {
	here, foreign = p.truth.part(now, all)
	if len(here) > 0 {
		results = p.truth.do(op{kind: "take", now: now, id: name, charges: here, blocked: len(foreign) > 0})
	}
	return here, foreign, results
}

// rounds asks the oracle for charges until it has an answer for each.
func (p *player) rounds(proc *process, name string, all []modelled, e expected, passed bool) expected {
	here, foreign, results := p.take(p.storeNow(), name, all)
	e.store, e.results = here, results
	if !admitted(results) {
		e.allowed = false
		p.undoLocal(proc, name, e)
		return e
	}
	if len(foreign) == 0 {
		return e
	}
	return p.again(proc, name, all, foreign, e, passed)
}

// again answers for foreign charges by their failure modes, and asks for the rest once more.
func (p *player) again(proc *process, name string, all, foreign []modelled, e expected, passed bool) expected {
	p.count.foreign++
	if e = p.fail(proc, name, foreign, e, passed); !e.allowed {
		return e
	}
	var rest []modelled
	for _, m := range all {
		if !has(foreign, m.key) {
			rest = append(rest, m)
		}
	}
	return p.rounds(proc, name, rest, e, passed)
}

// undoLocal gives back what a call was charged by its process, since it is refused after all.
func (p *player) undoLocal(proc *process, name string, e expected) {
	if anyCharged(e.spent) {
		proc.local.do(op{kind: "refund", now: p.now + proc.ahead, id: name, charges: e.local, results: e.spent})
	}
}

// spoil puts a foreign value under the name of a counter: what was counted is gone, and so it is for those who remember
// refusals when that value is.
func (p *player) spoil(s step) {
	proc := p.processes[s.process]
	c, ok := proc.charge(s, s.rule)
	if !ok {
		return
	}
	p.server.spoil(c, s.by)
	_, gone := split(p.asked(proc, s), s.rule)
	for _, m := range gone {
		p.truth.do(op{kind: "spoil", charges: gone, until: p.storeNow().After(s.by)})
		p.ledger.forget(m.key)
		p.outdate()
		p.freed(m.key)
	}
}

// fail answers for rules by their failure modes.
func (p *player) fail(proc *process, name string, gone []modelled, e expected, passed bool) expected {
	if len(gone) == 0 {
		return e
	}
	e.degraded = true
	now := p.now + proc.ahead
	var local []modelled
	for _, m := range gone {
		switch m.spec.failure {
		case "closed":
			e.allowed, e.closed = false, true
		case "local":
			e.whole = append(e.whole, m)
			m.limit = proc.share(m.limit)
			local = append(local, m)
		}
	}
	p.ledger.see(of(proc.number, local))
	if !passed && p.stands(proc.place, now, local) && proc.fellBack() < len(local) {
		e.allowed, e.whole = false, e.whole[:len(e.local)]
	} else if len(local) > 0 {
		spent := proc.local.do(op{kind: "take", now: now, id: name, charges: local})
		e.allowed = e.allowed && admitted(spent)
		e.local, e.spent = append(e.local, local...), append(e.spent, spent...)
	}
	if !e.allowed {
		p.undoLocal(proc, name, e)
	}
	return e
}
