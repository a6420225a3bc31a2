// Package memory keeps counters in this process.
package memory

import (
	"context"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sync"

	"github.com/weirproject/weir/origin/internal/limiter"
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
	for i := range call.Charges {
		c, o := &call.Charges[i], &call.Outcomes[i]
		if !o.Charged {
			continue
		}
		if p := s.findCharged(c, o, &l, call.Now); p.kept {
			// A refund comes with the limit of its charge. Of a state that it leaves as it is, the time until that is over
			// is by the limit of later ones. Of a log nobody can tell, and by a clock that stepped back its entries may be
			// over sooner than they are: it never lasts shorter for a refund, since its entries end by themselves.
			next := p.state.refund(c, call.Now, o.At)
			until := call.Now.After(next.freshAfter(c, call.Now))
			switch {
			case next.log != nil:
				until = max(until, p.shard.at(p.at).until)
			case next == p.state:
				continue
			}
			p.keep(&next, until)
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
