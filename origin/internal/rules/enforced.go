package rules

import (
	"strconv"
	"strings"

	"github.com/weirproject/weir/shared/rule"
)

// unenforced finds what the rule model has and this version's processes do not enforce yet. A rule that is silently not
// enforced is worse than one that is refused. Whoever makes a process enforce one of these deletes its line here.
func unenforced(d rule.Draft) (faults rule.Faults) {
	edges := 0
	for i := range d.Rules {
		s := &d.Rules[i]
		refuse := func(found bool, at rule.Source, field, value, want string) {
			if found {
				faults = append(faults, rule.Fault{At: at, Field: "rules[" + strconv.Itoa(i) + "]." + field, Value: value, Want: want})
			}
		}
		is := func(v rule.Scalar, field, text, want string) {
			refuse(v.Set && v.Text == text, v.At, field, v.Text, want)
		}
		// Both tiers.
		is(s.Mode, "mode", rule.Shadow.String(), "is not enforced by this version: want enforce")
		refuse(s.Cost.Set && s.Cost.Text != "1", s.Cost.At, "cost", s.Cost.Text, "is not enforced by this version: want 1")
		if s.Where.Text == rule.Edge.String() {
			edges++
			refuse(edges > 1, s.At, "where", s.Where.Text, "this version's edge has one rule: want no second")
			refuse(s.MatchAt != rule.Source{}, s.MatchAt, "match", "", "this version's edge applies its rule to every request: want no match")
			continue
		}
		if s.Where.Text != rule.Origin.String() {
			continue // a fault of its own
		}
		for _, other := range []rule.Algorithm{rule.TokenBucket, rule.GCRA, rule.FixedWindow, rule.LeakyBucket, rule.LeakyQueue, rule.SlidingLog} {
			is(s.Algorithm, "algorithm", other.String(), "this version's origin has sliding-window alone")
		}
		is(s.Tier, "tier", "true", "this version's origin has no tiers: want a limit")
		is(s.Exact, "exact", "true", "is not enforced by this version: want false")
		refuse(s.PenaltyAt != rule.Source{}, s.PenaltyAt, "penalty", "", "is not enforced by this version: want none")
		refuse(len(s.Hosts) > 0, s.MatchAt, "match.hosts", "", "this version's origin matches no hosts: want none")
		refuse(len(s.HeaderNames) > 0, s.MatchAt, "match.headers", "", "this version's origin matches no headers: want none")
		for j, by := range s.By {
			for part := range strings.SplitSeq(by.Text, "|") {
				refuse(part == rule.User.String(), by.At, "by["+strconv.Itoa(j)+"]", by.Text, "this version's origin verifies no users: want another part")
			}
		}
	}
	for i, o := range d.Overrides {
		faults = append(faults, rule.Fault{At: o.At, Field: "overrides[" + strconv.Itoa(i) + "]", Want: "this version's origin has no overrides: want none"})
	}
	return faults
}
