package rule

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/shared/limit"
)

// Bounds of a rules file.
const (
	MaxRules     = 10_000
	MaxTiers     = 64
	MaxOverrides = 100_000

	maxName    = 63
	maxList    = 64      // values of one list
	maxSubject = 256     // bytes of a key's id, a user, a tenant
	maxShapes  = 128     // forms of patterns, each of which costs a request one lookup
	maxOnOne   = 64      // rules on one pattern, all of which a request meets
	maxPairs   = 100_000 // combinations of a host and a path, each of which is an entry of the index
)

// Prefix lengths of an address where a rule gives none: one IPv4 host, one IPv6 network as ISPs hand them out.
const (
	DefaultPrefixV4 = 32
	DefaultPrefixV6 = 64
	// DefaultOuterV6 is what an ISP hands out at most, so that who holds a /48 is no 65,536 clients.
	DefaultOuterV6 = 48
)

// Compile validates a whole draft at once, giving either a set or every fault found, in the order of the file.
func Compile(d Draft) (*Set, Faults) {
	if faults := tooMany(d); len(faults) > 0 {
		return nil, faults
	}
	c := compiler{
		names: map[string]int{},
		terms: map[string]*Terms{},
		rules: make([]Rule, len(d.Rules)),
		set: &Set{
			tiers:     map[string]allowance{},
			overrides: map[subject]allowance{},
		},
		patterns:  make([][]Pattern, len(d.Rules)),
		pairsLeft: maxPairs,
	}
	c.readTiers(d.Tiers)
	for i := range d.Rules {
		c.field = "rules[" + strconv.Itoa(i) + "]"
		c.rule(&d.Rules[i], i)
	}
	c.readOverrides(d)
	c.set.EdgeSettings = c.edgeSettings(&d.Edge)
	if len(c.faults) == 0 && !d.Partial {
		c.compare(d)
	}
	if len(c.faults) == 0 {
		c.set.keep(c.rules)
		c.index(d)
	}
	if len(c.faults) > 0 {
		slices.SortStableFunc(c.faults, func(a, b Fault) int {
			return cmp.Or(cmp.Compare(a.At.Line, b.At.Line), cmp.Compare(a.At.Column, b.At.Column))
		})
		return nil, c.faults
	}
	return c.set, nil
}

func tooMany(d Draft) (faults Faults) {
	most := func(n, bound int, what string, at func() Source) {
		if n > bound {
			faults = append(faults, Fault{At: at(), Field: what, Value: strconv.Itoa(n), Want: "want at most " + strconv.Itoa(bound) + " " + what})
		}
	}
	if len(d.Rules) == 0 {
		faults = append(faults, Fault{Field: "rules", Want: "want at least one rule: an empty rule set limits nothing"})
	}
	most(len(d.Rules), MaxRules, "rules", func() Source { return d.Rules[MaxRules].At })
	most(len(d.Tiers), MaxTiers, "tiers", func() Source { return d.Tiers[MaxTiers].At })
	most(len(d.Overrides), MaxOverrides, "overrides", func() Source { return d.Overrides[MaxOverrides].At })
	return faults
}

type compiler struct {
	set      *Set
	field    string // of the rule at hand
	faults   Faults
	names    map[string]int    // index of the rule that has the name
	terms    map[string]*Terms // equal terms are shared
	rules    []Rule
	patterns [][]Pattern // by rule
	// pairsLeft is how many of maxPairs the rules so far have left, below 0 when that was told.
	pairsLeft int
	tiers     []tier // in the order of the file
}

func (c *compiler) fault(at Source, field, value, want string) {
	c.faults = append(c.faults, Fault{At: at, Field: c.field + field, Value: value, Want: want})
}

