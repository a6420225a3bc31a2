package edge

import (
	"math"
	"math/bits"

	"github.com/weirproject/weir/shared/header"
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

// bill is what one request has paid so far, by the leases it paid from.
type bill struct {
	n     int
	entry [3]*entry
	tag   [3]uint64
}

func (b *bill) add(e *entry) {
	b.entry[b.n], b.tag[b.n] = e, e.tag
	b.n++
}

// giveBack returns the tokens to their leases. A lease that made room for another in the meantime takes nothing back, which
// is on the strict side.
func (b *bill) giveBack(now limit.Micros) {
	for i, e := range b.entry[:b.n] {
		if e.tag == b.tag[i] && now < e.until && e.tokens < e.size {
			e.tokens++
		}
	}
}

// charge pays one token of a bucket: from this worker's lease, or from memory of a refusal, else from the shared bucket.
// Tokens come with time only, so a refusal holds until its RetryAfter whatever other workers do, and needs neither a
// read nor a write until then. A refusal is told in v. Without paid it only tells whether there is a token to pay, now.
func (e *Engine) charge(v *Verdict, paid *bill, k kind, tag uint64, now limit.Micros) bool {
	p := &e.policies.of[k]
	mine := e.local.find(tag, now)
	if now < mine.until {
		switch {
		case mine.size == 0:
			return e.refuse(v, p, mine.refusal(p.limit, now))
		case mine.tokens > 0 && paid == nil:
			return true
		case mine.tokens > 0:
			mine.tokens--
			paid.add(mine)
			return true
		}
	}
	want := min(mine.next(now), p.lease)
	slot := uint32(tag>>kindBits) % e.slotCount
	for range casTries {
		value, cas, ok := e.slots.Get(slot)
		s := set{print: e.policies.print}
		if !ok {
			cas = CreateCAS
		} else if s, ok = decodeSet(value); !ok {
			// Nobody knows whom this slot limited, so all of them start empty. Written at once, though the
			// answer will be a refusal: otherwise the floor would move on with every read.
			s = set{print: e.policies.print}
			for g, slowest := range e.policies.slowest {
				s.floors[g] = now + slowest
			}
			e.slots.Set(slot, s.encode(&e.scratch), cas)
		}
		rebased := s.rebase(&e.policies, &e.before, now)
		c, made := s.counter(tag, &e.policies, now)
		if now < e.was.until && made != nothing {
			e.move(c, p, now)
		}
		state := c.bucket.Peek(p.limit, now, 1)
		if !state.Allowed {
			if rebased { // once a set and release
				e.slots.Set(slot, s.encode(&e.scratch), cas)
			}
			mine.refuse(state, now)
			return e.refuse(v, p, state)
		}
		if paid == nil {
			return true
		}
		grant := min(want, max(1, state.Remaining/leftShare))
		c.bucket, _ = c.bucket.Take(p.limit, now, grant)
		if e.slots.Set(slot, s.encode(&e.scratch), cas) {
			*mine = entry{tag: tag, until: now + LeaseLife, tokens: uint32(grant - 1), size: uint32(grant)}
			paid.add(mine)
			v.Created, v.Evicted = v.Created+made.free, v.Evicted+made.evicted
			return true
		}
	}
	v.Exhausted = true
	return e.refuse(v, p, limit.Decision{Limit: p.limit.Capacity(), RetryAfter: exhaustedRetry, ResetAfter: exhaustedRetry})
}

// move makes a new bucket no fuller than the one of the same tag in the table of the size before.
func (e *Engine) move(c *counter, p *policy, now limit.Micros) {
	value, _, ok := e.slots.Get(uint32(c.tag>>kindBits) % e.was.slotCount)
	if !ok {
		return
	}
	s, ok := decodeSet(value)
	if !ok {
		return
	}
	s.rebase(&e.policies, &e.before, now)
	old, _ := s.counter(c.tag, &e.policies, now)
	if old.bucket.Peek(p.limit, now, 1).Remaining < c.bucket.Peek(p.limit, now, 1).Remaining {
		c.bucket = old.bucket
	}
}

// refuse makes v the refusal that a bucket gave.
func (e *Engine) refuse(v *Verdict, p *policy, d limit.Decision) bool {
	v.Code, v.Rule, v.Headers = header.RateLimited, e.rule.Name, e.rule.Headers
	v.Limit, v.Decision = p.limit, d
	return false
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
