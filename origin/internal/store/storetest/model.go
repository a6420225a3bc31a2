package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
	"github.com/weirproject/weir/shared/rule"
)

// model is the port's contract over counters of package limit: what a store has to answer.
type model struct {
	counters map[limiter.Counter]*modelled
}

// modelled is a counter that was charged and not reset since.
type modelled struct {
	limittest.Counter
	until limit.Micros // it equals a fresh one from here on: a store may have forgotten it
}

// of is c's counter, and whether a store has it: not known of one that equals a fresh one.
func (m *model) of(c *limiter.Charge, now limit.Micros) (counter *modelled, there, known bool) {
	counter, there = m.counters[c.Counter]
	if there && now < counter.until {
		return counter, true, true
	}
	return &modelled{Counter: newModel(*c, now)}, there, !there
}

func (m *model) take(c *limiter.Call) {
	admitted := true
	for i := range c.Charges {
		ch, o := &c.Charges[i], &c.Outcomes[i]
		counter, there, known := m.of(ch, c.Now)
		*o = limiter.Outcome{Decision: counter.Peek(ch.Limit, c.Now, ch.Cost)}
		switch {
		case ch.Existing && !there && known:
			o.Status = limiter.Unmade
		case !o.Decision.Allowed:
			o.Status = limiter.Refused
		}
		admitted = admitted && (ch.Shadow || o.Status == limiter.Admitted)
	}
	for i := range c.Charges {
		ch, o := &c.Charges[i], &c.Outcomes[i]
		if ch.Cost == 0 || o.Status != limiter.Admitted || !ch.Shadow && !admitted {
			continue
		}
		counter, there, _ := m.of(ch, c.Now)
		o.Charged, o.Made = true, !there
		o.Decision = counter.Take(ch.Limit, c.Now, ch.Cost)
		o.Next, o.At = counter.Peek(ch.Limit, c.Now, 1), c.Now+o.Decision.Hold
		counter.until = c.Now.After(o.Decision.ResetAfter)
		m.counters[ch.Counter] = counter
	}
}

func (m *model) refund(c *limiter.Call) {
	for i := range c.Charges {
		ch := &c.Charges[i]
		counter, there, known := m.of(ch, c.Now)
		if !c.Outcomes[i].Charged || !there || !known {
			continue
		}
		counter.Refund(ch.Limit, c.Now, ch.Cost, c.Outcomes[i].At)
		counter.until = c.Now.After(counter.ResetAfter(ch.Limit, c.Now))
	}
}

// random plays calls of all kinds on the store and the model. Limits of windows change as they please; those of buckets do
// not, since what a store forgets of a bucket that is full it cannot measure by the limit it was filled under.
func random(f *fixture) {
	seed := f.Seed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	f.Logf("repeat with -seed=%d", seed)
	p := &player{fixture: f, Rand: rand.New(rand.NewPCG(seed, seed)), model: model{map[limiter.Counter]*modelled{}}}
	for n := range 4 * len(f.Algorithms) {
		window := long
		if f.At != nil {
			window = []limit.Micros{limit.Hour, 24 * limit.Hour, 7777 * limit.Second}[p.IntN(3)]
		}
		c := f.charge(n, f.Algorithms[n%len(f.Algorithms)], 0, 0)
		c.Limit = limit.Limit{Count: 1 + p.Int64N(40), Window: window}
		if c.Algorithm.HasBurst() && p.IntN(2) == 0 {
			c.Limit.Burst = 1 + p.Int64N(60)
		}
		if c.Algorithm == rule.FixedWindow && p.IntN(2) == 0 && f.At != nil {
			c.Offset = limit.Micros(p.Int64N(int64(window)))
		}
		p.counters = append(p.counters, c)
	}
	for step := 0; step < 2000 && !f.Failed(); step++ {
		p.play()
	}
	f.Logf("random: %d calls of %d admitted, %d refunds", p.admitted, p.calls, p.refunds)
	if p.admitted < p.calls/10 || p.calls-p.admitted < p.calls/10 {
		f.Errorf("%d of %d calls admitted: the test does not test", p.admitted, p.calls)
	}
}

