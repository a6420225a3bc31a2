// Package rules reads weir.rules.yaml, the rules as people write them.
package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/weirproject/weir/origin/internal/document"
	"github.com/weirproject/weir/shared/rule"
)

// Release is an immutable rule set with its name.
type Release struct {
	Set *rule.Set
	// Number is 0 for a file: only a control plane gives out numbers.
	Number uint64
	// Content is the start of the hex SHA-256 of the text: it tells two files apart.
	Content string
	// Warnings tell what in it is probably not meant.
	Warnings rule.Faults
	// Unenforced is what this version's processes would refuse in it; none in one that [Load] took.
	Unenforced rule.Faults
}

// Load reads the file at path for use by this version's processes: what they cannot enforce is refused, as well as
// what is wrong. It reads the files of networks that the file names. The error is a [rule.Faults] with everything found,
// or says why the file cannot be read.
func Load(path string) (*Release, error) {
	doc, content, err := document.ReadFile(path, path)
	if err != nil {
		return nil, err
	}
	return read(doc, content, filepath.Dir(path), true)
}

// Parse is Load of content, which faults name as name. It reads no other file: the set lacks the networks of files that
// content names, which no origin needs.
func Parse(name string, content []byte) (*Release, error) {
	return read(document.Parse(name, content), content, "", true)
}

// LoadModel is Load for trying rules out: it takes all that a rules file may say, enforced by this version or not.
func LoadModel(path string) (*Release, error) {
	doc, content, err := document.ReadFile(path, path)
	if err != nil {
		return nil, err
	}
	return read(doc, content, filepath.Dir(path), false)
}

// ParseModel is to LoadModel as Parse is to Load.
func ParseModel(name string, content []byte) (*Release, error) {
	return read(document.Parse(name, content), content, "", false)
}

// read compiles a document; with enforced, what this version does not enforce is a fault. Files that the document names
// are relative to folder; with an empty folder they are not read.
func read(doc *document.Document, content []byte, folder string, enforced bool) (*Release, error) {
	if !doc.Root().Present() {
		return nil, doc.Faults()
	}
	draft, faults := readDraft(doc, folder)
	var set *rule.Set
	if len(draft.Rules) > 0 {
		compiled, more := rule.Compile(draft)
		set, faults = compiled, append(faults, more...)
	}
	missing := unenforced(draft)
	if enforced {
		faults = append(faults, missing...)
	}
	if faults = doc.FaultsWith(faults); len(faults) > 0 {
		return nil, faults
	}
	sum := sha256.Sum256(content)
	return &Release{Set: set, Content: hex.EncodeToString(sum[:])[:12], Warnings: rule.Lint(draft, set), Unenforced: missing}, nil
}
