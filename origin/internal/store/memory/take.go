package memory

import (
	"math/bits"
	"slices"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// place is where a counter is kept, with its state.
type place struct {
	shard *shard
	name  *limiter.Counter // the charge's own, or an overflow counter's
	hash  uint32
	at    int  // its entry's number, -1 for none
	kept  bool // it has a state that is not over
	state state
	next  state // after the charge, if that is made
}

// room is for as many rules as a request usually meets: no allocation up to here.
const room = 4

// find finds the counters of charges.
func (s *Store) find(places []place, charges []limiter.Charge, l *locked, now limit.Micros) []place {
	full := uint64(0) // shards that are, where a charge has no counter
	for i := range charges {
		c := &charges[i]
		n := shardOf(&c.Counter)
		places = append(places, place{shard: &s.shards[n], name: &c.Counter, hash: s.hash(&c.Counter)})
		p := &places[i]
		if p.at = p.shard.find(p.name, p.hash); p.at < 0 && !c.Existing && p.shard.count >= s.perShard {
			full |= 1 << n
		}
	}
	if full != 0 {
		s.makeRoom(places, charges, full, l, now)
	}
	for i := range places {
		places[i].load(&charges[i], now)
	}
	return places
}

// makeRoom sweeps shards that are full, and gives overflow counters to the charges that have no room after all.
func (s *Store) makeRoom(places []place, charges []limiter.Charge, full uint64, l *locked, now limit.Micros) {
	for ; full != 0; full &= full - 1 {
		s.shards[bits.TrailingZeros64(full)].sweep(now, fullSteps)
	}
	for i := range places {
		p := &places[i]
		if p.at = p.shard.find(p.name, p.hash); p.at >= 0 || charges[i].Existing || p.shard.count < s.perShard {
			continue
		}
		if !l.strange {
			s.strange.mu.Lock()
			l.strange = true
		}
		name := p.name.Overflow()
		p.shard, p.name, p.hash = &s.strange, &name, s.hash(&name)
		p.at = p.shard.find(p.name, p.hash)
	}
}

// keep writes a state, telling whether it took an entry that place did not know of. It removes none, so that the numbers
// that a call's other places hold stay true: what has expired is swept once all are kept.
func (p *place) keep(s *state, until limit.Micros) (made bool) {
	if p.at < 0 {
		p.at, made = p.shard.find(p.name, p.hash), true // a call may name a counter twice
	}
	if p.at < 0 {
		p.at = p.shard.add(p.name, p.hash)
	}
	p.shard.keep(p.at, s, until)
	return made
}

// take decides a call, one that is a repeat without charging it. It tells whether it charged enforced charges, or any where
// there are none.
func (s *Store) take(call *limiter.Call, repeat bool) (charged bool) {
	now, charges, outcomes := call.Now, call.Charges, call.Outcomes
	l := s.lock(charges)
	defer s.unlock(&l)
	var scratch [room]place
	places, admitted := s.find(scratch[:0], charges, &l, now), true
	for i := range charges {
		c, p, o := &charges[i], &places[i], &outcomes[i]
		p.decide(c, o, now, repeat)
		admitted = admitted && (o.Status == limiter.Admitted || c.Shadow)
		if p.shard == &s.strange && s.overflow != nil {
			s.overflow()
		}
	}
	enforced := slices.ContainsFunc(charges, func(c limiter.Charge) bool { return !c.Shadow })
	swept, strange := uint64(0), false // what got new entries
	for i := range charges {
		c, p, o := &charges[i], &places[i], &outcomes[i]
		added := p.settle(c, o, now, admitted || c.Shadow, repeat)
		o.Shared = o.Charged && p.shard == &s.strange
		if !added {
			// It has its entry already, or none.
		} else if p.shard == &s.strange {
			strange = true
		} else {
			swept |= 1 << shardOf(&c.Counter)
		}
		charged = charged || o.Charged && !(c.Shadow && enforced)
	}
	if strange {
		s.strange.sweep(now, sweepSteps)
	}
	for ; swept != 0; swept &= swept - 1 {
		s.shards[bits.TrailingZeros64(swept)].sweep(now, sweepSteps)
	}
	return charged
}

// findCharged finds a counter where it was charged.
func (s *Store) findCharged(c *limiter.Charge, o *limiter.Outcome, l *locked, now limit.Micros) (p place) {
	p = place{shard: &s.shards[shardOf(&c.Counter)], at: -1}
	if o.Shared {
		if !l.strange {
			s.strange.mu.Lock()
			l.strange = true
		}
		p.shard = &s.strange
		name := c.Counter.Overflow()
		p.at = p.shard.find(&name, s.hash(&name))
	} else {
		p.at = p.shard.find(&c.Counter, s.hash(&c.Counter))
	}
	p.load(c, now)
	return p
}

// load reads the state of a counter that was found.
func (p *place) load(c *limiter.Charge, now limit.Micros) {
	if p.at >= 0 && now < p.shard.at(p.at).until {
		p.state, p.kept = p.shard.load(p.at), true
	} else {
		p.state = fresh(c, now)
	}
}

// decide fills o as if c were alone, with the state after it in p.next.
func (p *place) decide(c *limiter.Charge, o *limiter.Outcome, now limit.Micros, repeat bool) {
	*o = limiter.Outcome{Status: limiter.Admitted, At: now}
	if c.Cost == 0 || repeat || c.Algorithm == rule.SlidingLog { // a log takes its memory along when it is charged
		o.Decision = p.state.peek(c, now, c.Cost)
		p.next = p.state
	} else {
		p.next, o.Decision = p.state.take(c, now)
	}
	switch {
	case repeat:
		o.Decision.Allowed, o.Decision.RetryAfter = true, 0
	case c.Existing && !p.kept:
		o.Status = limiter.Unmade
	case !o.Decision.Allowed:
		o.Status, o.AskAgain = limiter.Refused, o.Decision.RetryAfter
		if c.Algorithm == rule.SlidingLog && c.Cost > 0 && p.kept {
			p.next, _ = p.state.take(c, now)
		}
	}
}

// settle writes what decide found: the charge if it is to be made, nothing else but what a clock step or a changed limit
// asks for. It tells whether it made an entry.
func (p *place) settle(c *limiter.Charge, o *limiter.Outcome, now limit.Micros, admitted, repeat bool) (added bool) {
	switch {
	case o.Status == limiter.Refused:
		if p.kept && p.next != p.state {
			p.keep(&p.next, now.After(p.next.freshAfter(c, now)))
		}
	case o.Status != limiter.Admitted || c.Cost == 0 || repeat:
	case !admitted:
		o.Decision = p.state.peek(c, now, c.Cost)
	default:
		return p.charge(c, o, now)
	}
	return false
}

// charge makes a charge that decide admitted. It tells whether it made an entry.
func (p *place) charge(c *limiter.Charge, o *limiter.Outcome, now limit.Micros) (added bool) {
	if c.Algorithm == rule.SlidingLog {
		p.next, o.Decision = p.state.take(c, now)
	}
	o.Charged, o.Made, o.At = true, !p.kept, now+o.Decision.Hold
	added = p.keep(&p.next, now.After(o.Decision.ResetAfter))
	if o.Decision.Remaining > 0 {
		// What a call of cost 1 is answered at this instant follows from the decision.
		o.Next = o.Decision
		o.Next.Hold = 0
		if c.Algorithm == rule.LeakyQueue {
			o.Next.Hold = o.Decision.ResetAfter
		}
		return added
	}
	o.Next = p.next.peek(c, now, 1)
	o.AskAgain = o.Next.RetryAfter
	return added
}
