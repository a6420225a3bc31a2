package rule_test

import (
	"fmt"

	"github.com/weirproject/weir/shared/rule"
)

func ExampleCompile() {
	text := func(text string) rule.Scalar { return rule.Scalar{Text: text, Set: true} }
	set, faults := rule.Compile(rule.Draft{Rules: []rule.Spec{{
		Name: text("search"), Where: text("origin"), Paths: []rule.Scalar{text("/search")}, By: []rule.Scalar{text("key|address")}, Limit: text("100/1m"),
	}}})
	if len(faults) > 0 {
		fmt.Println(faults)
		return
	}
	// //search is /search in an odd spelling.
	for _, m := range set.Match(rule.Origin, rule.Request{Method: "GET", Path: "//search?q=1"}, nil) {
		who, missing := m.Rule.Principal(rule.Parts(0).With(rule.Address), nil)
		fmt.Println(m.Rule.Name, m.Pattern, who, missing == nil, rule.FormatRate(m.Rule.Limit))
	}
	// Output: search /search [address] true 100/1m
}
