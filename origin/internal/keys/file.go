// Package keys holds the issued API keys, as hashes.
package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weirproject/weir/origin/internal/document"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/rule"
)

// MaxKeys bounds a file: what one edge's bundle and one process's table are made for.
const MaxKeys = 1_000_000

// maxName bounds an id, tenant or tier: they stand in logs and counter names.
const maxName = 64

// Key is who an API key stands for. It is read-only.
type Key struct {
	ID     string // names the key in logs, rules and counters; not derived from it
	Tenant string // empty: none
	Tier   string // empty: none
}

// Entry is one issued key as the file holds it.
type Entry struct {
	Key
	SHA256   [sha256.Size]byte // of the key's text
	EdgeHash uint64            // the edge's fingerprint: keyfilter.Hash under File.HashKey
	Created  time.Time         // zero: not told
}

// File is the content of weir.keys.yaml. No key's text is in it.
type File struct {
	Format  keyfilter.Format
	HashKey keyfilter.HashKey // of this installation; public
	Entries []Entry
}

// New is a file without keys, under a fresh hash key from random.
func New(random io.Reader) (*File, error) {
	f := &File{Format: keyfilter.Format{Prefix: keyfilter.DefaultPrefix}}
	if _, err := io.ReadFull(random, f.HashKey[:]); err != nil {
		return nil, fmt.Errorf("make a hash key: %w", err)
	}
	return f, nil
}

// Load reads the file at path. The error is a [rule.Faults] with everything wrong in it, or says why it cannot be
// read; a file that does not exist is [os.ErrNotExist].
func Load(path string) (*File, error) {
	doc, _, err := document.ReadFile(path, path)
	if err != nil {
		return nil, err
	}
	return read(doc)
}

// Parse reads content, which faults name as name. The error is a [rule.Faults].
func Parse(name string, content []byte) (*File, error) { return read(document.Parse(name, content)) }

func read(doc *document.Document) (*File, error) {
	f := &File{}
	if !doc.Root().Present() {
		return nil, doc.Faults()
	}
	root := doc.Root().Fields("version", "prefix", "hash-key", "keys")
	if v := root.Get("version"); v.Scalar().Text != "1" {
		v.Fault("want version: 1")
	}
	f.Format.Prefix = keyfilter.DefaultPrefix
	if v := root.Get("prefix"); v.Present() {
		f.Format.Prefix = v.Scalar().Text
		if keyfilter.CheckPrefix(f.Format.Prefix) != nil {
			v.Fault("want 1 to 16 of a-z, A-Z, 0-9, _")
		}
	}
	readHex(root.Get("hash-key"), f.HashKey[:])
	items := root.Get("keys").Items()
	if len(items) > MaxKeys {
		root.Get("keys").Fault(fmt.Sprintf("holds %d keys: want at most %d", len(items), MaxKeys))
		return nil, doc.Faults()
	}
	ids, sums := map[string]rule.Source{}, map[[sha256.Size]byte]rule.Source{}
	f.Entries = make([]Entry, 0, len(items))
	for _, item := range items {
		f.Entries = append(f.Entries, readEntry(item, ids, sums))
	}
	if faults := doc.Faults(); len(faults) > 0 {
		return nil, faults
	}
	return f, nil
}

func readEntry(item document.Value, ids map[string]rule.Source, sums map[[sha256.Size]byte]rule.Source) (e Entry) {
	fields := item.Fields("id", "sha256", "edge-hash", "tenant", "tier", "created")
	id := fields.Get("id")
	e.ID = readName(id, true)
	if first, taken := ids[e.ID]; taken && e.ID != "" {
		id.Fault("is taken by the key at " + first.String())
	}
	ids[e.ID] = id.At()
	e.Tenant, e.Tier = readName(fields.Get("tenant"), false), readName(fields.Get("tier"), false)
	if sum := fields.Get("sha256"); readHex(sum, e.SHA256[:]) {
		if first, taken := sums[e.SHA256]; taken {
			sum.Fault("is the key at " + first.String())
		}
		sums[e.SHA256] = sum.At()
	}
	var hash [8]byte
	readHex(fields.Get("edge-hash"), hash[:])
	for _, b := range hash {
		e.EdgeHash = e.EdgeHash<<8 | uint64(b)
	}
	if v := fields.Get("created"); v.Present() {
		var err error
		if e.Created, err = time.Parse(time.RFC3339, v.Scalar().Text); err != nil {
			v.Fault("want a time as 2026-11-30T12:00:00Z")
		}
	}
	return e
}

// readHex fills dst from exactly as many bytes in hex.
func readHex(v document.Value, dst []byte) bool {
	s := v.Scalar()
	if b, err := hex.DecodeString(s.Text); s.Set && err == nil && len(b) == len(dst) {
		copy(dst, b)
		return true
	}
	missing := ""
	if !v.Present() {
		missing = "is missing: "
	}
	v.Fault(missing + fmt.Sprintf("want %d hex digits", 2*len(dst)))
	return false
}

// ErrName says what an id, tenant or tier may be.
var ErrName = errors.New("want 1 to 64 of a-z, A-Z, 0-9, . _ -")

func readName(v document.Value, required bool) string {
	if !v.Present() && !required {
		return ""
	}
	s := v.Scalar()
	if !v.Present() {
		v.Fault("is missing: " + ErrName.Error())
	} else if s.Set && CheckName(s.Text) != nil {
		v.Fault(ErrName.Error())
	}
	return s.Text
}

// CheckName tells whether name can be an id, tenant or tier; if not, it is [ErrName].
func CheckName(name string) error {
	valid := name != "" && len(name) <= maxName
	for _, c := range []byte(name) {
		valid = valid && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0)
	}
	if !valid {
		return ErrName
	}
	return nil
}
