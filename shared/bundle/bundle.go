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
	// MaxSize bounds a bundle: 400,000 keys take 0.9 MB, and Envoy keeps two while it swaps.
	MaxSize = 64 << 20
	// maxSections bounds the table, far above the kinds there are.
	maxSections = 256
)

// Kinds of sections. A number is never used again: 2 was a list of all keys.
const (
	kindGate    uint32 = 1 // how keys look, where they are read, what becomes of unknown ones
	kindRule    uint32 = 3 // the edge rule
	kindFilter  uint32 = 4 // key filter of all issued keys
	kindChanges uint32 = 5 // keys issued and revoked since the filter was built
	kindTable   uint32 = 6 // size of the table of addresses
	kindNetwork uint32 = 7 // exempt and denied networks
	kindOrigin  uint32 = 8 // what the origin's rules are for
	kinds       uint32 = 9
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
	ErrGate     = errors.New("bundle: gate section is damaged or out of bounds")
	ErrKeys     = errors.New("bundle: want gate, filter and changes sections together or none of them")
	ErrRule     = errors.New("bundle: rule section is damaged or out of bounds")
	ErrTooLarge = errors.New("bundle: larger than 64 MiB")
	ErrHeader   = errors.New("bundle: key header: want 1 to 64 of a-z, 0-9, -")
	ErrNotEdge  = errors.New("bundle: rule: want a token-bucket or gcra rule by address for the edge")
	ErrTable    = errors.New("bundle: table: want a power of two, 1024 to 1048576 entries")
	ErrStale    = errors.New("bundle: gate: want an age of 1s to 366d with a limit for unverified keys, or neither")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// DefaultTableEntries is how many addresses the edge's table holds where nobody says otherwise: at 32 bytes each, 2 MB.
const DefaultTableEntries = 1 << 16

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
	// Networks are exempt from the rule or denied.
	Networks Networks
	// Origin tells what the origin's rules are for.
	Origin OriginRules
	// TableEntries is how many addresses the edge's table holds, a power of two.
	TableEntries uint32
}

// Content is what goes into a bundle.
type Content struct {
	Release      uint64
	Built        limit.Micros
	Gate         *Gate              // Filter and Changes are ignored: KeyHashes and Changes hold them
	KeyHashes    []uint64           // all issued keys, in any order
	Changes      []keyfilter.Change // since KeyHashes was taken, in the order they were made
	Rule         *rule.Rule
	Exempt, Deny []rule.Network
	Origin       *rule.Set // of which the rules that the origin enforces go in; nil for none
	TableEntries uint32    // 0 for DefaultTableEntries
}

// Section is one section of an encoded bundle, for people to look at.
type Section struct {
	Name  string // "unknown" for a kind that this version does not read
	Kind  uint32
	Bytes int
}

// Sections lists the sections of b in their order. Unlike [Decode] it checks their frame alone.
func Sections(b []byte) ([]Section, error) {
	sections, err := split(b)
	list := make([]Section, len(sections))
	for i, s := range sections {
		list[i] = Section{Name: "unknown", Kind: s.kind, Bytes: len(s.data)}
		if known(s.kind) {
			list[i].Name = kindNames[s.kind]
		}
	}
	return list, err
}

// kindNames are what people call the kinds.
var kindNames = [kinds]string{
	kindGate: "gate", kindRule: "rule", kindFilter: "key filter", kindChanges: "key changes", kindTable: "table",
	kindNetwork: "networks", kindOrigin: "origin rules",
}

// section is one part of a bundle under construction or being read.
type section struct {
	kind uint32
	data []byte
}

// Encode writes content as a bundle. It fails on what [Decode] would refuse.
func Encode(c Content) ([]byte, error) {
	var sections []section
	add := func(kind uint32, data []byte, err error) error {
		sections = append(sections, section{kind, data})
		return err
	}
	if c.Gate != nil {
		gate, err := encodeGate(*c.Gate)
		if err := add(kindGate, gate, err); err != nil {
			return nil, err
		}
		filter, err := keyfilter.EncodeFilter(c.KeyHashes)
		if err := add(kindFilter, filter, err); err != nil {
			return nil, err
		}
		changes := keyfilter.EncodeChanges(c.Changes)
		_, err = keyfilter.ReadChanges(changes)
		if err := add(kindChanges, changes, err); err != nil {
			return nil, err
		}
	}
	if c.Rule != nil {
		edgeRule, err := encodeRule(c.Rule)
		if err := add(kindRule, edgeRule, err); err != nil {
			return nil, err
		}
	}
	if len(c.Exempt)+len(c.Deny) > 0 {
		networks, err := encodeNetworks(c.Exempt, c.Deny)
		if err := add(kindNetwork, networks, err); err != nil {
			return nil, err
		}
	}
	if c.Origin != nil {
		origin, err := encodeOrigin(c.Origin)
		if err := add(kindOrigin, origin, err); err != nil {
			return nil, err
		}
	}
	if c.TableEntries != 0 {
		table := binary.LittleEndian.AppendUint32(nil, c.TableEntries)
		_, err := decodeTable(table)
		if err := add(kindTable, table, err); err != nil {
			return nil, err
		}
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
		Release:      binary.LittleEndian.Uint64(b[16:]),
		Built:        limit.Micros(binary.LittleEndian.Uint64(b[24:])),
		TableEntries: DefaultTableEntries,
	}
	var seen [kinds]bool
	var filter keyfilter.Filter
	var changes keyfilter.Changes
	for _, s := range sections {
		if !known(s.kind) {
			continue
		}
		if seen[s.kind] {
			return Bundle{}, ErrTwice
		}
		seen[s.kind] = true
		switch s.kind {
		case kindGate:
			out.Gate, err = decodeGate(s.data)
		case kindFilter:
			filter, err = keyfilter.ReadFilter(s.data)
		case kindChanges:
			changes, err = keyfilter.ReadChanges(s.data)
		case kindRule:
			out.Rule, err = decodeRule(s.data)
		case kindNetwork:
			out.Networks, err = decodeNetworks(s.data)
		case kindOrigin:
			out.Origin, err = decodeOrigin(s.data)
		case kindTable:
			out.TableEntries, err = decodeTable(s.data)
		}
		if err != nil {
			return Bundle{}, err
		}
	}
	out.HasGate, out.HasRule = seen[kindGate], seen[kindRule]
	if seen[kindFilter] != out.HasGate || seen[kindChanges] != out.HasGate {
		return Bundle{}, ErrKeys
	}
	out.Gate.Filter, out.Gate.Changes = filter, changes
	return out, nil
}

// known tells whether sections of a kind are read.
func known(kind uint32) bool { return kind == kindGate || kind >= kindRule && kind < kinds }

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

// padded is n rounded up to a multiple of 8, so that sections begin aligned.
func padded(n int) int { return (n + 7) &^ 7 }
