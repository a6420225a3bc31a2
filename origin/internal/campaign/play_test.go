package campaign

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/shared/limit"
)

// longest is how long a process may remember a refusal that no longer holds, where nobody told it.
const longest = 30 * limit.Second

// player plays a history and holds each answer to what the oracle says.
type player struct {
	*world
	truth    *counters // of the shared store
	marks    []int
	ledger   *ledger
	receipts map[int]receipt
	inFlight map[int]*flight
	excused  map[excuse]limit.Micros // until when, by true time, a process may refuse by what it remembers
	told     map[excuse]limit.Micros // until when the store refuses, as it last said
	penal    map[excuse]*penalised
	last     map[string]limit.Limit  // by which a counter was asked
	offsets  map[string]limit.Micros // where the windows of a counter begin
	answered int
	begun    int
	count    tally
}

// tally is what a history had in it.
type tally struct{ calls, admitted, refused, byMemory, degraded, faults, refunds, failovers, held, patient, audits, offsets, never, foreign, left int }

func (t *tally) add(o tally) {
	t.calls, t.admitted, t.refused, t.byMemory = t.calls+o.calls, t.admitted+o.admitted, t.refused+o.refused, t.byMemory+o.byMemory
	t.degraded, t.faults, t.refunds, t.failovers = t.degraded+o.degraded, t.faults+o.faults, t.refunds+o.refunds, t.failovers+o.failovers
	t.held, t.patient, t.audits, t.offsets, t.never, t.foreign, t.left = t.held+o.held, t.patient+o.patient, t.audits+o.audits, t.offsets+o.offsets, t.never+o.never, t.foreign+o.foreign, t.left+o.left
}

type excuse struct {
	process int
	key     string
}

type penalised struct {
	refusals int64
	ceiling  limit.Micros // by the process's clock: until when lengthened refusals may stand
}

type receipt struct {
	process        int
	real           *limiter.Receipt
	id             string
	store, local   []modelled
	charged, spent []result
	admissions     []int // in the ledger
}

// flight is a call that is held on its way.
type flight struct {
	step    step
	hold    *hold
	cancel  context.CancelFunc
	rules   []modelled
	out     chan answer
	here    []modelled // what its reply is about
	results []result
	foreign []modelled // had a foreign value when its reply left
	done    int        // what the oracle had done before it, where its reply is held
	lost    bool       // a failover forgot it
}

type answer struct {
	v   limiter.Verdict
	err error
}

// play plays a history; the error is the first promise that was broken.
func play(h history) (t tally, err error) {
	w, err := newWorld(h)
	if err != nil {
		return t, err
	}
	defer w.close()
	goroutines := runtime.NumGoroutine()
	p := &player{world: w, truth: newCounters(), ledger: newLedger(), receipts: map[int]receipt{}, inFlight: map[int]*flight{},
		excused: map[excuse]limit.Micros{}, penal: map[excuse]*penalised{}, told: map[excuse]limit.Micros{}, offsets: map[string]limit.Micros{}, last: map[string]limit.Limit{}}
	for i, s := range h.steps {
		if err = p.step(s); err != nil {
			err = fmt.Errorf("step %d, %s: %w", i+1, s, err)
			break
		}
		p.mark()
	}
	for _, n := range sorted(p.inFlight) {
		if e := p.end(step{kind: "end", n: n}); e != nil && err == nil {
			err = fmt.Errorf("the end of call %d: %w", n, e)
		}
	}
	switch {
	case err != nil:
	case p.answered != p.begun:
		err = fmt.Errorf("%d calls begun, %d answered", p.begun, p.answered)
	case w.server.store.Len() > len(p.ledger.seen)+p.shadows():
		err = fmt.Errorf("%d counters kept, at most %d callers' rules", w.server.store.Len(), len(p.ledger.seen)+p.shadows())
	case !settled(goroutines):
		err = fmt.Errorf("%d goroutines, %d at the beginning", runtime.NumGoroutine(), goroutines)
	default:
		err = p.ledger.check()
	}
	return p.count, err
}

