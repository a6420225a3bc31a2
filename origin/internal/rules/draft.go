package rules

import (
	"fmt"

	"github.com/weirproject/weir/origin/internal/document"
	"github.com/weirproject/weir/shared/rule"
)

// readDraft takes a file's values as they are written: what they mean is for [rule.Compile]. Files of networks that it
// names are read as well, relative to folder; with an empty folder they are not. lists are the faults in those.
func readDraft(doc *document.Document, folder string) (d rule.Draft, lists rule.Faults) {
	root := doc.Root().Fields("version", "tiers", "rules", "overrides", "edge")
	if v := root.Get("version"); v.Scalar().Text != "1" {
		v.Fault("want version: 1")
	}
	list := root.Get("rules")
	for _, item := range bounded(list, list.Items(), rule.MaxRules) {
		d.Rules = append(d.Rules, readSpec(item))
	}
	if len(d.Rules) == 0 && !doc.Broken() {
		list.Fault("want at least one rule: an empty rule set limits nothing")
	}
	for _, entry := range root.Get("tiers").Entries() {
		fields := entry.Fields("limit", "burst")
		d.Tiers = append(d.Tiers, rule.TierSpec{
			At:    entry.Name.At,
			Name:  entry.Name,
			Limit: fields.Get("limit").Scalar(),
			Burst: fields.Get("burst").Scalar(),
		})
	}
	overrides := root.Get("overrides")
	for _, item := range bounded(overrides, overrides.Items(), rule.MaxOverrides) {
		fields := item.Fields("rule", "key-id", "user", "tenant", "limit", "burst")
		d.Overrides = append(d.Overrides, rule.OverrideSpec{
			At:     item.At(),
			Rule:   fields.Get("rule").Scalar(),
			Key:    fields.Get("key-id").Scalar(),
			User:   fields.Get("user").Scalar(),
			Tenant: fields.Get("tenant").Scalar(),
			Limit:  fields.Get("limit").Scalar(),
			Burst:  fields.Get("burst").Scalar(),
		})
	}
	if v := root.Get("edge"); v.Present() {
		d.Edge, lists = readEdge(v, folder)
	}
	d.Partial = doc.Broken()
	return d, lists
}

// bounded are the items, none with a fault where there are more than most: each would be read into a value that is larger
// than its text.
func bounded(list document.Value, items []document.Value, most int) []document.Value {
	if len(items) > most {
		list.Fault(fmt.Sprintf("has %d entries: want at most %d", len(items), most))
		return nil
	}
	return items
}

func readSpec(item document.Value) rule.Spec {
	fields := item.Fields("name", "where", "match", "by", "algorithm", "limit", "burst", "tier", "cost", "on-store-failure",
		"exact", "headers", "mode", "penalty", "offset", "address-prefix", "valid-key")
	s := rule.Spec{At: item.At(), By: scalars(fields.Get("by"))}
	for _, f := range []struct {
		name string
		to   *rule.Scalar
	}{
		{"name", &s.Name}, {"where", &s.Where}, {"algorithm", &s.Algorithm}, {"limit", &s.Limit}, {"burst", &s.Burst}, {"tier", &s.Tier},
		{"cost", &s.Cost}, {"on-store-failure", &s.OnStoreFailure}, {"exact", &s.Exact}, {"headers", &s.Headers}, {"mode", &s.Mode},
		{"offset", &s.Offset},
	} {
		*f.to = fields.Get(f.name).Scalar()
	}
	if v := fields.Get("match"); v.Present() {
		match := v.Fields("paths", "methods", "hosts", "headers")
		s.MatchAt, s.Paths, s.Methods = v.At(), scalars(match.Get("paths")), scalars(match.Get("methods"))
		s.Hosts, s.HeaderNames = scalars(match.Get("hosts")), scalars(match.Get("headers"))
	}
	if v := fields.Get("address-prefix"); v.Present() {
		prefix := v.Fields("v4", "v6", "v6-outer")
		s.PrefixAt, s.PrefixV4, s.PrefixV6 = v.At(), prefix.Get("v4").Scalar(), prefix.Get("v6").Scalar()
		s.OuterV6 = prefix.Get("v6-outer").Scalar()
	}
	if v := fields.Get("valid-key"); v.Present() {
		valid := v.Fields("limit", "burst")
		s.ValidAt, s.ValidLimit, s.ValidBurst = v.At(), valid.Get("limit").Scalar(), valid.Get("burst").Scalar()
	}
	if v := fields.Get("penalty"); v.Present() {
		penalty := v.Fields("after", "ceiling", "decay")
		s.PenaltyAt, s.PenaltyAfter = v.At(), penalty.Get("after").Scalar()
		s.PenaltyCeiling, s.PenaltyDecay = penalty.Get("ceiling").Scalar(), penalty.Get("decay").Scalar()
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
