package rule

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/shared/limit"
)

// Bounds of a rule set.
const (
	MaxRules   = 10_000
	maxName    = 63
	maxList    = 64   // paths or methods of one rule
	maxPathLen = 1024 // bytes of one pattern
)

// Prefix lengths of an address where a rule gives none: one IPv4 host, one IPv6 network as ISPs hand them out.
const (
	DefaultPrefixV4 = 32
	DefaultPrefixV6 = 64
)

// Compile validates all rules at once, giving either a set or every fault found, in the order of the file.
func Compile(specs []Spec) (*Set, Faults) {
	c := compiler{names: map[string]Source{}, scopes: map[string]Spec{}}
	if len(specs) == 0 {
		return nil, Faults{{Field: "rules", Want: "want at least one rule: an empty rule set limits nothing"}}
	}
	if len(specs) > MaxRules {
		return nil, Faults{{At: specs[MaxRules].At, Field: "rules", Value: strconv.Itoa(len(specs)), Want: "want at most " + strconv.Itoa(MaxRules) + " rules"}}
	}
	set := &Set{Rules: make([]*Rule, len(specs))}
	for i, spec := range specs {
		c.field = "rules[" + strconv.Itoa(i) + "]"
		set.Rules[i] = c.compile(spec)
	}
	if len(c.faults) > 0 {
		slices.SortStableFunc(c.faults, func(a, b Fault) int {
			return cmp.Or(cmp.Compare(a.At.Line, b.At.Line), cmp.Compare(a.At.Column, b.At.Column))
		})
		return nil, c.faults
	}
	set.index()
	return set, nil
}

type compiler struct {
	field  string // of the rule at hand
	faults Faults
	names  map[string]Source
	scopes map[string]Spec // by what a rule applies to and whom it limits
}

func (c *compiler) fault(at Source, field, value, want string) {
	c.faults = append(c.faults, Fault{At: at, Field: c.field + field, Value: value, Want: want})
}

func (c *compiler) compile(spec Spec) *Rule {
	where, known := choose(c, spec.At, ".where", spec.Where, wheres, nil)
	onStoreFailure, _ := choose(c, spec.At, ".on-store-failure", spec.OnStoreFailure, failureModes, &failureModes[0])
	headers, _ := choose(c, spec.At, ".headers", spec.Headers, headerModes, &headerModes[0])
	r := &Rule{
		Name:           c.name(spec),
		Where:          where,
		OnStoreFailure: onStoreFailure,
		Headers:        headers,
		Limit:          c.rate(spec.At, ".limit", spec.Limit),
		By:             c.by(spec),
	}
	if !known { // what else it may say depends on the tier
		return r
	}
	if where == Edge {
		c.edge(spec, r)
	} else {
		c.origin(spec, r)
	}
	c.scope(spec, r)
	return r
}

// choose reads a word of a closed list; byDefault nil means that the field is required.
func choose[T any](c *compiler, at Source, field string, s Scalar, words []word[T], byDefault *word[T]) (value T, ok bool) {
	if !s.Set {
		if byDefault == nil {
			c.fault(at, field, "", "is missing: want one of "+listed(words))
			return value, false
		}
		return byDefault.value, true
	}
	if value, ok = lookup(words, s.Text); !ok {
		c.fault(s.At, field, s.Text, "want one of "+listed(words))
	}
	return value, ok
}

func (c *compiler) name(spec Spec) string {
	s := spec.Name
	if !s.Set {
		c.fault(spec.At, ".name", "", "is missing: want 1 to 63 of a-z, 0-9, -")
		return ""
	}
	if !ValidName(s.Text) {
		c.fault(s.At, ".name", s.Text, "want 1 to 63 of a-z, 0-9, -")
		return s.Text
	}
	if first, taken := c.names[s.Text]; taken {
		c.fault(s.At, ".name", s.Text, "is taken by the rule at "+first.String()+": a name is the identity of its counters")
		return s.Text
	}
	c.names[s.Text] = s.At
	return s.Text
}

// ValidName tells whether name can be a rule's: 1 to 63 of a-z, 0-9, -.
func ValidName(name string) bool {
	valid := name != "" && len(name) <= maxName
	for i := range len(name) {
		ch := name[i]
		valid = valid && (ch >= 'a' && ch <= 'z' || ch >= '0' && ch <= '9' || ch == '-')
	}
	return valid
}

