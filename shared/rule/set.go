package rule

import (
	"slices"
	"strings"
)

// Set is a validated rule set with an index: finding the rules of a request costs one map lookup a segment of its
// path, however many rules there are. It is read-only after [Compile], so any number of goroutines may use it.
type Set struct {
	Rules []*Rule // all rules, in the order of the file

	edge  *Rule
	any   []indexed            // origin rules without paths
	exact map[string][]indexed // by path
	below map[string][]indexed // by the path that /** hangs on
}

// indexed is one pattern of one rule.
type indexed struct {
	rule     *Rule
	endpoint string
}

// anyPath is the endpoint of a rule that names no path.
const anyPath = "*"

// Matched is a rule that applies to a request, with the pattern that it matched by.
type Matched struct {
	Rule    *Rule
	Pattern string
}

// Edge is the rule that the edge enforces, nil when there is none.
func (s *Set) Edge() *Rule { return s.edge }

// Match appends the origin rules that apply to a request, each once, by its longest pattern. The path may be raw.
// It allocates only if dst has no room or the path is not in normal form.
func (s *Set) Match(method, path string, dst []Matched) []Matched {
	path = NormalizePath(path)
	from := len(dst)
	dst = admit(dst, from, method, s.exact[path])
	if path == "/" { // "/**" is everything, the root with it
		dst = admit(dst, from, method, s.below[path])
	}
	// Longest first, so that a rule is matched by its narrowest pattern.
	for parent := path; parent != "/"; {
		parent = parent[:strings.LastIndexByte(parent, '/')]
		if parent == "" {
			parent = "/"
		}
		dst = admit(dst, from, method, s.below[parent])
	}
	return admit(dst, from, method, s.any)
}

// admit appends those of candidates that accept method and are not in dst[from:] yet.
func admit(dst []Matched, from int, method string, candidates []indexed) []Matched {
	for _, c := range candidates {
		if len(c.rule.methods) > 0 && !slices.Contains(c.rule.methods, method) {
			continue
		}
		if slices.ContainsFunc(dst[from:], func(m Matched) bool { return m.Rule == c.rule }) {
			continue
		}
		dst = append(dst, Matched{Rule: c.rule, Pattern: c.endpoint})
	}
	return dst
}

// index builds the lookup maps.
func (s *Set) index() {
	s.exact, s.below = map[string][]indexed{}, map[string][]indexed{}
	for i, r := range s.Rules {
		r.Index = i
		switch {
		case r.Where == Edge:
			s.edge = r
		case len(r.paths) == 0:
			s.any = append(s.any, indexed{r, anyPath})
		}
		for _, p := range r.paths {
			if p.below {
				s.below[p.path] = append(s.below[p.path], indexed{r, p.text})
			} else {
				s.exact[p.path] = append(s.exact[p.path], indexed{r, p.text})
			}
		}
	}
}
