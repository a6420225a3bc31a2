package keyfilter

import (
	"encoding/binary"
	"errors"
	"slices"
)

// fingerprintSize is the bytes of one fingerprint in a list.
const fingerprintSize = 8

// Errors of [ReadList].
var (
	ErrListLength = errors.New("key list: length is not a multiple of 8 bytes")
	ErrListOrder  = errors.New("key list: fingerprints are not in strictly ascending order")
)

// List is an exact set of fingerprints in ascending order, read in place from little-endian bytes. The zero value is
// empty. It is read-only, so any number of goroutines may use it.
type List struct{ sorted []byte }

// Sorted is the encoding of a set of fingerprints that [ReadList] reads: ascending, each once, 8 bytes each. It leaves
// hashes as they are.
func Sorted(hashes []uint64) []byte {
	set := slices.Clone(hashes)
	slices.Sort(set)
	set = slices.Compact(set)
	b := make([]byte, 0, len(set)*fingerprintSize)
	for _, h := range set {
		b = binary.LittleEndian.AppendUint64(b, h)
	}
	return b
}

// ReadList takes b as a list, keeping b and copying nothing. It refuses bytes that are not whole fingerprints in
// ascending order, which a binary search would answer wrongly.
func ReadList(b []byte) (List, error) {
	if len(b)%fingerprintSize != 0 {
		return List{}, ErrListLength
	}
	l := List{sorted: b}
	for i := 1; i < l.Len(); i++ {
		if l.at(i-1) >= l.at(i) {
			return List{}, ErrListOrder
		}
	}
	return l, nil
}

// Len is the number of fingerprints.
func (l List) Len() int { return len(l.sorted) / fingerprintSize }

// Contains tells whether h is in the list, by binary search without allocating.
func (l List) Contains(h uint64) bool {
	low, high := 0, l.Len()
	for low < high {
		mid := int(uint(low+high) / 2)
		if l.at(mid) < h {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < l.Len() && l.at(low) == h
}

func (l List) at(i int) uint64 {
	return binary.LittleEndian.Uint64(l.sorted[i*fingerprintSize:])
}