func (c *compiler) rate(at Source, field string, s Scalar) limit.Limit {
	if !s.Set {
		c.fault(at, field, "", "is missing: "+rateForm)
		return limit.Limit{}
	}
	l, reason := ParseRate(s.Text)
	if reason != "" {
		c.fault(s.At, field, s.Text, reason)
	}
	return l
}

func (c *compiler) burst(field string, s Scalar, l limit.Limit) limit.Limit {
	if !s.Set || l.Window == 0 {
		return l
	}
	n, tooLarge, ok := parseCount(s.Text)
	if !ok || tooLarge || n == 0 {
		c.fault(s.At, field, s.Text, limit.ErrBurst.Error())
		return l
	}
	withBurst := l
	withBurst.Burst = n
	if err := withBurst.Check(); err != nil {
		c.fault(s.At, field, s.Text, err.Error())
		return l
	}
	return withBurst
}

func (c *compiler) by(spec Spec) []Part {
	if len(spec.By) == 0 {
		c.fault(spec.At, ".by", "", "is missing: want a list of "+listed(parts))
		return nil
	}
	var by []Part
	for i, s := range spec.By {
		field := ".by[" + strconv.Itoa(i) + "]"
		p, ok := lookup(parts, s.Text)
		switch {
		case s.Text == "user":
			c.fault(s.At, field, s.Text, "needs verified users, which this version does not have: want one of "+listed(parts))
		case strings.Contains(s.Text, "|"):
			c.fault(s.At, field, s.Text, "first-present lists are not in this version: want one of "+listed(parts))
		case !ok:
			c.fault(s.At, field, s.Text, "want one of "+listed(parts))
		case slices.Contains(by, p):
			c.fault(s.At, field, s.Text, "stands twice in the list")
		case p == Global && len(spec.By) > 1:
			c.fault(s.At, field, s.Text, "limits everybody together and stands alone")
		default:
			by = append(by, p)
		}
	}
	return by
}

// edge checks what only an edge rule may say, and what it may not.
func (c *compiler) edge(spec Spec, r *Rule) {
	c.algorithm(spec, r, "edge", TokenBucket)
	if len(spec.By) > 0 && (len(r.By) != 1 || r.By[0] != Address) {
		c.fault(spec.By[0].At, ".by", spec.By[0].Text, "an edge rule limits by [address]: other principals are the origin's")
	}
	if present(spec.MatchAt) {
		c.fault(spec.MatchAt, ".match", "", "an edge rule applies to every request in this version: want no match")
	}
	if spec.OnStoreFailure.Set {
		c.fault(spec.OnStoreFailure.At, ".on-store-failure", spec.OnStoreFailure.Text, "the edge asks no store: want no on-store-failure")
	}
	r.Limit = c.burst(".burst", spec.Burst, r.Limit)
	r.PrefixV4 = c.prefix(".address-prefix.v4", spec.PrefixV4, DefaultPrefixV4, 8, 32)
	r.PrefixV6 = c.prefix(".address-prefix.v6", spec.PrefixV6, DefaultPrefixV6, 16, 128)
	if present(spec.ValidAt) {
		valid := c.burst(".valid-key.burst", spec.ValidBurst, c.rate(spec.ValidAt, ".valid-key.limit", spec.ValidLimit))
		r.Valid = &valid
	}
}

// origin checks what only an origin rule may say, and what it may not.
func (c *compiler) origin(spec Spec, r *Rule) {
	c.algorithm(spec, r, "origin", SlidingWindow)
	if spec.Burst.Set {
		c.fault(spec.Burst.At, ".burst", spec.Burst.Text, "a sliding-window has no burst: want none, its limit is its burst")
	}
	for _, section := range []struct {
		at    Source
		field string
	}{{spec.PrefixAt, ".address-prefix"}, {spec.ValidAt, ".valid-key"}} {
		if present(section.at) {
			c.fault(section.at, section.field, "", "is for edge rules: want it under where: edge")
		}
	}
	r.paths = c.paths(spec)
	r.methods = c.methods(spec)
	if slices.Contains(r.By, Endpoint) && len(r.paths) == 0 && len(spec.Paths) == 0 {
		c.fault(spec.At, ".by", "endpoint", "needs match.paths: an endpoint is a method with the path pattern it matched")
	}
}