// rule reads one rule into its place.
func (c *compiler) rule(spec *Spec, i int) {
	t := &Terms{
		Mode:    choose(c, spec.At, ".mode", spec.Mode, modes, &modes[0]),
		Headers: choose(c, spec.At, ".headers", spec.Headers, headerModes, &headerModes[0]),
		Exact:   choose(c, spec.At, ".exact", spec.Exact, truths, &truths[0]),
		Tier:    choose(c, spec.At, ".tier", spec.Tier, truths, &truths[0]),
		Offset:  choose(c, spec.At, ".offset", spec.Offset, truths, &truths[0]),
		Cost:    c.count(".cost", spec.Cost, 1, limit.MaxCount, 1),
		By:      c.by(spec),
		Methods: c.methods(spec),
	}
	t.HeaderNames = c.headerNames(spec)
	c.patterns[i] = c.pairs(spec)
	r := &c.rules[i]
	*r = Rule{Name: c.name(spec, i), Terms: t, Index: uint32(i), Line: uint32(max(0, spec.At.Line))}
	t.Where = choose(c, spec.At, ".where", spec.Where, wheres, nil)
	if _, known := lookup(wheres, spec.Where.Text); !known {
		c.eitherTier(spec, r)
		return
	}
	if t.Where == Edge {
		c.edge(spec, r)
	} else {
		c.origin(spec, r)
	}
	c.limits(spec, r)
	c.share(r)
}

// choose reads a word of a closed list; byDefault nil means that the field is required.
func choose[T any](c *compiler, at Source, field string, s Scalar, words []word[T], byDefault *word[T]) (value T) {
	if !s.Set {
		if byDefault == nil {
			c.fault(at, field, "", "is missing: want one of "+listed(words))
			return value
		}
		return byDefault.value
	}
	value, ok := lookup(words, s.Text)
	if !ok {
		c.fault(s.At, field, s.Text, "want one of "+listed(words))
	}
	return value
}

// count reads a whole number from low to high.
func (c *compiler) count(field string, s Scalar, low, high, byDefault int64) int64 {
	if !s.Set {
		return byDefault
	}
	n, tooLarge, ok := parseCount(s.Text)
	if !ok || tooLarge || n < low || n > high {
		c.fault(s.At, field, s.Text, "want a whole number, "+strconv.FormatInt(low, 10)+" to "+strconv.FormatInt(high, 10))
		return byDefault
	}
	return n
}

const wantName = "want 1 to 63 of a-z, 0-9, -"

