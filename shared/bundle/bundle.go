// Package bundle is the versioned, checksummed binary that carries a release to the edges.
//
// Layout, all integers little-endian:
//
//	offset  size  what
//	     0     8  magic "WEIRBNDL"
//	     8     2  format version, 1
//	    10     2  number of sections, n
//	    12     4  length of the whole bundle in bytes
//	    16     8  release number
//	    24     8  instant of building, µs since the Unix epoch
//	    32    8n  section table: {u32 kind, u32 length}, in the order of the sections
//	          …   the sections, each padded with zeros to a multiple of 8 bytes
//	 len-8     4  zero
//	 len-4     4  CRC-32C of all bytes before it
//
// A reader skips sections of a kind it does not know, so that an edge keeps working under a newer bundle; a newer
// format version, any damage or an impossible length refuses the bundle whole. Strings are {u8 length, bytes}.
package bundle

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

const (
	magic       = "WEIRBNDL"
	version     = 1
	headSize    = 32
	entrySize   = 8
	trailerSize = 8
	// MaxSize bounds a bundle: 400,000 keys take 3.2 MB, and Envoy keeps two while it swaps.
	MaxSize = 64 << 20
	// maxSections bounds the table, far above the kinds there are.
	maxSections = 256
)

// Kinds of sections. A number is never used again.
const (
	kindGate uint32 = 1 // how keys look, where they are read
	kindKeys uint32 = 2 // sorted fingerprints of the issued keys
	kindRule uint32 = 3 // the edge rule
)

