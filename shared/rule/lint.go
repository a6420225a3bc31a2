package rule

import (
	"strconv"
	"strings"
)

// maxWarnings is how many open patterns are told: more of them have one cause.
const maxWarnings = 20

// Lint tells what in a valid draft is probably not meant: patterns that no rule limits when a caller has neither key nor
// user nor tenant, penalties that lengthen nothing, tiers that no rule uses. The set is what the draft compiled to.
func Lint(d Draft, s *Set) Faults {
	var warnings Faults
	tiered, patterns := false, s.allPatterns()
	for r := range s.Rules() {
		tiered = tiered || r.Tier
		if r.Mode == Shadow && r.Penalty != (Penalty{}) && len(warnings) < maxWarnings {
			warnings = append(warnings, Fault{At: d.Rules[r.Index].PenaltyAt, Field: "rules[" + strconv.Itoa(int(r.Index)) + "].penalty",
				Want: "a shadow rule refuses nobody: it begins with mode: enforce"})
		}
		if r.Mode == Shadow || len(warnings) == maxWarnings {
			continue
		}
		_, missing := r.Principal(anonymous, nil)
		if missing == nil {
			continue
		}
		for _, p := range patterns[r.Index] {
			if method, open := s.open(&r, p); open {
				warnings = append(warnings, Fault{At: d.Rules[r.Index].At, Field: "rules[" + strconv.Itoa(int(r.Index)) + "].match",
					Value: strings.TrimSpace(method + " " + p.Host + p.Path),
					Want:  "no rule applies there to a request without " + missing.String() + ": add one by address, or name a fallback, as " + missing.String() + "|address"})
				break
			}
		}
	}
	for _, t := range d.Tiers {
		if !tiered {
			warnings = append(warnings, Fault{At: t.At, Field: "tiers." + t.Name.Text, Want: "no rule has tier: true"})
		}
	}
	return warnings
}

// anonymous is what every request has.
const anonymous Parts = 1 << Address

// open tells whether some request that the pattern of r means is limited by no rule when its caller is anonymous. It
// asks the index about requests that only a pattern at least as wide can match: unheard-of segments in place of
// wildcards, once few of them, once many.
func (s *Set) open(r *Rule, p Pattern) (method string, open bool) {
	const unheard = "\x01"
	host := strings.Replace(p.Host, "*", unheard, 1)
	if host == "" {
		host = unheard
	}
	methods := r.Methods
	if len(methods) == 0 {
		methods = []string{unheard}
	}
	for _, tail := range []string{"/" + unheard, strings.Repeat("/"+unheard, maxSegments+1)} {
		path := p.Path
		if path == anyPath {
			path = "/**"
		}
		path, below := strings.CutSuffix(path, "/**")
		path = strings.ReplaceAll(path, "*", unheard)
		if below {
			path += tail
		}
		for _, method := range methods {
			q := Request{Method: method, Path: path, Host: host}
			if !s.limitsAnonymous(q) {
				return strings.TrimPrefix(method, unheard), true
			}
		}
	}
	return "", false
}

// limitsAnonymous tells whether an enforced rule of either tier applies to an anonymous request.
func (s *Set) limitsAnonymous(q Request) bool {
	var matched []Matched
	for _, where := range []Where{Edge, Origin} {
		matched = s.Match(where, q, matched)
	}
	for _, m := range matched {
		if _, missing := m.Rule.Principal(anonymous, nil); missing == nil && m.Rule.Mode == Enforce {
			return true
		}
	}
	return false
}
