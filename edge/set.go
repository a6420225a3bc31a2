package edge

import (
	"encoding/binary"

	"github.com/weirproject/weir/shared/limit"
)

// Geometry of shared memory: 16,384 slots of 4 buckets. A slot holds 144 bytes, so all of them with Envoy's own cost
// an entry stay under 4 MiB. Slots can never be deleted, hence the fixed number.
const (
	// SlotCount is the number of slots.
	SlotCount  = 1 << 14
	sharedWays = 4
	setHead    = 16
	setSize    = setHead + sharedWays*32
	// setFormat is the version of the layout. Slots outlive the module: a change of layout changes this, and the
	// shell's key of a slot should change with it.
	setFormat = 1
)

// SetFormat is the layout version of a slot's value, for use in the key that a shell gives the slot.
const SetFormat = setFormat

// set is a slot's value: {u32 format, u32 print, i64 floor, 4 × {u64 tag, i64 tokens, i64 part, i64 last}}, all
// little-endian.
type set struct {
	print uint32       // fingerprint of the limits that floor was computed by
	floor limit.Micros // the latest instant at which any bucket dropped from this set would have been full; 0: none
	ways  [sharedWays]counter
}

// counter is one bucket; its tag's lowest bit is its class.
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
	s.print, s.floor = le.Uint32(b[4:]), limit.Micros(le.Uint64(b[8:]))
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
	le.PutUint64(b[8:], uint64(s.floor))
	for i := range s.ways {
		at, c := b[setHead+32*i:], &s.ways[i]
		le.PutUint64(at, c.tag)
		le.PutUint64(at[8:], uint64(c.bucket.Tokens))
		le.PutUint64(at[16:], uint64(c.bucket.Part))
		le.PutUint64(at[24:], uint64(c.bucket.Last))
	}
	return b[:]
}

// counter returns the bucket of tag, making one if need be. Whoever is new to the set may be one who was dropped from
// it, so it gets what the emptiest of those would have by now: nobody who was limited gains by being evicted. Full
// buckets are dropped first, which costs nobody anything, then the one nearest to full.
func (s *set) counter(tag uint64, policies *[classes]policy, now limit.Micros) *counter {
	victim, soonest := 0, limit.Never
	for i := range s.ways {
		c := &s.ways[i]
		if c.tag == tag {
			return c
		}
		wait := limit.Micros(-1) // a free way is taken before a full one
		if c.tag != 0 {
			wait = c.bucket.FullAfter(policies[c.tag&1].limit, now)
		}
		if i == 0 || wait < soonest {
			victim, soonest = i, wait
		}
	}
	// A bucket whose limit is 0 never fills and admits nothing while that holds: dropping it gives nothing away.
	if soonest > 0 && soonest != limit.Never {
		s.floor = max(s.floor, now+soonest)
	}
	p := &policies[tag&1]
	bucket := limit.FullTokenBucket(p.limit, now)
	if s.floor > now && p.refill != limit.Never {
		bucket = limit.TokenBucket{Last: s.floor - p.refill} // empty then, so full at floor
	}
	s.ways[victim] = counter{tag: tag, bucket: bucket}
	return &s.ways[victim]
}

// rebase carries floor over to changed limits. A dropped bucket's level is not known, only when it would have been
// full at the old rate: then it held something, so "empty then" is on the strict side.
func (s *set) rebase(print uint32, slowest, now limit.Micros) {
	if s.print != print && s.floor > now {
		s.floor += slowest
	}
	s.print = print
}