// Errors of [Decode], each refusing the bundle whole.
var (
	ErrShort    = errors.New("bundle: shorter than its head")
	ErrMagic    = errors.New("bundle: does not begin with WEIRBNDL")
	ErrVersion  = errors.New("bundle: format version is not 1")
	ErrLength   = errors.New("bundle: length differs from what its head says")
	ErrChecksum = errors.New("bundle: checksum does not match its content")
	ErrSections = errors.New("bundle: sections do not fill it exactly")
	ErrTwice    = errors.New("bundle: a section stands twice")
	ErrGate     = errors.New("bundle: gate section is damaged")
	ErrKeys     = errors.New("bundle: keys section without a gate section")
	ErrRule     = errors.New("bundle: rule section is damaged or out of bounds")
	ErrTooLarge = errors.New("bundle: larger than 64 MiB")
	ErrHeader   = errors.New("bundle: key header: want 1 to 64 of a-z, 0-9, -")
	ErrNotEdge  = errors.New("bundle: rule: want a token-bucket rule by address for the edge")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Bundle is a decoded bundle. It reads its keys from the bytes it was decoded from, which must not change while it is
// in use. It is read-only, so any number of goroutines may use it.
type Bundle struct {
	Release uint64
	Built   limit.Micros // since the Unix epoch
	// Gate tells how API keys are recognised; HasGate false: keys are not looked at.
	Gate    Gate
	HasGate bool
	// Rule limits each address; HasRule false: addresses are not limited.
	Rule    EdgeRule
	HasRule bool
}

// Gate is what the edge needs to tell issued keys from others.
type Gate struct {
	KeyHeader string // lower case
	Format    keyfilter.Format
	HashKey   keyfilter.HashKey
	Keys      keyfilter.List
}

// EdgeRule is an edge rule as the edge enforces it.
type EdgeRule struct {
	Name               string
	Headers            rule.Headers
	PrefixV4, PrefixV6 uint8       // bits of an address that make one principal
	Anonymous          limit.Limit // what an address pays from without a known key
	Valid              limit.Limit // what it pays from when its key is known
}

// Content is what goes into a bundle.
type Content struct {
	Release   uint64
	Built     limit.Micros
	Gate      *Gate    // Keys is ignored: KeyHashes holds them
	KeyHashes []uint64 // in any order
	Rule      *rule.Rule
}

// section is one part of a bundle under construction or being read.
type section struct {
	kind uint32
	data []byte
}

// Encode writes content as a bundle. It fails on what [Decode] would refuse.
func Encode(c Content) ([]byte, error) {
	var sections []section
	if c.Gate != nil {
		gate, err := encodeGate(*c.Gate)
		if err != nil {
			return nil, err
		}
		sections = append(sections, section{kindGate, gate}, section{kindKeys, keyfilter.Sorted(c.KeyHashes)})
	}
	if c.Rule != nil {
		edgeRule, err := encodeRule(c.Rule)
		if err != nil {
			return nil, err
		}
		sections = append(sections, section{kindRule, edgeRule})
	}
	return assemble(c.Release, c.Built, sections)
}

func assemble(release uint64, built limit.Micros, sections []section) ([]byte, error) {
	size := headSize + entrySize*len(sections) + trailerSize
	for _, s := range sections {
		size += padded(len(s.data))
	}
	if size > MaxSize {
		return nil, ErrTooLarge
	}
	le := binary.LittleEndian
	b := make([]byte, 0, size)
	b = append(b, magic...)
	b = le.AppendUint16(b, version)
	b = le.AppendUint16(b, uint16(len(sections)))
	b = le.AppendUint32(b, uint32(size))
	b = le.AppendUint64(b, release)
	b = le.AppendUint64(b, uint64(built))
	for _, s := range sections {
		b = le.AppendUint32(b, s.kind)
		b = le.AppendUint32(b, uint32(len(s.data)))
	}
	for _, s := range sections {
		b = append(b, s.data...)
		b = append(b, make([]byte, padded(len(s.data))-len(s.data))...)
	}
	b = le.AppendUint32(b, 0)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// Decode reads a bundle in place, keeping b and copying no key. It never panics, whatever b holds.
func Decode(b []byte) (Bundle, error) {
	sections, err := split(b)
	if err != nil {
		return Bundle{}, err
	}
	out := Bundle{
		Release: binary.LittleEndian.Uint64(b[16:]),
		Built:   limit.Micros(binary.LittleEndian.Uint64(b[24:])),
	}
	var seen [kindRule + 1]bool
	hasKeys := false
	for _, s := range sections {
		if s.kind == 0 || s.kind >= uint32(len(seen)) {
			continue
		}
		if seen[s.kind] {
			return Bundle{}, ErrTwice
		}
		seen[s.kind] = true
		switch s.kind {
		case kindGate:
			keys := out.Gate.Keys
			out.Gate, err = decodeGate(s.data)
			out.Gate.Keys, out.HasGate = keys, true
		case kindKeys:
			out.Gate.Keys, err = keyfilter.ReadList(s.data)
			hasKeys = true
		case kindRule:
			out.Rule, err = decodeRule(s.data)
			out.HasRule = true
		}
		if err != nil {
			return Bundle{}, err
		}
	}
	if hasKeys != out.HasGate {
		return Bundle{}, ErrKeys
	}
	return out, nil
}

// split checks the frame of a bundle and cuts it into sections.
func split(b []byte) ([]section, error) {
	le := binary.LittleEndian
	switch {
	case len(b) < headSize+trailerSize:
		return nil, ErrShort
	case string(b[:len(magic)]) != magic:
		return nil, ErrMagic
	case le.Uint16(b[8:]) != version:
		return nil, ErrVersion
	case len(b) > MaxSize:
		return nil, ErrTooLarge
	case uint64(le.Uint32(b[12:])) != uint64(len(b)):
		return nil, ErrLength
	case le.Uint32(b[len(b)-4:]) != crc32.Checksum(b[:len(b)-4], castagnoli):
		return nil, ErrChecksum
	}
	n := int(le.Uint16(b[10:]))
	body := len(b) - trailerSize
	at := headSize + n*entrySize
	if n > maxSections || at > body {
		return nil, ErrSections
	}
	sections := make([]section, n)
	for i := range sections {
		entry := b[headSize+i*entrySize:]
		length := uint64(le.Uint32(entry[4:]))
		if length > uint64(body-at) || padded(int(length)) > body-at {
			return nil, ErrSections
		}
		sections[i] = section{kind: le.Uint32(entry), data: b[at : at+int(length) : at+int(length)]}
		at += padded(int(length))
	}
	if at != body {
		return nil, ErrSections
	}
	return sections, nil
}

// padded is n rounded up to a multiple of 8, so that fingerprints stay aligned.
func padded(n int) int { return (n + 7) &^ 7 }