func (c *compiler) name(spec *Spec, i int) string {
	s := spec.Name
	if !s.Set {
		c.fault(spec.At, ".name", "", "is missing: "+wantName)
		return ""
	}
	if !ValidName(s.Text) {
		c.fault(s.At, ".name", s.Text, wantName)
		return s.Text
	}
	if first, taken := c.names[s.Text]; taken {
		c.fault(s.At, ".name", s.Text, "is taken by rules["+strconv.Itoa(first)+"]: a name is the identity of its counters")
		return s.Text
	}
	c.names[s.Text] = i
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

func (c *compiler) by(spec *Spec) []Choice {
	if len(spec.By) == 0 {
		c.fault(spec.At, ".by", "", "is missing: want a list of "+listed(parts))
		return nil
	}
	var by []Choice
	var seen Parts
	for i, s := range spec.By {
		field := ".by[" + strconv.Itoa(i) + "]"
		var choice Choice
		for text := range strings.SplitSeq(s.Text, "|") {
			p, ok := lookup(parts, text)
			alternative := strings.Contains(s.Text, "|")
			switch {
			case !ok:
				c.fault(s.At, field, s.Text, "want one of "+listed(parts)+", or several with | between, of which the first present is taken")
			case seen&(1<<p) != 0:
				c.fault(s.At, field, s.Text, "names "+p.String()+" a second time")
			case alternative && p == Endpoint:
				c.fault(s.At, field, s.Text, "endpoint is in every request: want it alone, as [key, endpoint]")
			case len(choice) > 0 && choice[len(choice)-1] == Global:
				c.fault(s.At, field, s.Text, "global is in every request: nothing after it is ever taken")
			case p == Global && !alternative && len(spec.By) > 1:
				c.fault(s.At, field, s.Text, "limits everybody together and stands alone")
			default:
				seen |= 1 << p
				choice = append(choice, p)
				continue
			}
			choice = nil
			break
		}
		if choice != nil {
			by = append(by, choice)
		}
	}
	return by
}

// edge checks what only an edge rule may say, and what it may not.
func (c *compiler) edge(spec *Spec, r *Rule) {
	r.Algorithm = choose(c, spec.At, ".algorithm", spec.Algorithm, edgeAlgorithms, &edgeAlgorithms[0])
	if len(r.By) == len(spec.By) && len(r.By) > 0 && (len(r.By) != 1 || len(r.By[0]) != 1 || r.By[0][0] != Address) {
		c.fault(spec.By[0].At, ".by", spec.By[0].Text, "an edge rule limits by [address]: other principals are the origin's")
	}
	if spec.OnStoreFailure.Set {
		c.fault(spec.OnStoreFailure.At, ".on-store-failure", spec.OnStoreFailure.Text, "the edge asks no store: want no on-store-failure")
	}
	if r.Exact {
		c.fault(spec.Exact.At, ".exact", spec.Exact.Text, "the edge spends leases: an exact rule is the origin's")
	}
	if r.Tier {
		c.fault(spec.Tier.At, ".tier", spec.Tier.Text, "the edge knows no tiers: want a limit")
	}
	if present(spec.PenaltyAt) {
		c.fault(spec.PenaltyAt, ".penalty", "", "is for origin rules: want it under where: origin")
	}
	c.prefixes(spec, r)
}

func (c *compiler) prefixes(spec *Spec, r *Rule) {
	r.PrefixV4 = c.prefix(".address-prefix.v4", spec.PrefixV4, DefaultPrefixV4, 8, 32)
	r.PrefixV6 = c.prefix(".address-prefix.v6", spec.PrefixV6, DefaultPrefixV6, 16, 128)
	outer := 0
	if r.PrefixV6 > DefaultOuterV6 {
		outer = DefaultOuterV6
	}
	if r.OuterV6 = c.prefix(".address-prefix.v6-outer", spec.OuterV6, outer, 8, 127); spec.OuterV6.Set && r.OuterV6 >= r.PrefixV6 {
		c.fault(spec.OuterV6.At, ".address-prefix.v6-outer", spec.OuterV6.Text, "want fewer bits than v6, which has "+strconv.Itoa(r.PrefixV6))
	}
}

// eitherTier checks a rule that does not say where it applies: what would be wrong in both tiers.
func (c *compiler) eitherTier(spec *Spec, r *Rule) {
	// The default depends on the tier; a token bucket refuses no limit that another algorithm takes.
	r.Algorithm = choose(c, spec.At, ".algorithm", spec.Algorithm, algorithms, &word[Algorithm]{"", TokenBucket})
	choose(c, spec.At, ".on-store-failure", spec.OnStoreFailure, failureModes, &failureModes[0])
	c.prefixes(spec, r)
	if present(spec.PenaltyAt) {
		c.penalty(spec)
	}
	if _, known := lookup(algorithms, spec.Algorithm.Text); known {
		c.offset(spec, r)
	}
	if !r.Tier {
		c.ownLimits(spec, r, present(spec.ValidAt))
	}
}

// origin checks what only an origin rule may say, and what it may not.
func (c *compiler) origin(spec *Spec, r *Rule) {
	r.Algorithm = choose(c, spec.At, ".algorithm", spec.Algorithm, algorithms, &word[Algorithm]{"", SlidingWindow})
	byDefault := &failureModes[0]
	if r.Exact {
		byDefault = &word[FailureMode]{"closed", Closed}
	}
	r.OnStoreFailure = choose(c, spec.At, ".on-store-failure", spec.OnStoreFailure, failureModes, byDefault)
	if r.Exact && r.OnStoreFailure != Closed {
		c.fault(spec.OnStoreFailure.At, ".on-store-failure", spec.OnStoreFailure.Text, "an exact rule has no other fallback than closed")
	}
	for _, section := range []struct {
		at    Source
		field string
	}{{spec.PrefixAt, ".address-prefix"}, {spec.ValidAt, ".valid-key"}} {
		if present(section.at) {
			c.fault(section.at, section.field, "", "is for edge rules: want it under where: edge")
		}
	}
	if r.names(Endpoint) && len(spec.Paths) == 0 {
		c.fault(spec.At, ".by", "endpoint", "needs match.paths: an endpoint is a method with the path pattern it matched")
	}
	if present(spec.PenaltyAt) {
		r.Penalty = c.penalty(spec)
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

func (c *compiler) penalty(spec *Spec) Penalty {
	duration := func(field string, s Scalar) limit.Micros {
		const want = "want 1s to 24h, as 10m"
		if !s.Set {
			c.fault(spec.PenaltyAt, field, "", "is missing: "+want)
			return 0
		}
		d, ok := parseDuration(s.Text)
		if !ok || d < limit.Second || d > limit.Day {
			c.fault(s.At, field, s.Text, want)
		}
		return d
	}
	if !spec.PenaltyAfter.Set {
		c.fault(spec.PenaltyAt, ".penalty.after", "", "is missing: want the refusals before the first longer one")
	}
	return Penalty{
		After:   c.count(".penalty.after", spec.PenaltyAfter, 1, 1_000_000, 0),
		Ceiling: duration(".penalty.ceiling", spec.PenaltyCeiling),
		Decay:   duration(".penalty.decay", spec.PenaltyDecay),
	}
}

// share lets rules that say the same have the same terms in memory.
func (c *compiler) share(r *Rule) {
	t := r.Terms
	var b strings.Builder
	number := func(n int64) { b.WriteString(strconv.FormatInt(n, 36) + " ") }
	truth := func(v bool) { b.WriteString(strconv.FormatBool(v) + " ") }
	for _, n := range []int64{int64(t.Where), int64(t.Algorithm), int64(t.Mode), int64(t.OnStoreFailure), int64(t.Headers), int64(t.PrefixV4),
		int64(t.PrefixV6), int64(t.OuterV6), t.Cost, t.Penalty.After, int64(t.Penalty.Ceiling), int64(t.Penalty.Decay)} {
		number(n)
	}
	truth(t.Tier)
	truth(t.Exact)
	truth(t.Offset)
	for _, choice := range t.By {
		b.WriteString(choice.String() + " ")
	}
	b.WriteString("/" + strings.Join(t.Methods, " ") + "/" + strings.Join(t.HeaderNames, " "))
	if known, ok := c.terms[b.String()]; ok {
		r.Terms = known
	} else {
		c.terms[b.String()] = t
	}
}

// index makes the set findable.
func (c *compiler) index(d Draft) {
	if !c.set.build(c.patterns) {
		c.faults = append(c.faults, Fault{At: d.Rules[0].At, Field: "rules", Want: "two patterns cannot be told apart by their hash: change one of them"})
		return
	}
	if len(c.set.shapes) > maxShapes {
		c.faults = append(c.faults, Fault{At: d.Rules[0].At, Field: "rules", Value: strconv.Itoa(len(c.set.shapes)),
			Want: "patterns have too many forms (segments, places of *, labels of hosts): want at most " + strconv.Itoa(maxShapes)})
	}
	run := 0
	for _, e := range c.set.entries {
		if run++; run == maxOnOne+1 {
			at := d.Rules[e.rule]
			c.faults = append(c.faults, Fault{At: at.At, Field: "rules[" + strconv.Itoa(int(e.rule)) + "].match.paths", Value: c.set.pattern(e),
				Want: "is the pattern of more than " + strconv.Itoa(maxOnOne) + " rules, all of which a request would meet"})
		}
		if e.size&lastOfKey != 0 {
			run = 0
		}
	}
}
