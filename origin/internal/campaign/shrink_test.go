package campaign

import (
	"slices"
	"time"
)

// shrink makes a history that breaks a promise shorter, as long as it breaks one: it drops steps, then rules, what
// rules may do without, releases and processes. The error is the shorter one's.
func shrink(h history, err error) (history, error) {
	end := time.Now().Add(20 * time.Second)
	breaks := func(c history) bool {
		if time.Now().After(end) {
			return false
		}
		_, e := play(c)
		if e != nil {
			err = e
		}
		return e != nil
	}
	for before := -1; before != len(h.steps); {
		before = len(h.steps)
		for size := max(1, len(h.steps)/2); size > 0; size /= 2 {
			for at := len(h.steps) - size; at >= 0; at -= size {
				c := h
				c.steps = slices.Delete(slices.Clone(h.steps), at, min(at+size, len(h.steps)))
				if breaks(c) {
					h = c
				}
			}
		}
		for r := len(h.releases[0]) - 1; r >= 0 && len(h.releases[0]) > 1; r-- {
			c := h
			c.releases = nil
			for _, rules := range h.releases {
				c.releases = append(c.releases, slices.Delete(slices.Clone(rules), r, r+1))
			}
			if breaks(c) {
				h = c
			}
		}
		for r := range h.releases[0] {
			for _, plainer := range plain {
				c := h
				c.releases = nil
				for _, rules := range h.releases {
					rules = slices.Clone(rules)
					plainer(&rules[r])
					c.releases = append(c.releases, rules)
				}
				if c.text() != h.text() && breaks(c) {
					h = c
				}
			}
		}
		for len(h.releases) > 1 {
			c := h
			if c.releases = h.releases[:len(h.releases)-1]; !breaks(c) {
				break
			}
			h = c
		}
		for h.processes > 1 {
			c := h
			if c.processes--; !breaks(c) {
				break
			}
			h = c
		}
	}
	return h, err
}

// plain is what rules may do without.
var plain = []func(*ruleSpec){
	func(r *ruleSpec) { r.offset = false },
	func(r *ruleSpec) { r.penalty = 0 },
	func(r *ruleSpec) { r.override = 0 },
	func(r *ruleSpec) { r.exact = false },
}
