package keys

import (
	"crypto/sha256"
	"unique"

	"github.com/weirproject/weir/shared/keyfilter"
)

// Table finds the key that a client shows. It is read-only, so any number of goroutines may use it. The zero value
// knows no key.
type Table struct {
	format keyfilter.Format
	index  map[[sha256.Size]byte]uint32 // into keys: 4 bytes where a Key takes 48
	keys   []Key
}

// Table is the lookup table of the file's keys.
func (f *File) Table() *Table {
	t := &Table{format: f.Format, index: make(map[[sha256.Size]byte]uint32, len(f.Entries)), keys: make([]Key, len(f.Entries))}
	if t.format.Prefix == "" { // a file made without New: every text begins with an empty prefix
		t.format.Prefix = keyfilter.DefaultPrefix
	}
	for i, e := range f.Entries {
		// A few tenants and tiers stand behind many keys.
		e.Tenant, e.Tier = unique.Make(e.Tenant).Value(), unique.Make(e.Tier).Value()
		t.keys[i] = e.Key
		t.index[e.SHA256] = uint32(i)
	}
	return t
}

// Lookup is the key whose text is given, nil for one that was never issued. It costs one SHA-256 with one map lookup,
// allocates nothing, and its time does not depend on which keys exist.
func (t *Table) Lookup(text []byte) *Key {
	if i, ok := t.index[sha256.Sum256(text)]; ok {
		return &t.keys[i]
	}
	return nil
}

// Format is the shape of the keys that this installation issues.
func (t *Table) Format() keyfilter.Format { return t.format }

// Len is the number of keys.
func (t *Table) Len() int { return len(t.keys) }
