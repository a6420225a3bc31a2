package rule

import (
	"iter"
	"slices"
	"strings"

	"github.com/weirproject/weir/shared/limit"
)

// record is a rule as a [Set] keeps it: 12 bytes, and 24 for a limit that no other rule has, so that 10,000 rules fit
// 1 MB with their names, their patterns and the index. A [Rule] takes 64 bytes without them.
type record struct {
	name  uint32 // where the name begins in Set.names; it ends where the next one begins
	line  uint32
	limit uint16 // index into Set.limits; MaxRules fits
	terms uint16 // index into Set.terms
}

// keep packs validated rules. Equal limits are kept once; terms are shared already.
func (s *Set) keep(rules []Rule) {
	var names strings.Builder
	var limits []limit.Limit
	limitAt, termsAt := map[limit.Limit]uint16{}, map[*Terms]uint16{}
	s.records = make([]record, len(rules))
	s.valid = map[uint32]*limit.Limit{}
	for i, r := range rules {
		if _, known := limitAt[r.Limit]; !known {
			limitAt[r.Limit] = uint16(len(limits))
			limits = append(limits, r.Limit)
		}
		if _, known := termsAt[r.Terms]; !known {
			termsAt[r.Terms] = uint16(len(s.terms))
			s.terms = append(s.terms, r.Terms)
		}
		if r.Valid != nil {
			s.valid[r.Index] = r.Valid
		}
		s.records[i] = record{name: uint32(names.Len()), line: r.Line, limit: limitAt[r.Limit], terms: termsAt[r.Terms]}
		names.WriteString(r.Name)
	}
	s.names, s.limits = strings.Clone(names.String()), slices.Clone(limits) // without the room to grow
}

// Len is the number of rules.
func (s *Set) Len() int { return len(s.records) }

// Rule is rule i, 0 to [Set.Len] - 1, in the order of the file. It allocates nothing.
func (s *Set) Rule(i int) Rule {
	kept, end := s.records[i], len(s.names)
	if i+1 < len(s.records) {
		end = int(s.records[i+1].name)
	}
	return Rule{
		Name:  s.names[kept.name:end],
		Limit: s.limits[kept.limit],
		Valid: s.valid[uint32(i)],
		Terms: s.terms[kept.terms],
		Index: uint32(i),
		Line:  kept.line,
	}
}

// Rules are all rules, in the order of the file.
func (s *Set) Rules() iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		for i := range s.records {
			if !yield(s.Rule(i)) {
				return
			}
		}
	}
}

// Edge is the first rule that the edge enforces, nil when there is none.
func (s *Set) Edge() *Rule {
	for r := range s.Rules() {
		if r.Where == Edge {
			return &r
		}
	}
	return nil
}
