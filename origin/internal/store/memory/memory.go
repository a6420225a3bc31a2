// Package memory keeps counters in this process.
package memory

import (
	"context"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sync"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

const (
	// shardCount parts the lock: with 64, callers on 2 to 32 cores seldom meet. A bit set of shards fits a word.
	shardCount = 64
	// DefaultSize is how many counters a process keeps: at about 100 bytes each with its name, some 100 MB. The entries of
	// sliding logs are on top, 16 bytes each.
	DefaultSize = 1_000_000
	// sweepSteps is how many entries are looked at for ones that have expired, in turn, after a new counter: two, so that up
	// to two go for one that comes. A stranger at a full shard looks at fullSteps.
	sweepSteps = 2
	fullSteps  = 8
)

// Store is a [limiter.Store] in memory: exact, bounded, for one process. It never fails.
// It is safe for concurrent use.
//
// When it is full of counters in use, a principal without one shares an overflow counter with all others of its rule. So
// strangers may be refused together, but memory does not grow and nobody gets in uncounted.
type Store struct {
	shards   [shardCount]shard
	strange  shard // the overflow counters, one a rule; locked after all others
	ids      [idShards]ids
	seed     [2]uint64
	perShard int
	overflow func()
}

type shard struct {
	mu sync.Mutex
	table
	_ [8]byte // to whole cache lines, so that no two shards share one
}

// New makes a store of at most size counters, parted evenly among its shards; an overflow counter a rule is on top.
// overflow, if not nil, is called for each decision on an overflow counter.
func New(size int, overflow func()) *Store {
	return &Store{
		seed:     [2]uint64{rand.Uint64(), rand.Uint64()},
		perShard: min(max(1, (size+shardCount-1)/shardCount), maxEntries),
		overflow: overflow,
	}
}

// shardOf spreads over the hashed principal, so that a caller's counters of all rules are in one shard.
func shardOf(c *limiter.Counter) uint {
	return uint(binary.LittleEndian.Uint64(c[len(c)-8:])*0x9e3779b97f4a7c15>>58) % shardCount
}

// hash tells counters of a shard apart. Names are hashes under a secret already; the seed is for those that are not.
func (s *Store) hash(c *limiter.Counter) uint32 {
	principal, ru := binary.LittleEndian.Uint64(c[len(c)-8:]), binary.LittleEndian.Uint64(c[len(c)-30:])
	hi, lo := bits.Mul64(principal^s.seed[0], ru^s.seed[1])
	hi, lo = bits.Mul64(hi^lo^binary.LittleEndian.Uint64(c[len(c)-16:]), 0x9e3779b97f4a7c15)
	return uint32((hi ^ lo) >> 16)
}

// locked is the set of shards that a call holds.
type locked struct {
	shards  uint64
	strange bool
}

// lock locks the shards of all charges in ascending order, so that two calls never wait for each other.
func (s *Store) lock(charges []limiter.Charge) (l locked) {
	for i := range charges {
		l.shards |= 1 << shardOf(&charges[i].Counter)
	}
	for rest := l.shards; rest != 0; rest &= rest - 1 {
		s.shards[bits.TrailingZeros64(rest)].mu.Lock()
	}
	return l
}

func (s *Store) unlock(l *locked) {
	if l.strange {
		s.strange.mu.Unlock()
	}
	for rest := l.shards; rest != 0; rest &= rest - 1 {
		s.shards[bits.TrailingZeros64(rest)].mu.Unlock()
	}
}

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

// keep writes a state. It may give another counter's entry a number that place does not know of only by removing one, so
// nothing is swept before all are kept.
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

// Take is [limiter.Store.Take]; it decides at the call's Now and never fails.
func (s *Store) Take(_ context.Context, call *limiter.Call) error {
	if call.ID == (limiter.CallID{}) {
		s.take(call, false)
		return nil
	}
	ids := s.idsOf(call.ID)
	ids.mu.Lock() // always before those of counters
	defer ids.mu.Unlock()
	if charged := s.take(call, ids.has(call.ID, call.Now)); charged {
		ids.add(call.ID, call.Now)
	}
	return nil
}

// take decides a call, one that is a repeat without charging it. It tells whether it charged enforced charges.
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
	swept := uint64(0)
	for i := range charges {
		c, p, o := &charges[i], &places[i], &outcomes[i]
		if p.settle(c, o, now, admitted || c.Shadow, repeat) && p.shard != &s.strange {
			swept |= 1 << shardOf(&c.Counter)
		}
		charged = charged || o.Charged && !c.Shadow
	}
	for ; swept != 0; swept &= swept - 1 {
		s.shards[bits.TrailingZeros64(swept)].sweep(now, sweepSteps)
	}
	return charged
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

// Refund is [limiter.Store.Refund].
func (s *Store) Refund(_ context.Context, call *limiter.Call) error {
	if call.ID != (limiter.CallID{}) {
		ids := s.idsOf(call.ID)
		ids.mu.Lock()
		defer ids.mu.Unlock()
		ids.drop(call.ID)
	}
	l := s.lock(call.Charges)
	defer s.unlock(&l)
	var scratch [room]place
	places := s.find(scratch[:0], call.Charges, &l, call.Now)
	for i := range places {
		c, o, p := &call.Charges[i], &call.Outcomes[i], &places[i]
		if o.Charged && p.kept {
			next := p.state.refund(c, call.Now, o.At)
			p.keep(&next, call.Now.After(next.freshAfter(c, call.Now)))
		}
	}
	return nil
}

// Reset is [limiter.Store.Reset].
func (s *Store) Reset(_ context.Context, call *limiter.Call) error {
	l := s.lock(call.Charges)
	defer s.unlock(&l)
	for i := range call.Charges {
		name := &call.Charges[i].Counter
		sh := &s.shards[shardOf(name)]
		if at := sh.find(name, s.hash(name)); at >= 0 {
			sh.remove(at)
		}
	}
	return nil
}

// Len is the number of counters kept, expired ones not yet swept included.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += s.shards[i].count
		s.shards[i].mu.Unlock()
	}
	s.strange.mu.Lock()
	defer s.strange.mu.Unlock()
	return n + s.strange.count
}
