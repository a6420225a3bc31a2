package bundle

import (
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Gate is what the edge needs to tell issued keys from others.
type Gate struct {
	KeyHeader string // lower case
	Format    keyfilter.Format
	HashKey   keyfilter.HashKey
	// Foreign tells that keys of other shapes were imported: a bad checksum alone then refuses nothing.
	Foreign bool
	Filter  keyfilter.Filter  // all issued keys
	Changes keyfilter.Changes // since Filter was built: these are right where the two differ
	// Epoch and Seq are where key deltas go on from. Epoch 0: nobody serves deltas, so the edge asks nobody.
	Epoch, Seq uint64
	// StaleAfter is the age from which on unknown keys pass as unverified instead of being refused, 1 s to 366 days; 0
	// for never.
	StaleAfter limit.Micros
	// Unverified is the one bucket that all those share; zero where StaleAfter is.
	Unverified limit.Limit
}

// Knows tells whether the key of a hash was issued and not revoked since. It does not allocate. One hash in 65,536 that
// was never issued passes for one that was.
func (g *Gate) Knows(hash uint64) bool {
	if op, ok := g.Changes.Find(hash); ok {
		return op == keyfilter.Issued
	}
	return g.Filter.Contains(hash)
}

const (
	// maxHeaderName bounds the name of the key header.
	maxHeaderName = 64
	// flagForeign is Gate.Foreign in the flags.
	flagForeign = 1
)

// encodeGate writes {16 bytes hash key, string header, string prefix, u8 flags, u64 epoch, u64 seq, u64 stale after,
// limit unverified}.
func encodeGate(g Gate) ([]byte, error) {
	prefix := g.Format.Prefix
	if prefix == "" {
		prefix = keyfilter.DefaultPrefix
	}
	if !validHeader(g.KeyHeader) {
		return nil, ErrHeader
	}
	if err := keyfilter.CheckPrefix(prefix); err != nil {
		return nil, err
	}
	if !g.validAge() {
		return nil, ErrStale
	}
	b := append([]byte(nil), g.HashKey[:]...)
	b = appendString(b, g.KeyHeader)
	b = appendString(b, prefix)
	var flags byte
	if g.Foreign {
		flags |= flagForeign
	}
	b = append(b, flags)
	for _, n := range []uint64{g.Epoch, g.Seq, uint64(g.StaleAfter)} {
		b = appendU64(b, n)
	}
	return appendLimit(b, g.Unverified), nil
}

func decodeGate(b []byte) (Gate, error) {
	var g Gate
	if len(b) < len(g.HashKey) {
		return Gate{}, ErrGate
	}
	b = b[copy(g.HashKey[:], b):]
	header, b, okHeader := cutString(b)
	prefix, b, okPrefix := cutString(b)
	const rest = 1 + 3*8 + limitSize // what follows is a newer edge's
	if !okHeader || !okPrefix || !validHeader(header) || keyfilter.CheckPrefix(prefix) != nil || len(b) < rest {
		return Gate{}, ErrGate
	}
	g.KeyHeader, g.Format.Prefix = header, prefix
	g.Foreign = b[0]&flagForeign != 0
	g.Epoch, g.Seq, g.StaleAfter = readU64(b[1:]), readU64(b[9:]), limit.Micros(readU64(b[17:]))
	g.Unverified = readLimit(b[25:])
	if !g.validAge() {
		return Gate{}, ErrGate
	}
	return g, nil
}

func (g *Gate) validAge() bool {
	if g.StaleAfter == 0 {
		return g.Unverified == limit.Limit{}
	}
	return g.StaleAfter >= rule.MinStaleAfter && g.StaleAfter <= limit.MaxWindow && g.Unverified.Check() == nil
}

func validHeader(name string) bool {
	valid := name != "" && len(name) <= maxHeaderName
	for i := range len(name) {
		c := name[i]
		valid = valid && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	return valid
}
