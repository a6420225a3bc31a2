// Package keys holds the issued API keys, as hashes.
package keys

import (
	"bytes"
	"crypto/sha256"
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
	file, err := document.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return Read(path, file)
}

// Parse reads content, which faults name as name. The error is a [rule.Faults].
func Parse(name string, content []byte) (*File, error) { return Read(name, bytes.NewReader(content)) }

// wholeYAML is how large a file in any spelling of YAML may be: its reader takes some 10 kB of memory a key, so that
// 400,000 of them would take 4 GB. What is larger has to be spelled as [File.Encode] does, which is read as it comes.
const wholeYAML = 1 << 20

// Read reads content as it comes, which faults name as name. The error is a [rule.Faults], or content's own.
func Read(name string, content io.Reader) (*File, error) {
	f, err := read(name, content)
	return f, masked(err)
}

func read(name string, content io.Reader) (*File, error) {
	begin, err := io.ReadAll(io.LimitReader(content, wholeYAML+1))
	if err != nil {
		return nil, err
	}
	if len(begin) > wholeYAML {
		return readLines(name, io.MultiReader(bytes.NewReader(begin), content))
	}
	if f, err := readLines(name, bytes.NewReader(begin)); err == nil {
		return f, nil
	}
	if cut(begin) {
		return nil, rule.Faults{cutFault(name)}
	}
	return readDocument(document.Parse(name, begin))
}

// A file that begins with the line `---` ends with the line `...`, as [File.Encode] writes it: without that end, it is the
// beginning of one, of which each key may be good.
const begins, ends = "---", "..."

func cutFault(name string) rule.Fault {
	return rule.Fault{At: rule.Source{File: name}, Want: "is cut short: want the line `" + ends + "` at its end, or no `" + begins + "` at its beginning"}
}

// cut tells whether content has that beginning without that end.
func cut(content []byte) bool {
	framed, last := false, ""
	for line := range bytes.Lines(content) {
		text := string(bytes.TrimRight(line, " \r\n"))
		if text == "" || text[0] == '#' {
			continue
		}
		framed = framed || last == "" && text == begins
		last = text
	}
	return framed && last != ends
}

// readDocument reads any spelling of YAML.
func readDocument(doc *document.Document) (*File, error) {
	if !doc.Root().Present() {
		return nil, doc.Faults()
	}
	var read reader
	root := doc.Root().Fields(headFields[:]...)
	var values [len(headFields)]document.Value
	for i, name := range headFields {
		values[i] = root.Get(name)
	}
	head := func(i int) value { return documentValue(values[i]) }
	read.head([heads]value{head(version), head(prefix), head(hashKey)}, func(i int, want string) { values[i].Fault(want) })
	if list := root.Get("keys"); !list.Present() {
		// What ends before its keys is half a file, which would leave every customer out.
		list.Fault("is missing: want a list of keys, keys: [] for none")
	}
	items := root.Get("keys").Items()
	if len(items) > MaxKeys {
		root.Get("keys").Fault(tooMany(len(items)))
		return nil, doc.Faults()
	}
	for _, item := range items {
		fields := item.Fields(entryFields[:]...)
		var entry [len(entryFields)]value
		for i, name := range entryFields {
			entry[i] = documentValue(fields.Get(name))
		}
		read.entry(entry, func(i int, want string) { fields.Get(entryFields[i]).Fault(want) })
	}
	if faults := doc.Faults(); len(faults) > 0 {
		return nil, faults
	}
	return read.file, nil
}

func documentValue(v document.Value) value {
	s := v.Scalar()
	return value{text: []byte(s.Text), line: v.At().Line, column: v.At().Column, file: v.At().File, present: v.Present(), set: s.Set}
}

// ErrName says what an id, tenant or tier may be.
var ErrName = errors.New("want 1 to 64 of a-z, A-Z, 0-9, . _ -")

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
