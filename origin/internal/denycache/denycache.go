// Package denycache remembers refusals, so that a client that hammers costs the store nothing.
package denycache

import (
	"github.com/maypok86/otter/v2"

	"github.com/weirproject/weir/shared/limit"
)

const (
	// DefaultSize is how many refusals a process remembers: at about 150 bytes each, some 15 MB.
	DefaultSize = 100_000
	// longest is how long one is remembered whatever its wait: what frees a caller early elsewhere (a reset, a refund)
	// is seen here after that at the latest.
	longest = 30 * limit.Second
)

// Cache remembers, by counter, from which cost on calls are refused and until when. It is safe for concurrent use. The
// zero value is not ready: see [New].
type Cache[K comparable] struct{ entries *otter.Cache[K, entry] }

type entry struct {
	cost  int64        // calls of this cost and more are refused
	opens limit.Micros // the store is asked again from here on
	frees limit.Micros // such a call is admitted from here on; Never
	reset limit.Micros // the counter equals a fresh one from here on; Never
	quota int64
}

// New makes a cache of at most size entries; the least used go first.
func New[K comparable](size int) *Cache[K] {
	return &Cache[K]{otter.Must(&otter.Options[K, entry]{MaximumSize: size})}
}

// Pass is a call's leave to ask the store. The zero value is one that nobody counts.
type Pass struct{}

// Enter asks whether a call of some cost > 0 may go to the store at now. Refused, it is answered by d from memory. Else it
// has a pass, which exactly one of [Cache.Learn] and [Cache.Leave] takes back. It does not allocate.
func (c *Cache[K]) Enter(key K, cost int64, now limit.Micros) (d limit.Decision, pass Pass, refused bool) {
	e, ok := c.entries.GetIfPresent(key)
	if !ok || cost < e.cost || now >= e.opens {
		return limit.Decision{}, Pass{}, false
	}
	return limit.Decision{Limit: e.quota, RetryAfter: now.Until(e.frees), ResetAfter: now.Until(e.reset)}, Pass{}, true
}

// Learn takes a pass back with what the store answered at now to its call of that cost: d, and next for a call of cost 1
// right after it where it was charged. askAgain is how long a refusal, d or else next, holds. A refusal of a larger cost
// does not replace a standing one of a smaller, which says more.
func (c *Cache[K]) Learn(key K, pass Pass, cost int64, d, next limit.Decision, askAgain, now limit.Micros) {
	if d.Allowed {
		if d.Remaining > 0 || next.Allowed {
			return
		}
		d, cost = next, 1
	}
	if askAgain <= 0 {
		return
	}
	if e, ok := c.entries.GetIfPresent(key); ok && e.cost < cost && now < e.opens {
		return
	}
	c.entries.Set(key, entry{
		cost: cost, opens: now + min(askAgain, longest),
		frees: now.After(d.RetryAfter), reset: now.After(d.ResetAfter), quota: d.Limit,
	})
}

// Leave takes a pass back whose call taught nothing: the store failed, or it was not asked after all.
func (c *Cache[K]) Leave(key K, pass Pass) {}

// Drop forgets what is known of key: its counter was reset, or given something back.
func (c *Cache[K]) Drop(key K) { c.entries.Invalidate(key) }

// CleanUp does the eviction that is due, which otherwise happens in the background of later calls.
func (c *Cache[K]) CleanUp() { c.entries.CleanUp() }

// Len is about how many refusals are remembered.
func (c *Cache[K]) Len() int { return c.entries.EstimatedSize() }
