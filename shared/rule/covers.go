package rule

import "strings"

// View is a request as patterns are compared with it one by one: its host's name, its path by every reading. It is for
// who has patterns without a [Set]; made once, it serves many comparisons.
type View struct {
	host  string
	paths readings
}

// View reads q. It allocates only for a path of an odd spelling.
func (q *Request) View() View { return View{host: trimHost(q.Host), paths: readPath(q.Path)} }

// Covers tells whether the request is one that p means, by any reading of its path, as [Set.Match] does. It does not
// allocate.
func (v *View) Covers(p Pattern) bool {
	if !hostCovers(p.Host, v.host) {
		return false
	}
	for _, path := range v.paths.spelling[:v.paths.n] {
		if pathCovers(p.Path, path) {
			return true
		}
	}
	return false
}

// MethodCovers tells whether a method that a rule lists means a request's: itself, and HEAD too if it is GET. Methods differ
// by case (RFC 9110 section 9.1), but many an API takes get for GET, which is not to dodge its rule.
func MethodCovers(listed, method string) bool {
	return strings.EqualFold(listed, method) || listed == "GET" && strings.EqualFold(method, "HEAD")
}

// AllPatterns are the [Set.Patterns] of all rules, by index.
func (s *Set) AllPatterns() [][]Pattern { return s.allPatterns() }
