// Package rules reads weir.rules.yaml, the rules as people write them.
package rules

import (
	"crypto/sha256"
	"encoding/hex"

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
}

// Load reads the file at path. The error is a [rule.Faults] with everything wrong in it, or says why it cannot be read.
func Load(path string) (*Release, error) {
	doc, content, err := document.ReadFile(path, path)
	if err != nil {
		return nil, err
	}
	return read(doc, content)
}

// Parse reads content, which faults name as name. The error is a [rule.Faults].
func Parse(name string, content []byte) (*Release, error) {
	return read(document.Parse(name, content), content)
}

func read(doc *document.Document, content []byte) (*Release, error) {
	if !doc.Root().Present() {
		return nil, doc.Faults()
	}
	root := doc.Root().FieldsBut([]string{"tiers", "overrides"}, "version", "rules")
	if v := root.Get("version"); v.Scalar().Text != "1" {
		v.Fault("want version: 1")
	}
	list := root.Get("rules")
	items := list.Items()
	specs := make([]rule.Spec, len(items))
	for i, item := range items {
		specs[i] = readSpec(item)
	}
	if len(items) == 0 && !doc.Broken() {
		list.Fault("want at least one rule: an empty rule set limits nothing")
	}
	var set *rule.Set
	var faults rule.Faults
	if len(items) > 0 {
		set, faults = rule.Compile(specs)
	}
	if faults = doc.FaultsWith(faults); len(faults) > 0 {
		return nil, faults
	}
	sum := sha256.Sum256(content)
	return &Release{Set: set, Content: hex.EncodeToString(sum[:])[:12]}, nil
}

// laterFields are fields of a rule that a later version knows.
var laterFields = []string{"cost", "exact", "mode", "tier", "penalty"}

func readSpec(item document.Value) rule.Spec {
	fields := item.FieldsBut(laterFields, "name", "where", "match", "by", "algorithm", "limit", "burst", "on-store-failure",
		"headers", "address-prefix", "valid-key")
	s := rule.Spec{
		At:             item.At(),
		Name:           fields.Get("name").Scalar(),
		Where:          fields.Get("where").Scalar(),
		Algorithm:      fields.Get("algorithm").Scalar(),
		Limit:          fields.Get("limit").Scalar(),
		Burst:          fields.Get("burst").Scalar(),
		By:             scalars(fields.Get("by")),
		OnStoreFailure: fields.Get("on-store-failure").Scalar(),
		Headers:        fields.Get("headers").Scalar(),
	}
	if v := fields.Get("match"); v.Present() {
		match := v.Fields("paths", "methods")
		s.MatchAt, s.Paths, s.Methods = v.At(), scalars(match.Get("paths")), scalars(match.Get("methods"))
	}
	if v := fields.Get("address-prefix"); v.Present() {
		prefix := v.FieldsBut([]string{"v6-outer"}, "v4", "v6")
		s.PrefixAt, s.PrefixV4, s.PrefixV6 = v.At(), prefix.Get("v4").Scalar(), prefix.Get("v6").Scalar()
	}
	if v := fields.Get("valid-key"); v.Present() {
		valid := v.Fields("limit", "burst")
		s.ValidAt, s.ValidLimit, s.ValidBurst = v.At(), valid.Get("limit").Scalar(), valid.Get("burst").Scalar()
	}
	return s
}

func scalars(v document.Value) []rule.Scalar {
	items := v.Items()
	var list []rule.Scalar
	for _, item := range items {
		if s := item.Scalar(); s.Set {
			list = append(list, s)
		}
	}
	// A list that was written empty is no absent list: it would match everything where nothing was meant.
	if v.Present() && len(list) == 0 && items != nil {
		v.Fault("want at least one value, or leave the field out")
	}
	return list
}
