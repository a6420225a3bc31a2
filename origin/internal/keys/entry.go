package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/rule"
)

// The fields of the first level but keys, and those of a key, by their place in these lists.
const (
	version = iota
	prefix
	hashKey
	heads
)

const (
	id = iota
	sum
	edgeHash
	tenant
	tier
	created
)

var (
	headFields  = [...]string{"version", "prefix", "hash-key", "keys"}
	entryFields = [...]string{"id", "sha256", "edge-hash", "tenant", "tier", "created"}
)

// value is a field's, from whichever reader. Of an absent one the place is where its parent begins.
type value struct {
	text         []byte
	file         string
	line, column int
	present      bool // the field is there
	set          bool // it holds a single value; if not, that is told already
}

func (v value) at() rule.Source { return rule.Source{File: v.file, Line: v.line, Column: v.column} }

// place is where an entry's id and its hash stand: a quarter of two [rule.Source], of which there are as many as keys.
type place struct{ idLine, idColumn, sumLine, sumColumn uint32 }

// reader makes a File of fields, whatever they were read by.
type reader struct {
	file   *File
	name   string
	ids    map[string]uint32
	sums   map[[sha256.Size]byte]uint32
	shared map[string]string // tenants and tiers: a few stand behind many keys
	places []place
}

// head reads the fields of the first level. fault records what is wrong with the field of that index.
func (r *reader) head(values [heads]value, fault func(field int, want string)) {
	r.shared, r.ids, r.sums = map[string]string{}, map[string]uint32{}, map[[sha256.Size]byte]uint32{}
	r.file = &File{Format: keyfilter.Format{Prefix: keyfilter.DefaultPrefix}}
	r.name = values[version].file
	if string(values[version].text) != "1" {
		fault(version, "want version: 1")
	}
	if v := values[prefix]; v.present {
		r.file.Format.Prefix = string(v.text)
		if keyfilter.CheckPrefix(r.file.Format.Prefix) != nil {
			fault(prefix, "want 1 to 16 of a-z, A-Z, 0-9, _")
		}
	}
	hexField(values[hashKey], r.file.HashKey[:], hashKey, fault)
}

func tooMany(n int) string { return fmt.Sprintf("holds %d keys: want at most %d", n, MaxKeys) }

// entry reads one key. fault records what is wrong with its field of that index.
func (r *reader) entry(values [len(entryFields)]value, fault func(field int, want string)) {
	var e Entry
	index := uint32(len(r.file.Entries))
	e.ID = string(values[id].text)
	checkName(values[id], id, fault)
	if !values[id].present {
		fault(id, "is missing: "+ErrName.Error())
	}
	if isKey(e.ID) {
		fault(id, errIsKey.Error())
	} else if first, taken := r.ids[e.ID]; taken && e.ID != "" {
		p := r.places[first]
		fault(id, "is taken by the key at "+rule.Source{File: r.name, Line: int(p.idLine), Column: int(p.idColumn)}.String())
	} else {
		r.ids[e.ID] = index
	}
	e.Tenant, e.Tier = r.sharedName(values[tenant], tenant, fault), r.sharedName(values[tier], tier, fault)
	if hexField(values[sum], e.SHA256[:], sum, fault) {
		if first, taken := r.sums[e.SHA256]; taken {
			p := r.places[first]
			fault(sum, "is the key at "+rule.Source{File: r.name, Line: int(p.sumLine), Column: int(p.sumColumn)}.String())
		} else {
			r.sums[e.SHA256] = index
		}
	}
	var hash [8]byte
	hexField(values[edgeHash], hash[:], edgeHash, fault)
	for _, b := range hash {
		e.EdgeHash = e.EdgeHash<<8 | uint64(b)
	}
	if v := values[created]; v.present {
		var err error
		if e.Created, err = time.Parse(time.RFC3339, string(v.text)); err != nil {
			fault(created, "want a time as 2026-11-30T12:00:00Z")
		}
	}
	if len(r.file.Entries) == cap(r.file.Entries) {
		// Twice as many: in smaller steps, 400,000 would be copied from one room to the next ten times.
		r.file.Entries = slices.Grow(r.file.Entries, max(64, len(r.file.Entries)))
	}
	r.file.Entries = append(r.file.Entries, e)
	r.places = append(r.places, place{uint32(values[id].line), uint32(values[id].column), uint32(values[sum].line), uint32(values[sum].column)})
}

// hexField fills dst from exactly as many bytes in hex.
func hexField(v value, dst []byte, field int, fault func(int, string)) bool {
	if v.set && len(v.text) == 2*len(dst) {
		if _, err := hex.Decode(dst, v.text); err == nil {
			return true
		}
		clear(dst)
	}
	missing := ""
	if !v.present {
		missing = "is missing: "
	}
	fault(field, missing+fmt.Sprintf("want %d hex digits", 2*len(dst)))
	return false
}

func checkName(v value, field int, fault func(int, string)) {
	if v.set && CheckName(string(v.text)) != nil {
		fault(field, ErrName.Error())
	}
}

// sharedName is a name that many keys have, checked and kept once.
func (r *reader) sharedName(v value, field int, fault func(int, string)) string {
	if name, have := r.shared[string(v.text)]; have && v.set {
		return name
	}
	checkName(v, field, fault)
	name := string(v.text)
	if v.set && CheckName(name) == nil {
		r.shared[name] = name
	}
	return name
}
