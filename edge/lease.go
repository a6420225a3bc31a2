package edge

import (
	"math"
	"math/bits"

	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
)

const (
	// LeaseLife is how long a worker may spend a lease. 100 ms bound what a worker strands to a tenth of a second's
	// worth, and let a busy address touch shared data about ten times a second.
	LeaseLife = 100 * limit.Millisecond
	// casTries bounds the tries to write a slot: with W workers at most W-1 can win before us in one go, and a slot
	// is written far less often than read, so four lost in a row mean trouble, not bad luck.
	casTries = 4
	// exhaustedRetry is the wait told after that.
	exhaustedRetry = limit.Second
	// burstShare keeps the leases of eight workers together from emptying a bucket that nobody has used.
	burstShare = 8
	// leftShare keeps a worker from stranding the last tokens: it takes at most a quarter of what is left.
	leftShare = 4
)

// LeaseMax is the most tokens that one worker holds in advance of a bucket of limit l:
// max(1, min(floor(rate × LeaseLife), capacity/8)). It is the term of the bound in the package comment.
func LeaseMax(l limit.Limit) int64 {
	perLife := int64(math.MaxInt64)
	hi, lo := bits.Mul64(uint64(l.Count), uint64(LeaseLife))
	if hi < uint64(l.Window) {
		q, _ := bits.Div64(hi, lo, uint64(l.Window))
		perLife = int64(min(q, math.MaxInt64))
	}
	return max(1, min(perLife, l.Capacity()/burstShare, math.MaxInt32)) // a table entry holds 32 bits
}

// ruleKey derives the hash key of a rule's buckets, so that another rule finds none of them.
func ruleKey(seed keyfilter.HashKey, name string) keyfilter.HashKey {
	var key keyfilter.HashKey
	var text [64]byte
	n := copy(text[1:], name)
	for half := range 2 {
		text[0] = byte(half)
		h := keyfilter.Hash(seed, text[:n+1])
		for i := range 8 {
			key[8*half+i] = byte(h >> (8 * i))
		}
	}
	return key
}

// tag names the bucket of an address and class: 63 bits of keyed hash, and the class in the lowest, so that a slot's
// reader knows each bucket's limit. It is never 0.
func (e *Engine) tag(text []byte, class Class) uint64 {
	a := parseAddress(text)
	a.cut(e.rule.PrefixV4, e.rule.PrefixV6)
	var principal [17]byte
	principal[0] = byte(a.family)
	copy(principal[1:], a.bytes[:])
	return max(keyfilter.Hash(e.key, principal[:])&^1, 2) | uint64(class)
}

// charge pays for one request: from this worker's lease, or from memory of a refusal, else from the shared bucket.
// Tokens come with time only, so a refusal holds until its RetryAfter whatever other workers do, and needs neither a
// read nor a write until then.
func (e *Engine) charge(class Class, tag uint64, now limit.Micros) (d limit.Decision, exhausted bool) {
	p := &e.policies[class]
	mine := e.local.find(tag, now)
	if now < mine.until {
		switch {
		case mine.size == 0:
			return mine.refusal(p.limit, now), false
		case mine.tokens > 0:
			mine.tokens--
			return limit.Decision{Allowed: true}, false
		}
	}
	want := min(mine.next(now), p.lease)
	slot := uint32(tag>>1) % SlotCount
	for range casTries {
		value, cas, ok := e.slots.Get(slot)
		s := set{print: e.print}
		if !ok {
			cas = CreateCAS
		} else if s, ok = decodeSet(value); !ok {
			// Nobody knows whom this slot limited, so all of them start empty. Written at once, though the
			// answer will be a refusal: otherwise the floor would move on with every read.
			s = set{print: e.print, floor: now + e.slowest}
			e.slots.Set(slot, s.encode(&e.scratch), cas)
		}
		s.rebase(e.print, e.slowest, now)
		c := s.counter(tag, &e.policies, now)
		state := c.bucket.Peek(p.limit, now, 1)
		if !state.Allowed {
			mine.refuse(state, now)
			return state, false
		}
		grant := min(want, max(1, state.Remaining/leftShare))
		c.bucket, _ = c.bucket.Take(p.limit, now, grant)
		if e.slots.Set(slot, s.encode(&e.scratch), cas) {
			*mine = entry{tag: tag, until: now + LeaseLife, tokens: uint32(grant - 1), size: uint32(grant)}
			return limit.Decision{Allowed: true}, false
		}
	}
	return limit.Decision{Limit: p.limit.Capacity(), RetryAfter: exhaustedRetry, ResetAfter: exhaustedRetry}, true
}

// next is how much to lease after this entry: what a lease's life needs at the pace of the last one, at most doubling,
// at least 1. So a busy address settles at about ten refills a second with little stranded, and a quiet one at 1.
func (e *entry) next(now limit.Micros) int64 {
	used, most := int64(e.size)-int64(e.tokens), 2*int64(e.size)
	elapsed := now - (e.until - LeaseLife)
	if e.size == 0 || elapsed < 0 {
		return 1
	}
	if elapsed == 0 {
		return most
	}
	return max(1, min(used*int64(LeaseLife)/int64(elapsed), most))
}

// refuse remembers a refusal until a token has come.
func (e *entry) refuse(d limit.Decision, now limit.Micros) {
	*e = entry{tag: e.tag, until: now.After(d.RetryAfter), full: now.After(d.ResetAfter)}
}

// refusal is the remembered decision as it stands now.
func (e *entry) refusal(l limit.Limit, now limit.Micros) limit.Decision {
	return limit.Decision{Limit: l.Capacity(), RetryAfter: now.Until(e.until), ResetAfter: now.Until(e.full)}
}