// algorithm reads the rule's algorithm, of which each tier has one in this version.
func (c *compiler) algorithm(spec Spec, r *Rule, tier string, only Algorithm) {
	r.Algorithm = only
	if spec.Algorithm.Set && spec.Algorithm.Text != only.String() {
		c.fault(spec.Algorithm.At, ".algorithm", spec.Algorithm.Text, "an "+tier+" rule of this version is a "+only.String())
	}
}

func (c *compiler) prefix(field string, s Scalar, byDefault, low, high int) int {
	if !s.Set {
		return byDefault
	}
	n, tooLarge, ok := parseCount(s.Text)
	if !ok || tooLarge || n < int64(low) || n > int64(high) {
		c.fault(s.At, field, s.Text, "want "+strconv.Itoa(low)+" to "+strconv.Itoa(high)+" bits")
		return byDefault
	}
	return int(n)
}

func (c *compiler) paths(spec Spec) []pattern {
	if len(spec.Paths) > maxList {
		c.fault(spec.Paths[maxList].At, ".match.paths", "", "want at most "+strconv.Itoa(maxList)+" paths")
		return nil
	}
	var patterns []pattern
	for i, s := range spec.Paths {
		field := ".match.paths[" + strconv.Itoa(i) + "]"
		if len(s.Text) > maxPathLen {
			c.fault(s.At, field, s.Text, "want at most "+strconv.Itoa(maxPathLen)+" bytes")
			continue
		}
		p, reason := parsePattern(s.Text)
		if reason == "" && slices.ContainsFunc(patterns, func(q pattern) bool { return q.text == p.text }) {
			reason = "stands twice in the list"
		}
		if reason != "" {
			c.fault(s.At, field, s.Text, reason)
			continue
		}
		patterns = append(patterns, p)
	}
	return patterns
}

func (c *compiler) methods(spec Spec) []string {
	if len(spec.Methods) > maxList {
		c.fault(spec.Methods[maxList].At, ".match.methods", "", "want at most "+strconv.Itoa(maxList)+" methods")
		return nil
	}
	var methods []string
	for i, s := range spec.Methods {
		field := ".match.methods[" + strconv.Itoa(i) + "]"
		valid := s.Text != "" && len(s.Text) <= 32
		for j := range len(s.Text) {
			valid = valid && (s.Text[j] >= 'A' && s.Text[j] <= 'Z' || s.Text[j] == '-')
		}
		switch {
		case !valid:
			c.fault(s.At, field, s.Text, "want an HTTP method in capitals, as GET")
		case slices.Contains(methods, s.Text):
			c.fault(s.At, field, s.Text, "stands twice in the list")
		default:
			methods = append(methods, s.Text)
		}
	}
	return methods
}

// scope refuses a second rule that limits the same principals on the same requests: which of the two was meant
// cannot be known.
func (c *compiler) scope(spec Spec, r *Rule) {
	if r.Where == Edge {
		c.claim("edge", spec, "an edge has one rule in this version: the other is "+c.scopes["edge"].Name.Text)
		return
	}
	var who []string
	for _, p := range r.By {
		who = append(who, p.String())
	}
	slices.Sort(who)
	paths, methods := []string{anyPath}, []string{anyPath}
	if len(r.paths) > 0 {
		paths = paths[:0]
		for _, p := range r.paths {
			paths = append(paths, p.text)
		}
	}
	if len(r.methods) > 0 {
		methods = slices.Clone(r.methods)
	}
	slices.Sort(paths)
	slices.Sort(methods)
	key := strings.Join(who, "+") + " " + strings.Join(methods, ",") + " " + strings.Join(paths, " ")
	c.claim(key, spec, "limits the same callers on the same requests as "+c.scopes[key].Name.Text)
}

func (c *compiler) claim(key string, spec Spec, reason string) {
	if _, taken := c.scopes[key]; taken {
		c.fault(spec.Name.At, ".name", spec.Name.Text, reason)
		return
	}
	c.scopes[key] = spec
}