// settled waits for caches to have tidied up after their last calls: nothing else goes on.
func settled(goroutines int) bool {
	for began := time.Now(); time.Since(began) < 10*time.Second; {
		if runtime.NumGoroutine() <= goroutines {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// shadows is how many counters shadow rules can have: each caller's on 2 paths, in 3 windows each.
func (p *player) shadows() (n int) {
	for _, r := range p.h.releases[0] {
		if r.mode == "shadow" {
			n += len(callers) * 2 * 3
		}
	}
	return n
}

func sorted[V any](m map[int]V) (all []int) {
	for n := range m {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// mark notes how much was done so far, by which a failover loses the last steps.
func (p *player) mark() {
	p.server.marks, p.marks = append(p.server.marks, len(p.server.done)), append(p.marks, len(p.truth.ops))
	p.ledger.marks = append(p.ledger.marks, len(p.ledger.admissions))
}

func (p *player) step(s step) error {
	if s.kind != "use" && s.process >= len(p.processes) {
		return nil
	}
	switch s.kind {
	case "call", "begin", "patient", "peek", "reset", "spoil", "process-clock":
		if p.processes[s.process].gone {
			return nil
		}
	}
	switch s.kind {
	case "advance":
		p.now += s.by
	case "call":
		p.begun++
		_, err := p.call(s)
		return err
	case "patient":
		return p.patient(s)
	case "begin":
		return p.begin(s)
	case "end":
		return p.end(s)
	case "peek":
		return p.peek(s)
	case "audit":
		return p.audit()
	case "refund":
		return p.refund(s)
	case "reset":
		return p.reset(s)
	case "news":
		if p.newsLost = s.amount == 1; !p.newsLost {
			p.tellLive()
		}
	case "leave":
		return p.leave(p.processes[s.process])
	case "join":
		p.join(s.process, s.amount)
	case "use":
		if s.amount >= len(p.releases) {
			return nil
		}
		for i, proc := range p.processes {
			if !proc.gone && (s.process == len(p.processes) || s.process == i) {
				proc.Use(p.releases[s.amount])
				proc.release = s.amount
				for e := range p.told { // a call that began before goes by it to its end
					if e.process == i && !p.underWay(i) {
						delete(p.told, e)
					}
				}
				for e := range p.excused { // what it remembered is gone
					if e.process == i {
						delete(p.excused, e)
					}
				}
			}
		}
	case "spoil":
		p.spoil(s)
	case "failover":
		p.failover(s.amount)
	case "process-clock":
		p.processes[s.process].ahead += s.by
	case "store-clock":
		if s.by < 0 {
			p.server.expire()
			p.truth.do(op{kind: "expire", now: p.storeNow()})
		}
		p.storeOff += s.by
		p.ledger.clockStepped(s.by)
		p.outdate()
		p.freed("")
	}
	return nil
}

// underWay tells whether a call of a process is.
func (p *player) underWay(process int) bool {
	for _, f := range p.inFlight {
		if f.step.process == process {
			return true
		}
	}
	return false
}

// outdate leaves calls out of the ledger whose answers are under way.
func (p *player) outdate() {
	for _, f := range p.inFlight {
		f.lost = true
	}
}

// freed excuses refusals from memory: a counter, or each, has room that nobody was told of.
func (p *player) freed(key string) {
	for i := range p.processes {
		if key != "" {
			p.excuse(i, key, p.now+longest)
			continue
		}
		for k := range p.ledger.seen {
			p.excuse(i, k, p.now+longest)
		}
	}
}

// mix excuses processes before a call at the store: those that have another release than it, since what they remember was by
// another rate than the counter fills by from now on; all, where the store makes an outgrown bucket anew, or another caller of the counter has another limit.
func (p *player) mix(s step, all []modelled) {
	for _, m := range all {
		if seen, known := p.last[m.key]; p.outgrown(m) || known && seen != m.limit {
			p.freed(m.key)
		}
		p.last[m.key] = m.limit
	}
	for i, proc := range p.processes {
		for _, other := range p.asked(proc, s) {
			for _, m := range all {
				if m.key == other.key && m.limit != other.limit {
					p.excuse(i, m.key, p.now+longest)
				}
			}
		}
	}
}

func (p *player) excuse(process int, key string, until limit.Micros) {
	e := excuse{process, key}
	p.excused[e] = max(p.excused[e], until)
}

func (p *player) failover(steps int) {
	at := max(0, len(p.marks)-1-steps)
	if len(p.marks) == 0 {
		return
	}
	p.count.failovers++
	p.server.undo(p.server.marks[at])
	p.truth.undo(p.marks[at])
	p.ledger.lose(p.ledger.marks[at])
	for _, f := range p.inFlight {
		f.lost = f.lost || f.hold.reply && f.done >= p.marks[at]
	}
	for i := at; i < len(p.marks); i++ {
		p.server.marks[i], p.marks[i] = len(p.server.done), len(p.truth.ops)
	}
	p.freed("")
}

// id names a call to the oracle: the same caller, id, rules and costs.
func id(s step, all []modelled) string {
	if s.id == "" || len(all) == 0 {
		return ""
	}
	name := s.who + " " + s.id
	for _, m := range all {
		name += fmt.Sprintf("; %s %d", m.key, m.cost)
	}
	return name
}

func (p *player) inject(proc *process, s step) {
	f := fault.Fault{On: fault.Take, Times: 1}
	switch s.fault {
	case "error", "done":
		f.Reason, f.Done = "unreachable", s.fault == "done"
	case "twice":
		f.Twice = true
	case "lost", "lostdone":
		c, ok := proc.charge(s, s.rule)
		if !ok {
			return
		}
		f.Done, f.Lost = s.fault == "lostdone", func(of limiter.Counter) bool { return of == c.Counter }
	default:
		return
	}
	p.count.faults++
	proc.link.Inject(f)
}

// call makes a call and holds its answer to the oracle's.
func (p *player) call(s step) (limiter.Verdict, error) {
	proc := p.processes[s.process]
	all := p.asked(proc, s)
	p.ledger.see(all)
	proc.link.takes()
	p.inject(proc, s)
	v, err := proc.Check(context.Background(), s.request())
	proc.Close() // what shadow rules ask is done before time goes on
	proc.link.Heal()
	proc.link.Asked()
	defer proc.own.Asked()
	p.answered++
	p.count.calls++
	if err != nil {
		return v, err
	}
	if proc.link.takes() == 0 && len(all) > 0 {
		p.count.byMemory++
		return v, p.byMemory(s, all, v)
	}
	return v, p.judge(s, all, v, p.store(proc, s, all, v.Allowed))
}

// expected is what the oracle makes of a call that went to the store.
type expected struct {
	allowed, degraded, closed bool
	store, local, whole       []modelled // local by the process's share, whole by all of the limit
	results, spent            []result
	exact                     bool // the store answered for all rules
	lost                      bool // by a failover, before its answer came
}

func anyCharged(results []result) bool {
	return slices.ContainsFunc(results, func(r result) bool { return r.charged })
}

func admitted(results []result) bool {
	return !slices.ContainsFunc(results, func(r result) bool { return !r.admitted })
}

// of are charges on a process's own counters.
func of(process int, local []modelled) (all []modelled) {
	for _, m := range local {
		m.key = fmt.Sprintf("process %d %s", process, m.key)
		all = append(all, m)
	}
	return all
}

// late notes how late a process may open again after an answer that came a while after it was decided.
func (p *player) late(process int, m modelled, r result) {
	wait := r.d.RetryAfter
	if r.admitted {
		wait = r.next
	}
	if wait > 0 {
		p.excuse(process, m.key, p.now+min(wait, longest))
	}
}

// penalise notes a refusal of a rule with a penalty, by the limit or what is remembered: from the last one by the limit on it
// stands for the ceiling at most.
func (p *player) penalise(process int, m modelled, byLimit bool, v limiter.Verdict) {
	view := viewOf(v, m.spec.name)
	if m.spec.penalty == 0 || view == nil || view.Decision.RetryAfter == limit.Never {
		return
	}
	e := excuse{process, m.key}
	n := p.penal[e]
	if n == nil {
		n = &penalised{}
		p.penal[e] = n
	}
	if n.refusals++; n.refusals > m.spec.penalty && byLimit {
		n.ceiling = p.now + p.processes[process].ahead + penaltyCeiling
	}
}

func (p *player) mayRemember(process int, m modelled) bool {
	if !p.truth.peek(p.storeNow(), m).Allowed || p.now <= p.excused[excuse{process, m.key}] {
		return true
	}
	if p.outgrown(m) {
		return true
	}
	for _, f := range p.inFlight { // those at the store have what room is known
		if f.step.process == process && has(f.rules, m.key) {
			return true
		}
	}
	return false
}

// outgrown tells of a bucket that was full by a smaller capacity than it has now, so that the store has forgotten it: it is as
// one never used, where a process remembers what it held.
func (p *player) outgrown(m modelled) bool {
	_, kept := p.truth.load(m, p.storeNow())
	return !kept && m.algorithm.HasBurst() && p.ledger.smallest[m.key] < m.limit.Capacity()
}

func (p *player) mayPenalise(process int, m modelled) bool {
	n := p.penal[excuse{process, m.key}]
	return n != nil && n.refusals > m.spec.penalty && p.now+p.processes[process].ahead < n.ceiling
}
