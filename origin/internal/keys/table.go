package keys

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strings"

	"github.com/weirproject/weir/shared/keyfilter"
)

// Table finds the key that a client shows. It is read-only, so any number of goroutines may use it. The zero value
// knows no key.
//
// It is four allocations whatever the number of keys: the garbage collector does not go from key to key. A key takes 48
// bytes as what is handed out, 32 as its hash, 6 in the index, with its id, in all some 100; a map of hashes took 180.
type Table struct {
	format keyfilter.Format
	seed   uint64
	index  []uint32            // an open-addressed table of places in keys, plus 1; 0 is empty
	sums   [][sha256.Size]byte // of the key at the same place in keys
	keys   []Key
}

// Table is the lookup table of the file's keys.
func (f *File) Table() *Table {
	n := len(f.Entries)
	t := &Table{format: f.Format, index: make([]uint32, n+n/2+1), sums: make([][sha256.Size]byte, n), keys: make([]Key, n)}
	if t.format.Prefix == "" { // a file made without New: every text begins with an empty prefix
		t.format.Prefix = keyfilter.DefaultPrefix
	}
	// Whoever may bring keys of their own must not find such as meet in one place.
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	t.seed = binary.NativeEndian.Uint64(seed[:]) | 1

	names := intern(f.Entries)
	for i := range f.Entries {
		e := &f.Entries[i]
		t.keys[i] = Key{ID: names.ids[names.at[i]:names.at[i+1]], Tenant: names.shared[e.Tenant], Tier: names.shared[e.Tier]}
		t.sums[i] = e.SHA256
		slot := t.slot(&t.sums[i])
		for t.index[slot] != 0 {
			slot = t.after(slot)
		}
		t.index[slot] = uint32(i + 1)
	}
	return t
}

// interned are the names of all entries: ids in one text, each tenant and tier once, since few stand behind many keys.
type interned struct {
	ids    string
	at     []uint32 // where the id of an entry begins in ids, and the last one ends
	shared map[string]string
}

func intern(entries []Entry) interned {
	var ids strings.Builder
	size := 0
	for i := range entries {
		size += len(entries[i].ID)
	}
	ids.Grow(size)
	n := interned{at: make([]uint32, len(entries)+1), shared: map[string]string{}}
	for i := range entries {
		n.at[i] = uint32(ids.Len())
		ids.WriteString(entries[i].ID)
		for _, name := range [...]string{entries[i].Tenant, entries[i].Tier} {
			if _, have := n.shared[name]; !have {
				name = strings.Clone(name) // without the file's line behind it
				n.shared[name] = name
			}
		}
	}
	n.at[len(entries)] = uint32(ids.Len())
	n.ids = ids.String()
	return n
}

// slot is where the search for a hash begins. A SHA-256 is as good as random, so that eight bytes of it, spread by a
// secret factor, are hash enough.
func (t *Table) slot(sum *[sha256.Size]byte) int {
	high, _ := bits.Mul64(binary.LittleEndian.Uint64(sum[:8])*t.seed, uint64(len(t.index)))
	return int(high)
}

func (t *Table) after(slot int) int {
	if slot++; slot < len(t.index) {
		return slot
	}
	return 0
}

// Lookup is the key whose text is given, nil for one that was never issued. It costs one SHA-256 with some two looks into
// the table, whatever the number of keys, and allocates nothing.
func (t *Table) Lookup(text []byte) *Key {
	if len(t.index) == 0 {
		return nil
	}
	sum := sha256.Sum256(text)
	for slot := t.slot(&sum); t.index[slot] != 0; slot = t.after(slot) {
		if i := t.index[slot] - 1; bytes.Equal(t.sums[i][:], sum[:]) {
			return &t.keys[i]
		}
	}
	return nil
}

// Format is the shape of the keys that this installation issues.
func (t *Table) Format() keyfilter.Format { return t.format }

// Len is the number of keys.
func (t *Table) Len() int { return len(t.keys) }
