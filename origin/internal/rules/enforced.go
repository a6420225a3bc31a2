package rules

import (
	"strconv"

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
		if s.Where.Text != rule.Edge.String() {
			continue // the origin enforces the whole model
		}
		edges++
		refuse(edges > 1, s.At, "where", s.Where.Text, "this version's edge has one rule: want no second")
		refuse(s.MatchAt != rule.Source{}, s.MatchAt, "match", "", "this version's edge applies its rule to every request: want no match")
		refuse(s.Mode.Text == rule.Shadow.String(), s.Mode.At, "mode", s.Mode.Text, "this version's edge has no shadow rules: want enforce")
		refuse(s.Cost.Set && s.Cost.Text != "1", s.Cost.At, "cost", s.Cost.Text, "every request costs 1 at this version's edge: want 1")
	}
	return faults
}