type player struct {
	*fixture
	*rand.Rand
	model                    model
	counters                 []limiter.Charge
	owed                     []limiter.Call // charged, to be given back one day
	calls, admitted, refunds int
}

func (p *player) play() {
	if p.At != nil && p.IntN(3) == 0 {
		p.now += limit.Micros(p.Int64N(int64(10 * limit.Minute)))
	}
	switch p.IntN(20) {
	case 0:
		c := p.counters[p.IntN(len(p.counters))]
		p.reset(c)
		delete(p.model.counters, c.Counter)
	case 1, 2, 3:
		if len(p.owed) > 0 {
			p.refunds++
			i := p.IntN(len(p.owed))
			back := p.owed[i]
			p.owed = append(p.owed[:i], p.owed[i+1:]...)
			back.Now = p.now
			p.refund(noID, back.Charges, back.Outcomes)
			p.model.refund(&back)
		}
	default:
		p.call()
	}
}

// call makes one call of the store and of the model.
func (p *player) call() {
	c := limiter.Call{Now: p.now}
	for _, n := range p.Perm(len(p.counters))[:1+p.IntN(4)] {
		ch := p.counters[n]
		if !ch.Algorithm.HasBurst() {
			ch.Limit.Count = max(1, ch.Limit.Count+p.Int64N(9)-4)
		}
		ch.Cost = p.Int64N(1 + ch.Limit.Count/4)
		if p.IntN(10) == 0 {
			ch.Cost = p.Int64N(ch.Limit.Count + 10)
		}
		ch.Shadow = p.IntN(6) == 0
		if _, there, known := p.model.of(&ch, p.now); known {
			ch.Existing = p.IntN(8) == 0 || there && p.IntN(2) == 0
		}
		c.Charges = append(c.Charges, ch)
	}
	known := p.known(c.Charges)
	c.Outcomes = make([]limiter.Outcome, len(c.Charges))
	p.model.take(&c)
	got, ok := p.take(c.Charges...)
	p.calls++
	if ok {
		p.admitted++
	}
	queues := false
	for i, want := range c.Outcomes {
		g, ch := got[i], c.Charges[i]
		queues = queues || ch.Algorithm == rule.LeakyQueue
		same := g.Status == want.Status && g.Charged == want.Charged && (g.Made == want.Made || !known[i])
		if want.Status == limiter.Admitted || want.Status == limiter.Refused {
			same = same && p.alike(g.Decision, want.Decision)
		}
		if want.Charged {
			same = same && p.alike(g.Next, want.Next) && (p.At == nil || g.At == want.At) && g.AskAgain <= g.Next.RetryAfter
		}
		if !same {
			p.Errorf("call %d at %d, charge %d of %d: %+v\n got %+v\nwant %+v", p.calls, p.now, i, len(got), ch, g, want)
		}
	}
	// By a clock of its own, a queue and its model part by what drains: a refund knows its call by the very µs.
	if ok && (p.At != nil || !queues) && len(p.owed) < 100 {
		p.owed = append(p.owed, limiter.Call{Charges: c.Charges, Outcomes: got})
	}
}

// known tells of each charge whether a store must have its counter or must not have it.
func (p *player) known(charges []limiter.Charge) (known []bool) {
	for i := range charges {
		_, _, k := p.model.of(&charges[i], p.now)
		known = append(known, k)
	}
	return known
}

// alike compares decisions: without a common clock, what is told of time is not the same.
func (p *player) alike(got, want limit.Decision) bool {
	if p.At == nil {
		return got.Allowed == want.Allowed && got.Limit == want.Limit && got.Remaining == want.Remaining
	}
	return got == want
}
