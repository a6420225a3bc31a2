package abi

import "encoding/binary"

// Bounds of a local reply's headers: Weir sends at most 9, the longest of which names a rule (63 characters).
const (
	maxPairs  = 16
	pairsData = 2 << 10
	pairsHead = 4 + 8*maxPairs
)

// Pairs builds a header map as the host reads it: a count, then the sizes of all names and values, then their bytes,
// each ended by NUL. The zero value is empty. It does not allocate.
type Pairs struct {
	block [pairsHead + pairsData]byte // sizes grow from 0, bytes from pairsHead; Bytes joins them
	count int
	used  int
}

// Reset empties p.
func (p *Pairs) Reset() { p.count, p.used = 0, 0 }

// Add appends a header. A header that does not fit is left out: a reply without it is better than none.
func (p *Pairs) Add(name, value string) {
	if p.count == maxPairs || p.used+len(name)+len(value)+2 > pairsData {
		return
	}
	binary.LittleEndian.PutUint32(p.block[8*p.count:], uint32(len(name)))
	binary.LittleEndian.PutUint32(p.block[8*p.count+4:], uint32(len(value)))
	p.count++
	p.put(name)
	p.put(value)
}

func (p *Pairs) put(s string) {
	at := pairsHead + p.used
	copy(p.block[at:], s)
	p.block[at+len(s)] = 0
	p.used += len(s) + 1
}

// Bytes is the encoded map; it is valid until p changes, and p must be Reset before the next Add.
func (p *Pairs) Bytes() []byte {
	start := pairsHead - 8*p.count - 4
	copy(p.block[start+4:pairsHead], p.block[:8*p.count])
	binary.LittleEndian.PutUint32(p.block[start:], uint32(p.count))
	return p.block[start : pairsHead+p.used]
}
