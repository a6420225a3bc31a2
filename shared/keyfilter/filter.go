package keyfilter

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// Bounds of a filter.
const (
	// MaxFilterKeys is what a filter can be built from; 16 million keys take 38 MB.
	MaxFilterKeys = 1 << 24
	// maxSegment is the longest segment that the construction uses, whatever the number of keys.
	maxSegment = 1 << 18
	// maxPrints is more fingerprints than MaxFilterKeys take, and few enough that every place fits u32.
	maxPrints = 1 << 26
	// filterHead is {u64 seed, u32 keys, u32 segment length, u32 segment count}.
	filterHead = 20
	// printSize is the bytes of one fingerprint.
	printSize = 2
)

// Errors of [ReadFilter] and [EncodeFilter].
var (
	ErrFilterLength   = errors.New("key filter: length differs from what its head says")
	ErrFilterGeometry = errors.New("key filter: segments of this number or length cannot be")
	ErrFilterKeys     = errors.New("key filter: want at most 16777216 keys")
)

// Filter tells hashes that are surely not in a set from ones that are but for one in 65,536: a binary fuse filter with
// 16-bit fingerprints (Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022), read in place
// from its encoding. The zero value is empty. It is read-only, so any number of goroutines may use it.
//
// Its encoding is, all integers little-endian: {u64 seed, u32 keys, u32 segment length, u32 segment count}, then
// (segment count + 2) × segment length fingerprints of u16. A filter of no keys has no segments.
type Filter struct {
	prints  []byte
	seed    uint64
	keys    uint32
	segment uint32 // fingerprints of a segment, a power of two
	starts  uint32 // fingerprints that the first of a hash's three may be
}

// ReadFilter takes b as a filter, keeping b and copying nothing. It refuses a geometry in which a lookup could leave b;
// whether the fingerprints are those of a set cannot be seen from them.
func ReadFilter(b []byte) (Filter, error) {
	if len(b) < filterHead {
		return Filter{}, ErrFilterLength
	}
	le := binary.LittleEndian
	keys, segment, count := le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:])
	prints := b[filterHead:]
	if keys == 0 {
		if segment != 0 || count != 0 {
			return Filter{}, ErrFilterGeometry
		}
		if len(prints) != 0 {
			return Filter{}, ErrFilterLength
		}
		return Filter{}, nil
	}
	total := (uint64(count) + 2) * uint64(segment) // at most 2^64 - 2^32: never wraps
	if bits.OnesCount32(segment) != 1 || segment > maxSegment || count == 0 || total > maxPrints || uint64(keys) > total {
		return Filter{}, ErrFilterGeometry
	}
	if uint64(len(prints)) != total*printSize {
		return Filter{}, ErrFilterLength
	}
	return Filter{prints: prints, seed: le.Uint64(b), keys: keys, segment: segment, starts: count * segment}, nil
}

// Len is the number of keys that the filter was built from.
func (f Filter) Len() int { return int(f.keys) }

// Contains tells whether h may be in the set: always for one that is, for one in 65,536 that is not. It reads three
// fingerprints and does not allocate.
//
// A hash's fingerprints lie in three segments that follow each other, at places below a power of two, so that none is
// outside whatever h is.
func (f Filter) Contains(h uint64) bool {
	if f.keys == 0 {
		return false
	}
	h = murmur(h + f.seed)
	hi, _ := bits.Mul64(h, uint64(f.starts))
	first, mask := uint32(hi), f.segment-1
	second := (first + f.segment) ^ uint32(h>>18)&mask
	third := (first + 2*f.segment) ^ uint32(h)&mask
	return uint16(h^h>>32)^f.at(first)^f.at(second)^f.at(third) == 0
}

func (f Filter) at(i uint32) uint16 {
	return binary.LittleEndian.Uint16(f.prints[printSize*int(i):])
}

// murmur is the finalizer of MurmurHash3, by which the construction spreads hashes.
func murmur(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
