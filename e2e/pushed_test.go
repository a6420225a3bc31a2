package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/weirproject/weir/e2e/scenario"
	"github.com/weirproject/weir/shared/bundle"
)

// pushed is a bundle that a scenario pushes.
type pushed struct {
	scenario.Push
	keys string // text of the keys file that goes in
	at   string // where the scenario says so, file:line
}

func (p pushed) String() string { return fmt.Sprintf("%s: release %d, %s", p.at, p.Release, p.As) }

// bundle builds it with the weir binary and then makes of it what weir would not write.
func (p pushed) bundle(t testing.TB) []byte {
	t.Helper()
	return alter(bundleOf(t, p.Rules, p.keys, p.Release), p.As)
}

// Places in a bundle's head, as package bundle states them.
const (
	formatAt   = 8
	sectionsAt = 10
	lengthAt   = 12
	headEnd    = 32
	entrySize  = 8
	trailer    = 8
)

// alter gives a good bundle another shape. Its checksum is right in all but [scenario.Damaged].
func alter(b []byte, as scenario.Shape) []byte {
	le := binary.LittleEndian
	altered := append([]byte{}, b...)
	switch as {
	case scenario.NewerSection:
		const newerKind = 1 << 20
		data := []byte("of a later day  ") // a multiple of 8 bytes, so without padding
		sections := int(le.Uint16(b[sectionsAt:]))
		tableEnd, end := headEnd+entrySize*sections, len(b)-trailer
		altered = append([]byte{}, b[:tableEnd]...)
		altered = le.AppendUint32(altered, newerKind)
		altered = le.AppendUint32(altered, uint32(len(data)))
		altered = append(append(append(altered, b[tableEnd:end]...), data...), b[end:]...)
		le.PutUint16(altered[sectionsAt:], uint16(sections+1))
		le.PutUint32(altered[lengthAt:], uint32(len(altered)))
	case scenario.NewerFormat:
		le.PutUint16(altered[formatAt:], le.Uint16(altered[formatAt:])+1)
	case scenario.Damaged:
		altered[len(altered)/2] ^= 1
		return altered
	}
	sum := len(altered) - 4
	le.PutUint32(altered[sum:], crc32.Checksum(altered[:sum], crc32.MakeTable(crc32.Castagnoli)))
	return altered
}

// The shapes are what they are called, by the reader that the filter has too.
func TestPushedShapes(t *testing.T) {
	good, err := bundle.Encode(bundle.Content{Release: 5, TableEntries: 2048})
	if err != nil {
		t.Fatal(err)
	}
	for as, want := range map[scenario.Shape]error{
		scenario.Good: nil, scenario.NewerSection: nil, scenario.NewerFormat: bundle.ErrVersion, scenario.Damaged: bundle.ErrChecksum,
	} {
		b, err := bundle.Decode(alter(good, as))
		if !errors.Is(err, want) || err == nil && (b.Release != 5 || b.TableEntries != 2048) {
			t.Errorf("%s: %v, release %d, %d entries", as, err, b.Release, b.TableEntries)
		}
	}
	sections, err := bundle.Sections(alter(good, scenario.NewerSection))
	if err != nil || sections[len(sections)-1].Name != "unknown" {
		t.Errorf("%v, %v: want the last section unknown", sections, err)
	}
}
