// Package penalty lengthens the refusals of those who go on when refused.
package penalty

import (
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

const (
	// DefaultSize is how many counters a process remembers refusals of: at about 190 bytes each, some 19 MB.
	DefaultSize = 100_000
	// shortest is what the first longer refusal is twice of at least: a client reads its wait in whole seconds.
	shortest = limit.Second
)

// Book remembers, by counter, how often a principal went on when refused. It lives as long as its process, whatever
// releases come and go. It is safe for concurrent use. The zero value is not ready: see [New].
//
// A refusal counts if it comes before the last one said to come back; one that was waited for does not, so that who does
// as told is never penalised, however often that is. Each beyond [rule.Penalty.After] doubles the wait that the limit asks
// for, at least a second, once more. Neither one such wait nor all of them without a break are longer than
// [rule.Penalty.Ceiling]: then the limit is asked again. Each [rule.Penalty.Decay] in which nothing counts halves the
// count, which is never more than it takes to reach the ceiling.
type Book[K comparable] struct{ entries *otter.Cache[K, *entry] }

type entry struct {
	until atomic.Int64 // limit.Micros: a lengthened refusal stands before; 0 for none
	reset atomic.Int64 // limit.Micros: the counter is fresh from here on, for all that was known
	quota atomic.Int64

	mu    sync.Mutex
	count int64
	last  limit.Micros // when one counted, or the count was halved since
	told  limit.Micros // when the principal was to come back
	began limit.Micros // of the lengthened refusals without a break
	base  limit.Micros // the wait that is doubled
}

// New makes a book of at most size counters; the least used go first.
func New[K comparable](size int) *Book[K] {
	return &Book[K]{otter.Must(&otter.Options[K, *entry]{MaximumSize: size})}
}

// Standing is the decision for a call at now while a lengthened refusal of key stands. It does not allocate.
func (b *Book[K]) Standing(key K, now limit.Micros) (d limit.Decision, stands bool) {
	e, ok := b.entries.GetIfPresent(key)
	if !ok || now >= limit.Micros(e.until.Load()) {
		return d, false
	}
	return e.decision(now), true
}

func (e *entry) decision(now limit.Micros) limit.Decision {
	wait := max(1, now.Until(limit.Micros(e.until.Load())))
	return limit.Decision{Limit: e.quota.Load(), RetryAfter: wait, ResetAfter: max(wait, now.Until(limit.Micros(e.reset.Load())))}
}

// Refused notes a refusal d of key at now, whoever refused, [Book.Standing] included, and gives it lengthened by p. The
// zero p lengthens and notes nothing.
func (b *Book[K]) Refused(key K, p rule.Penalty, d limit.Decision, now limit.Micros) limit.Decision {
	if p.After == 0 {
		return d
	}
	e, ok := b.entries.GetIfPresent(key)
	if !ok {
		e, _ = b.entries.SetIfAbsent(key, &entry{})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	standing := now < limit.Micros(e.until.Load())
	if !standing {
		// Another one in a standing refusal is told what is left of it, which says nothing of the limit.
		e.base = shortest
		if d.RetryAfter != limit.Never {
			e.base = max(shortest, d.RetryAfter)
		}
		e.quota.Store(d.Limit)
		e.reset.Store(int64(now.After(d.ResetAfter)))
	}
	e.add(p, now)
	if n := e.count - p.After; n > 0 {
		if !standing {
			e.began = now
		}
		until := now + doubled(e.base, n, p.Ceiling)
		e.until.Store(int64(min(e.began+p.Ceiling, max(until, limit.Micros(e.until.Load())))))
		if now < limit.Micros(e.until.Load()) {
			longer := e.decision(now)
			d.RetryAfter, d.ResetAfter = max(d.RetryAfter, longer.RetryAfter), max(d.ResetAfter, longer.ResetAfter)
		}
	}
	e.told = now.After(d.RetryAfter)
	return d
}

// add counts a refusal at now.
func (e *entry) add(p rule.Penalty, now limit.Micros) {
	decays := max(0, now-e.last) / p.Decay
	e.count >>= min(62, decays)
	e.last += decays * p.Decay
	if now >= e.told {
		e.count = max(1, e.count) // came back when it was to, or for the first time
		return
	}
	if e.count <= p.After || doubled(e.base, e.count-p.After, p.Ceiling) < p.Ceiling {
		e.count++
	}
	e.last = now
}

// doubled is base, n times doubled, at most ceiling.
func doubled(base limit.Micros, n int64, ceiling limit.Micros) limit.Micros {
	if n > 40 || base > ceiling>>n { // 24 h are 2^37 µs
		return ceiling
	}
	return base << n
}

// Clear forgets the refusals of key.
func (b *Book[K]) Clear(key K) { b.entries.Invalidate(key) }

// CleanUp does the eviction that is due, which otherwise happens in the background of later calls.
func (b *Book[K]) CleanUp() { b.entries.CleanUp() }

// Len is about how many counters are remembered.
func (b *Book[K]) Len() int { return b.entries.EstimatedSize() }
