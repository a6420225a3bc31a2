// Package denycache remembers refusals, so that a client that hammers costs the store nothing.
//
// An entry is made by a refusal, and by an admission that leaves no room for another call. It refuses calls of its cost
// and more until it opens, which is after the wait that the store told, counted from when its answer came: never early,
// late by at most the way back. From then on the entry lets as many calls ask at once as fit into what the store had left
// when it was last heard, at least one: a flood of any size sends one call an opening, while a limit that refills many
// times in a round trip is used in full.
//
// Callers of one counter may have limits of their own, and a caller may get another one: a refusal stands for calls by the
// limit that it was made by, and by smaller ones.
package denycache

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/maypok86/otter/v2"

	"github.com/weirproject/weir/shared/limit"
)

const (
	// DefaultSize is how many counters a process remembers refusals of: at about 210 bytes each, some 21 MB.
	DefaultSize = 100_000
	// longest is how long one is remembered whatever its wait: what frees a caller early elsewhere (a reset, a refund)
	// is seen here after that at the latest.
	longest = 30 * limit.Second
	// dropped counts drops in that many parts: an answer on its way while another counter of the same part is dropped is
	// not remembered, which costs one call to the store.
	dropped = 1024
)

// Cache remembers, by counter, from which cost on calls are refused and until when. It is safe for concurrent use. The
// zero value is not ready: see [New].
type Cache[K comparable] struct {
	entries *otter.Cache[K, *entry]
	seed    maphash.Seed
	drops   [dropped]atomic.Uint64
}

// New makes a cache of at most size entries; the least used go first.
func New[K comparable](size int) *Cache[K] {
	return &Cache[K]{entries: otter.Must(&otter.Options[K, *entry]{MaximumSize: size}), seed: maphash.MakeSeed()}
}

// Pass is a call's leave to ask the store. The zero value is one that nobody counts.
type Pass struct {
	entry  *entry // that counts the call; nil for none
	cost   int64
	number int64  // of those that entry counted
	drops  uint64 // one more than there were of the key's part
	by     limit.Limit
}

// Uncounted is the pass of a call by a limit that goes to the store whatever is remembered.
func (c *Cache[K]) Uncounted(key K, by limit.Limit) Pass {
	return Pass{by: by, drops: 1 + c.part(key).Load()}
}

// Enter asks whether a call of some cost > 0 by a limit may go to the store at now. Refused, it is answered by d from memory,
// whose Limit is that of the refusal. Else it has a pass, which exactly one of [Cache.Learn] and [Cache.Leave] takes back. It
// does not allocate.
func (c *Cache[K]) Enter(key K, by limit.Limit, cost int64, now limit.Micros) (d limit.Decision, pass Pass, refused bool) {
	e, ok := c.entries.GetIfPresent(key)
	if !ok {
		return d, c.Uncounted(key, by), false
	}
	if d, refused = e.refuses(by, cost, now); refused {
		return d, Pass{}, true
	}
	pass = c.Uncounted(key, by)
	if cost < e.lowest.Load() || !e.refusal.Load().standsFor(by) {
		return d, pass, false // nothing says that it would be refused
	}
	if !e.enter(cost, now) {
		return e.between(cost, now), Pass{}, true
	}
	pass.entry, pass.cost, pass.number = e, cost, e.sent.Add(1)
	// The place may be that of a call whose refusal came after the look above.
	if d, refused = e.refuses(by, cost, now); refused {
		c.Leave(key, pass)
		return d, Pass{}, true
	}
	return d, pass, false
}

// Learn takes a pass back with what the store answered to its call of that cost, heard at now: d, and next for a call of
// cost 1 right after it where it was charged. askAgain is how long a refusal, by d or else by next, may be answered from
// memory.
func (c *Cache[K]) Learn(key K, pass Pass, cost int64, d, next limit.Decision, askAgain, now limit.Micros) {
	admitted := d.Allowed
	if admitted && d.Remaining == 0 && !next.Allowed {
		d, cost, admitted = next, 1, false
	}
	switch {
	case admitted:
		if pass.entry != nil {
			pass.entry.admitted(pass.number, d, now)
		}
	case askAgain > 0 && !c.outdated(key, pass):
		c.refuse(key, pass, cost, d, askAgain, now)
	}
	// After the entry knows, so that whoever has the place next does.
	c.Leave(key, pass)
}

func (c *Cache[K]) refuse(key K, pass Pass, cost int64, d limit.Decision, askAgain, now limit.Micros) {
	r := &refusal{by: pass.by, cost: cost, opens: now + min(askAgain, longest), frees: now.After(d.RetryAfter), quota: d.Limit}
	e, ok := c.entries.GetIfPresent(key)
	if !ok {
		e = new(entry)
		e.refusal.Store(r)
		e.lowest.Store(cost)
		e.left(d, now)
		if other, set := c.entries.SetIfAbsent(key, e); !set {
			e, ok = other, true
		}
	}
	if ok {
		number := int64(0)
		if pass.entry == e {
			number = pass.number
		}
		e.refused(number, r, d, now)
	}
	if c.outdated(key, pass) { // only now
		c.entries.Invalidate(key)
	}
}

// outdated tells whether key may have been dropped since the call of this pass went to the store: that its counter refused
// before is of no use.
func (c *Cache[K]) outdated(key K, pass Pass) bool {
	return pass.drops != 0 && pass.drops != 1+c.part(key).Load()
}

// Leave takes a pass back whose call taught nothing: the store failed, or was not asked after all.
func (c *Cache[K]) Leave(_ K, pass Pass) {
	if pass.entry != nil {
		pass.entry.asking.Add(-pass.cost)
	}
}

// Drop forgets what is known of key, since its counter was reset, or given something back. Calls that are at the store
// now teach nothing either.
func (c *Cache[K]) Drop(key K) {
	c.part(key).Add(1)
	c.entries.Invalidate(key)
}

func (c *Cache[K]) part(key K) *atomic.Uint64 {
	return &c.drops[maphash.Comparable(c.seed, key)%dropped]
}

// Refuses tells whether a call of that cost by a limit would be refused from memory at now, and changes nothing.
func (c *Cache[K]) Refuses(key K, by limit.Limit, cost int64, now limit.Micros) bool {
	e, ok := c.entries.GetEntryQuietly(key)
	if !ok {
		return false
	}
	_, refused := e.Value.refuses(by, cost, now)
	return refused
}

// Stands is the decision for a call of that cost by a limit at now as long as the store's last refusal told to wait, past the
// opening too: for when the store cannot be asked again. It ends where the store admitted a call meanwhile that left room for
// this one, and changes nothing.
func (c *Cache[K]) Stands(key K, by limit.Limit, cost int64, now limit.Micros) (d limit.Decision, stands bool) {
	e, ok := c.entries.GetIfPresent(key)
	if !ok {
		return d, false
	}
	return e.stands(by, cost, now)
}

// CleanUp does the eviction that is due, which otherwise happens in the background of later calls.
func (c *Cache[K]) CleanUp() { c.entries.CleanUp() }

// Len is about how many counters are remembered.
func (c *Cache[K]) Len() int { return c.entries.EstimatedSize() }
