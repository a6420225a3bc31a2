package benchedge

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"testing"

	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/rule"
)

// keyCount is how many keys the gate knows.
const keyCount = 400_000

// keys are those that the gate knows, those of the connections among them, and some that were never issued.
type keys struct {
	format  keyfilter.Format
	hashKey keyfilter.HashKey
	hashes  []uint64
	known   []string
	forged  []string
}

func newKeys(b *testing.B, connections int) keys {
	b.Helper()
	k := keys{format: keyfilter.Format{Prefix: keyfilter.DefaultPrefix}}
	random := make([]byte, 8*keyCount)
	for _, buffer := range [][]byte{k.hashKey[:], random} {
		if _, err := io.ReadFull(rand.Reader, buffer); err != nil {
			b.Fatal(err)
		}
	}
	for range connections {
		k.known = append(k.known, k.make(b))
		k.hashes = append(k.hashes, keyfilter.Hash(k.hashKey, []byte(k.known[len(k.known)-1])))
	}
	for i := len(k.hashes); i < keyCount; i++ {
		k.hashes = append(k.hashes, binary.LittleEndian.Uint64(random[8*i:]))
	}
	filter := k.gate(b)
	for len(k.forged) < connections {
		if key := k.make(b); !filter.Contains(keyfilter.Hash(k.hashKey, []byte(key))) { // one in 65,536 is
			k.forged = append(k.forged, key)
		}
	}
	return k
}

func (k *keys) make(b *testing.B) string {
	b.Helper()
	key, err := k.format.New(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	return key
}

func (k *keys) gate(b *testing.B) keyfilter.Filter {
	b.Helper()
	encoded, err := keyfilter.EncodeFilter(k.hashes)
	if err != nil {
		b.Fatal(err)
	}
	filter, err := keyfilter.ReadFilter(encoded)
	if err != nil {
		b.Fatal(err)
	}
	return filter
}

// bundle is a release whose addresses pay by the given limit, and with a known key by one that nobody here reaches.
func (k *keys) bundle(b *testing.B, release uint64, limit string) []byte {
	b.Helper()
	scalar := func(text string) rule.Scalar { return rule.Scalar{Text: text, Set: true} }
	set, faults := rule.Compile(rule.Draft{Rules: []rule.Spec{
		{Name: scalar("flood-per-address"), Where: scalar("edge"), By: []rule.Scalar{scalar("address")}, Algorithm: scalar("token-bucket"),
			Limit: scalar(limit), ValidAt: rule.Source{Line: 1}, ValidLimit: scalar(wide)},
		{Name: scalar(hintedRule), Where: scalar("origin"), By: []rule.Scalar{scalar("key")}, Limit: scalar("100/1m"),
			Paths: []rule.Scalar{scalar(hintedPath)}},
	}})
	if len(faults) > 0 {
		b.Fatal(faults)
	}
	encoded, err := bundle.Encode(bundle.Content{
		Release: release, KeyHashes: k.hashes, Rule: set.Edge(), Origin: set,
		Gate: &bundle.Gate{KeyHeader: "x-api-key", Format: k.format, HashKey: k.hashKey},
	})
	if err != nil {
		b.Fatal(err)
	}
	return encoded
}

// Limits of an address: one that nobody here reaches, and one that is used up at once for as long as this runs.
const (
	wide  = "1000000/1s"
	tight = "1/1h"
)
