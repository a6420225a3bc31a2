package rules

import (
	"strconv"

	"github.com/weirproject/weir/shared/rule"
)

// unenforced finds what the rule model has and this version's processes do not enforce yet. A rule that is silently not
// enforced is worse than one that is refused. Whoever makes a process enforce one of these deletes its line here.
func unenforced(d rule.Draft, s *rule.Set) (faults rule.Faults) {
	edges := 0
	for i := range d.Rules {
		spec, r := &d.Rules[i], &s.Rules[i]
		refuse := func(found bool, at rule.Source, field, value, want string) {
			if found {
				faults = append(faults, rule.Fault{At: at, Field: "rules[" + strconv.Itoa(i) + "]." + field, Value: value, Want: want})
			}
		}
		// Both tiers.
		refuse(r.Mode == rule.Shadow, spec.Mode.At, "mode", spec.Mode.Text, "is not enforced by this version: want enforce")
		refuse(spec.Cost.Set && r.Cost != 1, spec.Cost.At, "cost", spec.Cost.Text, "is not enforced by this version: want 1")
		if r.Where == rule.Edge {
			edges++
			refuse(edges > 1, spec.At, "where", "edge", "this version's edge has one rule: want no second")
			refuse(r.Algorithm != rule.TokenBucket, spec.Algorithm.At, "algorithm", spec.Algorithm.Text, "this version's edge has token-bucket alone")
			refuse(spec.MatchAt != rule.Source{}, spec.MatchAt, "match", "", "this version's edge applies its rule to every request: want no match")
			refuse(r.OuterV6 != 0, spec.OuterV6.At, "address-prefix.v6-outer", spec.OuterV6.Text, "this version's edge has one prefix per address: want none")
			continue
		}
		refuse(r.Algorithm != rule.SlidingWindow, spec.Algorithm.At, "algorithm", spec.Algorithm.Text, "this version's origin has sliding-window alone")
		refuse(r.Tier, spec.Tier.At, "tier", spec.Tier.Text, "this version's origin has no tiers: want a limit")
		refuse(r.Exact, spec.Exact.At, "exact", spec.Exact.Text, "is not enforced by this version: want false")
		refuse(r.Penalty.After != 0, spec.PenaltyAt, "penalty", "", "is not enforced by this version: want none")
		refuse(len(spec.Hosts) > 0, spec.MatchAt, "match.hosts", "", "this version's origin matches no hosts: want none")
		refuse(len(spec.HeaderNames) > 0, spec.MatchAt, "match.headers", "", "this version's origin matches no headers: want none")
		for j, by := range spec.By {
			for _, part := range r.By[j] {
				refuse(part == rule.User, by.At, "by["+strconv.Itoa(j)+"]", by.Text, "this version's origin verifies no users: want another part")
			}
		}
	}
	for i, o := range d.Overrides {
		faults = append(faults, rule.Fault{At: o.At, Field: "overrides[" + strconv.Itoa(i) + "]", Want: "this version's origin has no overrides: want none"})
	}
	return faults
}
