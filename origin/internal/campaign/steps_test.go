package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// patient makes a call, waits for as long as it is told, and calls again: nothing else happens, so it is admitted then. Rules
// that were not asked, since memory refused, may each ask for a wait of their own.
func (p *player) patient(s step) error {
	all := p.asked(p.processes[s.process], s)
	for waits := 0; ; waits++ {
		p.begun++
		v, err := p.call(s)
		if err != nil || v.Allowed {
			return err
		}
		wait := v.Views[v.Deciding].Decision.RetryAfter
		if wait == limit.Never || p.troubled(s.process, all) {
			return nil
		}
		if waits > len(all) {
			return fmt.Errorf("refused after %d waits as told: %+v", waits, v.Views)
		}
		if wait <= 0 {
			return fmt.Errorf("a wait of %d", wait)
		}
		p.count.patient++
		if s.n%2 == 0 { // as the header has it
			wait = (wait + limit.Second - 1) / limit.Second * limit.Second
		}
		p.now += wait
	}
}

// troubled tells whether what a process remembers of these rules may be too long, calls under way may take the room, or a rule
// goes by its failure mode.
func (p *player) troubled(process int, all []modelled) bool {
	_, foreign := p.truth.part(p.storeNow(), all)
	for _, m := range all {
		if len(foreign) > 0 || p.now <= p.excused[excuse{process, m.key}] || m.spec.penalty > 0 || len(p.inFlight) > 0 {
			return true
		}
	}
	return false
}

// begin makes a call that is held on its way to the store, or back.
func (p *player) begin(s step) error {
	proc := p.processes[s.process]
	all := p.asked(proc, s)
	p.ledger.see(all)
	if len(all) == 0 {
		return nil
	}
	p.begun++
	p.count.held++
	ctx, cancel := context.WithCancel(context.Background())
	f := &flight{step: s, cancel: cancel, rules: all, out: make(chan answer, 1),
		hold: &hold{reply: s.held == "reply", arrived: make(chan struct{}), release: make(chan struct{})}}
	proc.link.takes()
	proc.link.mu.Lock()
	proc.link.hold = f.hold
	proc.link.mu.Unlock()
	go func() {
		v, err := proc.Check(ctx, s.request())
		f.out <- answer{v, err}
	}()
	select {
	case <-f.hold.arrived:
		proc.Close()
		if f.hold.reply {
			f.done = len(p.truth.ops)
			p.mix(s, all)
			f.here, f.foreign, f.results = p.take(p.storeNow(), id(s, all), all)
		}
		p.inFlight[s.n] = f
		return nil
	case a := <-f.out:
		cancel()
		proc.link.mu.Lock()
		proc.link.hold = nil
		proc.link.mu.Unlock()
		p.answered++
		p.count.calls++
		p.count.byMemory++
		return errors.Join(a.err, p.byMemory(s, all, a.v))
	}
}

// end lets a held call go on.
func (p *player) end(s step) error {
	f := p.inFlight[s.n]
	if f == nil {
		return nil
	}
	delete(p.inFlight, s.n)
	proc := p.processes[f.step.process]
	if s.fault != "" { // its time is over
		f.cancel()
	}
	close(f.hold.release)
	a := <-f.out
	f.cancel()
	proc.Close()
	proc.link.Asked()
	defer proc.own.Asked()
	p.answered++
	p.count.calls++
	if a.err != nil {
		return a.err
	}
	var e expected
	switch {
	case s.fault != "":
		p.count.faults++
		e = p.fail(proc, id(f.step, f.rules), f.rules, expected{allowed: true}, a.v.Allowed)
	case f.hold.reply && len(f.foreign) > 0 && admitted(f.results):
		e = p.again(proc, id(f.step, f.rules), f.rules, f.foreign, expected{allowed: true, store: f.here, results: f.results, exact: true}, a.v.Allowed)
	case f.hold.reply:
		e = expected{store: f.here, results: f.results, exact: true, allowed: admitted(f.results), lost: f.lost}
	default:
		e = p.store(proc, f.step, f.rules, a.v.Allowed)
	}
	if f.hold.reply {
		for i, r := range e.results {
			p.late(f.step.process, e.store[i], r)
		}
	}
	return p.judge(f.step, f.rules, a.v, e)
}

// refund gives back what a call was charged.
func (p *player) refund(s step) error {
	r, ok := p.receipts[s.n]
	if !ok {
		return nil
	}
	delete(p.receipts, s.n)
	proc := p.processes[r.process]
	charged := anyCharged(r.charged) || anyCharged(r.spent)
	if charged != (r.real != nil) {
		return fmt.Errorf("a receipt: %v, charged: %v", r.real != nil, charged)
	}
	if !charged {
		return nil
	}
	p.count.refunds++
	times := 1
	switch s.fault {
	case "error", "done":
		proc.link.Inject(fault.Fault{On: fault.Refund, Times: 1, Reason: "unreachable", Done: s.fault == "done"})
		if s.fault == "error" {
			times = 0
		}
	case "twice":
		proc.link.Inject(fault.Fault{On: fault.Refund, Times: 1, Twice: true})
		times = 2
	}
	err := proc.Refund(context.Background(), r.real)
	proc.link.Heal()
	proc.link.Asked()
	stored := anyCharged(r.charged)
	if failing := s.fault == "error" || s.fault == "done"; stored && failing != (err != nil) {
		return fmt.Errorf("a refund that met %q: %w", s.fault, err)
	}
	if stored {
		for range times {
			p.truth.do(op{kind: "refund", now: p.storeNow(), id: r.id, charges: r.store, results: r.charged})
		}
		for _, a := range r.admissions {
			p.ledger.refund(a, times)
		}
		for _, m := range r.store {
			for i := range p.processes {
				if i != r.process && (p.newsLost || m.spec.penalty > 0) || proc.release != p.processes[i].release {
					p.excuse(i, m.key, p.now+longest)
				}
			}
		}
	}
	if anyCharged(r.spent) {
		proc.local.do(op{kind: "refund", now: p.now + proc.ahead, id: r.id, charges: r.local, results: r.spent})
		p.ledger.free(of(proc.number, r.local))
	}
	return nil
}

// reset makes a caller's counters as if never used.
func (p *player) reset(s step) error {
	proc := p.processes[s.process]
	held, err := proc.Holding(context.Background(), callers[s.who].caller(), rule.Request{Method: "GET", Path: s.path})
	if err != nil {
		return err
	}
	proc.link.takes()
	all := p.asked(proc, step{who: s.who, path: s.path})
	for _, h := range held {
		if h.Err != nil {
			return h.Err
		}
		if err := proc.Reset(context.Background(), h); err != nil {
			return err
		}
	}
	proc.link.Asked()
	for _, m := range all {
		p.truth.do(op{kind: "reset", now: p.storeNow(), charges: []modelled{m}})
		proc.local.do(op{kind: "reset", charges: []modelled{m}})
		p.ledger.forget(m.key)
		p.ledger.forget(of(proc.number, []modelled{m})[0].key)
		p.outdate()
		if p.newsLost {
			p.freed(m.key)
		}
	}
	return nil
}

// audit peeks at everybody's counters: all that was charged is what was admitted, and what faults are known to have charged.
func (p *player) audit() error {
	p.count.audits++
	for _, who := range slices.Sorted(maps.Keys(callers)) {
		for _, path := range []string{"/", "/a"} {
			if err := p.peek(step{process: p.live()[0].place, who: who, path: path}); err != nil {
				return fmt.Errorf("%s %s: %w", who, path, err)
			}
		}
	}
	return nil
}

var _ limiter.Store = (*link)(nil)
