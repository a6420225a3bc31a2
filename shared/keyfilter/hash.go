// Package keyfilter tells issued API keys from ones that were never issued.
package keyfilter

import (
	"encoding/binary"

	"github.com/dchest/siphash"
)

// HashKey keys the fingerprints of one installation. It is public, since whoever reads an edge's configuration reads
// it: it keeps fingerprints of different installations apart, it does not keep anything secret.
type HashKey [16]byte

// Hash is the fingerprint of an API key: SipHash-2-4 with a 64-bit result (Aumasson and Bernstein 2012), as stored in
// a filter or list of changes.
func Hash(k HashKey, key []byte) uint64 {
	return siphash.Hash(binary.LittleEndian.Uint64(k[:8]), binary.LittleEndian.Uint64(k[8:]), key)
}
