package rule

import (
	"math/bits"
	"strings"
)

// entry is one pattern of one rule. Entries of one key, that is of one host and path pattern, lie beside each other.
type entry struct {
	host uint32 // index into Set.hosts
	text uint32 // where the path pattern begins in Set.text
	rule uint16 // index of the rule; MaxRules fits
	size uint16 // length of the path pattern, and lastOfKey
}

const lastOfKey = 1 << 15

// index finds the entries of a key by one displacement and one slot, however many keys there are: a perfect hash after
// "Hash, displace, and compress" (Belazzougui, Botelho, Dietzfelbinger 2009). A map of the same would take four times
// the memory and a number of steps that hangs on the keys.
type index struct {
	displace []uint16
	slots    []uint32 // 1 + the key's first entry; 0 for none
}

// keyed is a key's hash with its first entry.
type keyed struct {
	hash  uint64
	entry uint32
}

// newIndex places all keys. It gives false if it finds no place for one, which two keys of one hash make certain.
func newIndex(keys []keyed) (x index, ok bool) {
	if len(keys) == 0 {
		return index{}, true
	}
	x.displace = make([]uint16, len(keys)/3+1)
	x.slots = make([]uint32, len(keys)+len(keys)/4+1)
	buckets := make([][]keyed, len(x.displace))
	most := 0
	for _, k := range keys {
		b := x.bucket(k.hash)
		buckets[b] = append(buckets[b], k)
		most = max(most, len(buckets[b]))
	}
	for size := most; size > 0; size-- { // full buckets first, while there is room
		for b, bucket := range buckets {
			if len(bucket) == size && !x.place(b, bucket) {
				return index{}, false
			}
		}
	}
	return x, true
}

func (x *index) place(b int, bucket []keyed) bool {
next:
	for d := range 1 << 16 {
		x.displace[b] = uint16(d)
		for i, k := range bucket {
			slot := x.slot(k.hash, uint16(d))
			if x.slots[slot] != 0 {
				for _, placed := range bucket[:i] {
					x.slots[x.slot(placed.hash, uint16(d))] = 0
				}
				continue next
			}
			x.slots[slot] = k.entry + 1
		}
		return true
	}
	return false
}

func (x *index) bucket(hash uint64) int {
	hi, _ := bits.Mul64(hash, uint64(len(x.displace)))
	return int(hi)
}

func (x *index) slot(hash uint64, displace uint16) int {
	hi, _ := bits.Mul64(mix(hash^uint64(displace)*0x9e3779b97f4a7c15), uint64(len(x.slots)))
	return int(hi)
}

// find is the first entry that a key may have; whether it has, its text tells.
func (x *index) find(hash uint64) (first uint32, ok bool) {
	if len(x.slots) == 0 {
		return 0, false
	}
	at := x.slots[x.slot(hash, x.displace[x.bucket(hash)])]
	return at - 1, at != 0
}

// Hashing of keys: rules come from their owner, requests meet at most one slot a lookup, so that the hash has to
// spread well, not to withstand an attacker.

// mix is the finalizer of splitmix64.
func mix(h uint64) uint64 {
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}

const starHash = 0x2a

// hashText is FNV-1a, of text in lower case if fold is set.
func hashText(text string, fold bool) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(text) {
		c := text[i]
		if fold {
			c = lower(c)
		}
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return h
}

// append hashes one more segment into a key.
func appendHash(h, segment uint64) uint64 {
	return (bits.RotateLeft64(h, 23) ^ segment) * 0x9e3779b97f4a7c15
}

// finish ends a key with the pattern's end and its host.
func finish(h uint64, below bool, host uint64) uint64 {
	if below {
		h ^= 0xa5a5a5a5a5a5a5a5
	}
	return mix(h ^ mix(host))
}

// keyOf is the hash that a pattern's key has: what match computes for a request that it means.
func keyOf(host, pattern string) uint64 {
	s := shapeOf(pattern)
	h := uint64(0)
	rest := pattern
	for i := range int(s.segments) {
		var segment string
		segment, rest = cutSegment(rest[1:])
		if s.stars&(1<<i) != 0 {
			h = appendHash(h, starHash)
		} else {
			h = appendHash(h, hashText(segment, false))
		}
	}
	return finish(h, s.below, hostHash(strings.TrimPrefix(host, "*")))
}

func hostHash(host string) uint64 {
	if host == "" {
		return 0
	}
	return hashText(host, true)
}
