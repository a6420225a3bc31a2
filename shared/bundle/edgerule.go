package bundle

import (
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// outerFactor is how many times the limit of one address the network around it has: it stops whoever walks through the
// addresses of a /48, and leaves room for many people behind one.
const outerFactor = 16

// EdgeRule is an edge rule as the edge enforces it.
type EdgeRule struct {
	Name               string
	Headers            rule.Headers
	Algorithm          rule.Algorithm // TokenBucket or GCRA
	PrefixV4, PrefixV6 uint8          // bits of an address that make one principal
	Anonymous          limit.Limit    // what an address pays from without a known key
	Valid              limit.Limit    // what it pays from when its key is known
	// OuterV6 is the bits of the wider network that every IPv6 address pays for too, fewer than PrefixV6; 0 for none.
	OuterV6 uint8
	// OuterAnonymous and OuterValid are that network's limits: 16 times the count and the burst of the class, held at
	// the bounds of a limit. Zero where OuterV6 is.
	OuterAnonymous, OuterValid limit.Limit
}

// ruleFixed is the fixed part of a rule section: {u8 headers, u8 prefix v4, u8 prefix v6, u8 algorithm, 2 limits}.
const ruleFixed = 4 + 2*limitSize

// Algorithms by their numbers in a rule section.
var edgeAlgorithms = [...]rule.Algorithm{rule.TokenBucket, rule.GCRA}

// encodeRule writes the fixed part, then {string name, u8 outer v6, 2 outer limits}.
func encodeRule(r *rule.Rule) ([]byte, error) {
	algorithm := -1
	for i, a := range edgeAlgorithms {
		if a == r.Algorithm {
			algorithm = i
		}
	}
	if r.Where != rule.Edge || algorithm < 0 || len(r.By) != 1 || len(r.By[0]) != 1 || r.By[0][0] != rule.Address {
		return nil, ErrNotEdge
	}
	if !rule.ValidName(r.Name) {
		return nil, ErrRule
	}
	limits := [2]limit.Limit{r.Limit, r.Limit}
	if r.Valid != nil {
		limits[1] = *r.Valid
	}
	b := []byte{byte(r.Headers), byte(r.PrefixV4), byte(r.PrefixV6), byte(algorithm)}
	for _, l := range limits {
		b = appendLimit(b, l)
	}
	b = appendString(b, r.Name)
	b = append(b, byte(r.OuterV6))
	for _, l := range limits {
		outer := limit.Limit{}
		if r.OuterV6 != 0 {
			outer = OuterLimit(l)
		}
		b = appendLimit(b, outer)
	}
	if _, err := decodeRule(b); err != nil {
		return nil, err
	}
	return b, nil
}

// OuterLimit is the limit of the network around an address whose limit is l.
func OuterLimit(l limit.Limit) limit.Limit {
	times := func(n int64) int64 {
		if n > limit.MaxCount/outerFactor {
			return limit.MaxCount
		}
		return n * outerFactor
	}
	l.Count, l.Burst = times(l.Count), times(l.Burst)
	return l
}

func decodeRule(b []byte) (EdgeRule, error) {
	if len(b) < ruleFixed || int(b[3]) >= len(edgeAlgorithms) {
		return EdgeRule{}, ErrRule
	}
	r := EdgeRule{Headers: rule.Headers(b[0]), PrefixV4: b[1], PrefixV6: b[2], Algorithm: edgeAlgorithms[b[3]]}
	name, rest, ok := cutString(b[ruleFixed:])
	if !ok || !rule.ValidName(name) || r.Headers > rule.None || r.PrefixV4 > 32 || r.PrefixV6 > 128 ||
		len(rest) < 1+2*limitSize { // what follows is a newer edge's
		return EdgeRule{}, ErrRule
	}
	r.Name = name
	r.Anonymous, r.Valid = readLimit(b[4:]), readLimit(b[4+limitSize:])
	r.OuterV6, r.OuterAnonymous, r.OuterValid = rest[0], readLimit(rest[1:]), readLimit(rest[1+limitSize:])
	if r.Anonymous.Check() != nil || r.Valid.Check() != nil || !r.validOuter() {
		return EdgeRule{}, ErrRule
	}
	return r, nil
}

func (r *EdgeRule) validOuter() bool {
	if r.OuterV6 == 0 {
		return r.OuterAnonymous == limit.Limit{} && r.OuterValid == limit.Limit{}
	}
	return r.OuterV6 < r.PrefixV6 && r.OuterAnonymous.Check() == nil && r.OuterValid.Check() == nil
}
