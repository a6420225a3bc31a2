// Package memory keeps counters in this process.
package memory

import (
	"context"
	"encoding/binary"
	"math/bits"
	"sync"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

const (
	// shardCount parts the lock: with 64, callers on 2 to 32 cores seldom meet. A bit set of shards fits a word.
	shardCount = 64
	// DefaultSize is how many counters a process keeps: at about 150 bytes each, some 150 MB.
	DefaultSize = 1_000_000
	// sweepSteps is how many entries a new counter looks at for ones that have expired: two, so that up to two go for
	// one that comes.
	sweepSteps = 2
)

// Store is a [limiter.Store] in memory: exact, bounded, for one process. It never fails.
// It is safe for concurrent use.
//
// When it is full of counters in use, a principal without one shares an overflow counter with all others of its rule
// and shard. So strangers may be refused together, but memory does not grow and nobody gets in uncounted.
type Store struct {
	shards   [shardCount]shard
	ids      [idShards]ids
	perShard int
	overflow func()
}

type shard struct {
	mu       sync.Mutex
	counters map[limiter.Counter]counter
	_        [40]byte // to a cache line of its own
}

type counter struct {
	state state
	until limit.Micros // it equals a fresh one from here on
}

// New makes a store of at most size counters (an overflow counter a rule and shard is on top). overflow, if not nil, is
// called for each decision on an overflow counter.
func New(size int, overflow func()) *Store {
	s := &Store{perShard: max(1, size/shardCount), overflow: overflow}
	for i := range s.shards {
		s.shards[i].counters = map[limiter.Counter]counter{}
	}
	return s
}

// shardOf spreads over the hashed part of the name.
func shardOf(c *limiter.Counter) uint {
	return uint(binary.LittleEndian.Uint64(c[len(c)-8:])*0x9e3779b97f4a7c15>>58) % shardCount
}

// lock locks the shards of all charges in ascending order, so that two checks never wait for each other.
func (s *Store) lock(charges []limiter.Charge) (set uint64) {
	for i := range charges {
		set |= 1 << shardOf(&charges[i].Counter)
	}
	for rest := set; rest != 0; rest &= rest - 1 {
		s.shards[bits.TrailingZeros64(rest)].mu.Lock()
	}
	return set
}

func (s *Store) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
}

// place is where a counter is kept, with its state.
type place struct {
	shard *shard
	name  limiter.Counter
	state state
	kept  bool // it exists
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
	locked := s.lock(charges)
	defer s.unlock(locked)
	var room [4]place // as many rules as a request usually meets: no allocation up to here
	places, admitted := room[:0], true
	for i := range charges {
		c := &charges[i]
		places = append(places, s.find(c, now))
		p := &places[i]
		o := limiter.Outcome{Status: limiter.Admitted, Decision: p.state.peek(c, now, c.Cost), At: now}
		switch {
		case repeat:
			o.Decision.Allowed, o.Decision.RetryAfter = true, 0
		case c.Existing && !p.kept:
			o.Status = limiter.Unmade
		case !o.Decision.Allowed:
			o.Status, o.AskAgain = limiter.Refused, o.Decision.RetryAfter
			if next, _ := p.state.take(c, now); next != p.state { // re-anchored after a clock step
				p.keep(c, next, now)
			}
		}
		outcomes[i] = o
		admitted = admitted && (o.Status == limiter.Admitted || c.Shadow)
	}
	for i := range charges {
		c, p, o := &charges[i], &places[i], &outcomes[i]
		if o.Status != limiter.Admitted || c.Cost == 0 || !admitted && !c.Shadow || repeat {
			continue
		}
		charged = charged || !c.Shadow
		next, d := p.state.take(c, now)
		o.Charged, o.Made, o.At = true, !p.kept, now+d.Hold
		p.keep(c, next, now)
		o.Decision, o.Next = d, next.peek(c, now, 1)
		o.AskAgain = o.Next.RetryAfter
	}
	return charged
}

// Refund is [limiter.Store.Refund].
func (s *Store) Refund(_ context.Context, call *limiter.Call) error {
	if call.ID != (limiter.CallID{}) {
		ids := s.idsOf(call.ID)
		ids.mu.Lock()
		defer ids.mu.Unlock()
		ids.drop(call.ID)
	}
	locked := s.lock(call.Charges)
	defer s.unlock(locked)
	for i := range call.Charges {
		c, o := &call.Charges[i], &call.Outcomes[i]
		if p := s.find(c, call.Now); o.Charged && p.kept {
			p.keep(c, p.state.refund(c, call.Now, o.At), call.Now)
		}
	}
	return nil
}

// Reset is [limiter.Store.Reset].
func (s *Store) Reset(_ context.Context, call *limiter.Call) error {
	locked := s.lock(call.Charges)
	defer s.unlock(locked)
	for i := range call.Charges {
		name := call.Charges[i].Counter
		delete(s.shards[shardOf(&name)].counters, name)
	}
	return nil
}

// Len is the number of counters kept, expired ones not yet swept included.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += len(s.shards[i].counters)
		s.shards[i].mu.Unlock()
	}
	return n
}

// find is a counter with the place that it is kept at. The caller holds the shard's lock.
func (s *Store) find(c *limiter.Charge, now limit.Micros) place {
	p := place{shard: &s.shards[shardOf(&c.Counter)], name: c.Counter}
	if _, ok := p.shard.counters[p.name]; !ok {
		if over := len(p.shard.counters) - s.perShard; over >= 0 {
			p.shard.sweep(now, over+sweepSteps)
			if len(p.shard.counters) >= s.perShard {
				p.name = c.Counter.Overflow()
				if s.overflow != nil {
					s.overflow()
				}
			}
		}
	}
	if kept, ok := p.shard.counters[p.name]; ok && now < kept.until {
		p.state, p.kept = kept.state, true
	} else {
		p.state = fresh(c, now)
	}
	return p
}

func (p *place) keep(c *limiter.Charge, next state, now limit.Micros) {
	if _, ok := p.shard.counters[p.name]; !ok {
		p.shard.sweep(now, sweepSteps)
	}
	p.shard.counters[p.name] = counter{state: next, until: now.After(next.freshAfter(c, now))}
}

// sweep looks at some entries, in random order, for ones that have expired.
func (sh *shard) sweep(now limit.Micros, steps int) {
	for name, c := range sh.counters {
		if now >= c.until {
			delete(sh.counters, name)
		}
		if steps--; steps == 0 {
			return
		}
	}
}
