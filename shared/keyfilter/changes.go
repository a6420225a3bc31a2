package keyfilter

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// Op is what happened to a key.
type Op uint8

// The ops, as numbered in encodings. 0 is none, so that bytes that were never written issue nothing.
const (
	Issued  Op = 1
	Revoked Op = 2
)

// Valid tells whether o is one of the ops.
func (o Op) Valid() bool { return o == Issued || o == Revoked }

// String is the op as people read it.
func (o Op) String() string {
	switch o {
	case Issued:
		return "issued"
	case Revoked:
		return "revoked"
	}
	return "unknown"
}

// Change is one key that was issued or revoked.
type Change struct {
	Hash uint64
	Op   Op
}

// changeSize is the bytes of one change.
const changeSize = 9

// Errors of [ReadChanges].
var (
	ErrChangesLength = errors.New("key changes: length is not a multiple of 9 bytes")
	ErrChangesOrder  = errors.New("key changes: hashes are not in strictly ascending order")
	ErrChangesOp     = errors.New("key changes: want 1 (issued) or 2 (revoked)")
)

// Changes is an exact list of keys that were issued or revoked, read in place from its encoding: n hashes of u64,
// little-endian and ascending, then n ops of u8. The zero value is empty. It is read-only, so any number of goroutines
// may use it.
type Changes struct {
	hashes []byte
	ops    []byte
}

// EncodeChanges writes changes given in the order they were made: of several of one hash the last one counts. It leaves
// changes as they are.
func EncodeChanges(changes []Change) []byte {
	sorted := slices.Clone(changes)
	slices.SortStableFunc(sorted, func(a, b Change) int { return cmp.Compare(a.Hash, b.Hash) })
	last := sorted[:0]
	for i, c := range sorted {
		if i+1 == len(sorted) || sorted[i+1].Hash != c.Hash {
			last = append(last, c)
		}
	}
	b := make([]byte, 0, changeSize*len(last))
	for _, c := range last {
		b = binary.LittleEndian.AppendUint64(b, c.Hash)
	}
	for _, c := range last {
		b = append(b, byte(c.Op))
	}
	return b
}

// ReadChanges takes b as changes, keeping b and copying nothing. It refuses bytes that are not whole changes in
// ascending order, which a binary search would answer wrongly.
func ReadChanges(b []byte) (Changes, error) {
	if len(b)%changeSize != 0 {
		return Changes{}, ErrChangesLength
	}
	n := len(b) / changeSize
	c := Changes{hashes: b[:8*n], ops: b[8*n:]}
	for i := range n {
		if i > 0 && c.hash(i-1) >= c.hash(i) {
			return Changes{}, ErrChangesOrder
		}
		if !Op(c.ops[i]).Valid() {
			return Changes{}, ErrChangesOp
		}
	}
	return c, nil
}

// Len is the number of changes.
func (c Changes) Len() int { return len(c.ops) }

// At is the change at place i of the ascending order, 0 ≤ i < Len.
func (c Changes) At(i int) Change { return Change{Hash: c.hash(i), Op: Op(c.ops[i])} }

// Find is what happened last to the key of a hash; ok is false if nothing did. It searches by halves without
// allocating.
func (c *Changes) Find(h uint64) (op Op, ok bool) {
	low, high := 0, c.Len()
	for low < high {
		mid := int(uint(low+high) / 2)
		if c.hash(mid) < h {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < c.Len() && c.hash(low) == h {
		return Op(c.ops[low]), true
	}
	return 0, false
}

func (c Changes) hash(i int) uint64 { return binary.LittleEndian.Uint64(c.hashes[8*i:]) }
