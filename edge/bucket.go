package edge

import (
	"encoding/binary"

	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
)

// kind is what a bucket is for. It stands in the lowest bits of a bucket's tag, so that whoever reads a slot knows each
// bucket's limit.
type kind uint8

const (
	plain      kind = iota // an address without a known key
	valid                  // an address whose key is known
	plainOuter             // the wider network of a v6 address, for each of the two
	validOuter
	unverified // one bucket for all unknown keys while the bundle is stale
	kinds
)

// group is the kinds that the buckets of one client are of, for whatever it shows of a key.
type group uint8

const (
	keyless group = iota
	keyed
	shared
	groups
)

// groupOf is the group of each kind; one that this edge does not know counts as keyless.
var groupOf = [1 << kindBits]group{valid: keyed, validOuter: keyed, unverified: shared}

const (
	kindBits = 3
	kindMask = 1<<kindBits - 1
)

// policy is what one kind of bucket pays by.
type policy struct {
	limit  limit.Limit
	lease  int64        // LeaseMax
	refill limit.Micros // from empty to full; Never for a limit of 0
}

func policyOf(l limit.Limit) policy {
	return policy{limit: l, lease: LeaseMax(l), refill: limit.TokenBucket{}.FullAfter(l, 0)}
}

// policies are what a release's buckets pay by.
type policies struct {
	of      [kinds]policy
	print   uint32               // fingerprint of all limits
	slowest [groups]limit.Micros // the longest refill that ends, of each group
}

// longest is the longest refill of all groups.
func (p *policies) longest() (longest limit.Micros) {
	for _, slowest := range p.slowest {
		longest = max(longest, slowest)
	}
	return longest
}

func (p *policies) set(limits [kinds]limit.Limit) {
	var text [kinds * 24]byte
	p.slowest = [groups]limit.Micros{}
	for k, l := range limits {
		p.of[k] = policyOf(l)
		if refill := p.of[k].refill; refill != limit.Never {
			slowest := &p.slowest[groupOf[k]]
			*slowest = max(*slowest, refill)
		}
		binary.LittleEndian.PutUint64(text[24*k:], uint64(l.Count))
		binary.LittleEndian.PutUint64(text[24*k+8:], uint64(l.Window))
		binary.LittleEndian.PutUint64(text[24*k+16:], uint64(l.Burst))
	}
	p.print = uint32(keyfilter.Hash(keyfilter.HashKey{}, text[:]))
}

// deriveKey is a hash key of its own for each name, so that what hangs on one name is not found under another.
func deriveKey(seed keyfilter.HashKey, name string) keyfilter.HashKey {
	var key keyfilter.HashKey
	var text [64]byte
	n := copy(text[1:], name)
	for half := range 2 {
		text[0] = byte(half)
		binary.LittleEndian.PutUint64(key[8*half:], keyfilter.Hash(seed, text[:n+1]))
	}
	return key
}

// tag names a bucket: a keyed hash of whom it limits, and its kind. It is never 0.
func tag(key keyfilter.HashKey, a address, k kind) uint64 {
	text := a.encode()
	return max(keyfilter.Hash(key, text[:])&^kindMask, kindMask+1) | uint64(k)
}
