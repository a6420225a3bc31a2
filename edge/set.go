package edge

import (
	"encoding/binary"

	"github.com/weirproject/weir/shared/limit"
)

// Geometry of shared memory: slots of 4 buckets, by default 16,384 of them. A slot holds 160 bytes, which are 2.5 MiB before
// Envoy's own cost an entry. Slots can never be deleted, hence a number that only a release may change.
const (
	// MaxSlots is the largest number of slots, for a table of 2^20 entries.
	MaxSlots   = 1 << 18
	sharedWays = 4
	setHead    = 8 + 8*int(groups)
	setSize    = setHead + sharedWays*32
	// setFormat is the version of the layout. Slots outlive the module: a change of layout changes this, and the
	// shell's key of a slot should change with it.
	setFormat = 3
)

// SetFormat is the layout version of a slot's value, for use in the key that a shell gives the slot.
const SetFormat = setFormat

// set is a slot's value: {u32 format, u32 print, 3 × i64 floor, 4 × {u64 tag, i64 tokens, i64 part, i64 last}}, all
// little-endian.
type set struct {
	print uint32 // fingerprint of the limits that the floors were computed by
	// floors are the latest instants at which any bucket dropped from this set would have been full, 0 for none: one for
	// each group of kinds, since a bucket comes back as its own kind only. What anonymous clients left unpaid would else
	// keep known keys out.
	floors [groups]limit.Micros
	ways   [sharedWays]counter
}

// counter is one bucket; the lowest bits of its tag are its kind.
type counter struct {
	tag    uint64 // 0: free
	bucket limit.TokenBucket
}

// decodeSet reads a slot. A value of another shape is a set whose history is not known.
func decodeSet(b []byte) (s set, ok bool) {
	le := binary.LittleEndian
	if len(b) != setSize || le.Uint32(b) != setFormat {
		return set{}, false
	}
	s.print = le.Uint32(b[4:])
	for g := range s.floors {
		s.floors[g] = limit.Micros(le.Uint64(b[8+8*g:]))
	}
	for i := range s.ways {
		at := b[setHead+32*i:]
		s.ways[i] = counter{tag: le.Uint64(at), bucket: limit.TokenBucket{
			Tokens: int64(le.Uint64(at[8:])), Part: int64(le.Uint64(at[16:])), Last: limit.Micros(le.Uint64(at[24:])),
		}}
	}
	return s, true
}

func (s *set) encode(b *[setSize]byte) []byte {
	le := binary.LittleEndian
	le.PutUint32(b[:], setFormat)
	le.PutUint32(b[4:], s.print)
	for g, floor := range s.floors {
		le.PutUint64(b[8+8*g:], uint64(floor))
	}
	for i := range s.ways {
		at, c := b[setHead+32*i:], &s.ways[i]
		le.PutUint64(at, c.tag)
		le.PutUint64(at[8:], uint64(c.bucket.Tokens))
		le.PutUint64(at[16:], uint64(c.bucket.Part))
		le.PutUint64(at[24:], uint64(c.bucket.Last))
	}
	return b[:]
}

// made is what making room for a bucket took: a free way, one whose bucket was not full again, or one that was.
type made struct{ free, evicted, full uint8 }

// nothing is what it took for a bucket that was there.
var nothing made

// counter returns the bucket of tag, making one if need be. Whoever is new to the set may be one who was dropped from
// it, so it gets what the emptiest of those would have by now: nobody who was limited gains by being evicted. Full
// buckets are dropped first, which costs nobody anything, then the one nearest to full.
func (s *set) counter(tag uint64, p *policies, now limit.Micros) (*counter, made) {
	victim, soonest := 0, limit.Never
	for i := range s.ways {
		c := &s.ways[i]
		if c.tag == tag {
			return c, made{}
		}
		wait := limit.Micros(-1) // a free way is taken before a full one
		if c.tag != 0 {
			wait = p.fullAfter(c, now)
		}
		if i == 0 || wait < soonest {
			victim, soonest = i, wait
		}
	}
	var m made
	switch {
	case soonest < 0:
		m.free = 1
	case soonest == 0:
		m.full = 1
	case soonest == limit.Never:
		// A bucket whose limit is 0 never fills and admits nothing while that holds: dropping it gives nothing away.
		m.evicted = 1
	case soonest > 0:
		m.evicted = 1
		floor := &s.floors[groupOf[s.ways[victim].tag&kindMask]]
		*floor = max(*floor, now+soonest)
	}
	own, floor := &p.of[tag&kindMask], s.floors[groupOf[tag&kindMask]]
	bucket := limit.FullTokenBucket(own.limit, now)
	if floor > now && own.refill != limit.Never {
		bucket = limit.TokenBucket{Last: floor - own.refill} // empty then, so full at floor
	}
	s.ways[victim] = counter{tag: tag, bucket: bucket}
	return &s.ways[victim], m
}

// fullAfter is when a bucket will be full; one of a kind that this edge does not know counts as full.
func (p *policies) fullAfter(c *counter, now limit.Micros) limit.Micros {
	if c.tag&kindMask >= uint64(kinds) {
		return 0
	}
	return c.bucket.FullAfter(p.of[c.tag&kindMask].limit, now)
}

// rebase carries a set over to changed limits, which refill nobody: the time before counts at the limits that it passed
// under, those of the release before this one. Of a set that was last written under yet another, nobody knows them, and
// that time counts for nothing.
//
// A dropped bucket's level is not known, only when it would have been full at the old rate: if that is to come, or lies in
// time that counts for nothing, it counts as empty now, which is the strictest that it can be. So a floor is never further
// away than one refill, however often workers of two releases carry a set back and forth.
// It tells whether anything changed: what did is to be kept whatever the verdict, or the time at the new rate never counts.
func (s *set) rebase(p, before *policies, now limit.Micros) (changed bool) {
	if s.print == p.print {
		return false
	}
	counts := now // up to when time counts
	if s.print != before.print {
		counts = 0
		for i := range s.ways {
			counts = max(counts, min(now, s.ways[i].bucket.Last))
		}
	}
	for g, floor := range s.floors {
		if floor > counts {
			s.floors[g] = now + p.slowest[g]
		}
	}
	if s.print == before.print {
		for k := range before.of {
			if l := before.of[k].limit; l.Count == 0 && l.Window > 0 { // its buckets were dropped without a floor
				s.floors[groupOf[k]] = now + p.slowest[groupOf[k]]
			}
		}
	}
	for i := range s.ways {
		c := &s.ways[i]
		switch k := c.tag & kindMask; {
		case c.tag == 0 || k >= uint64(kinds):
		case s.print == before.print:
			c.bucket = c.bucket.At(before.of[k].limit, now)
		default:
			c.bucket.Last = max(c.bucket.Last, now)
		}
		c.bucket.Count = 0 // sets do not keep it
	}
	s.print = p.print
	return true
}
