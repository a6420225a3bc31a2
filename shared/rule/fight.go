package rule

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/shared/limit"
)

// compare refuses an enforced rule that limits the same principals on the same requests as another, unless each of
// the two can decide something: 10/1s beside 1000/1h is a burst limit beside a quota, 10/1s beside 20/1s leaves open
// which one was meant.
func (c *compiler) compare(d Draft) {
	scopes := map[string][]*Rule{}
	for i := range c.rules {
		r := &c.rules[i]
		if r.Mode == Shadow { // it stands beside an enforced one on purpose
			continue
		}
		key := c.scope(r)
		for _, other := range scopes[key] {
			if reason := fight(other, r); reason != "" {
				c.field = "rules[" + strconv.Itoa(i) + "]"
				c.fault(cmp.Or(d.Rules[i].Name.At, d.Rules[i].At), ".name", r.Name, "limits the same callers on the same requests as "+other.Name+", "+reason+": "+wayOut)
				break
			}
		}
		scopes[key] = append(scopes[key], r)
	}
}

// wayOut is how two rules may stand beside each other.
const wayOut = "want another match or by, one rule in place of both, or limits of which each is stricter somewhere, as 10/1s beside 1000/1h"

// scope is what a rule applies to and whom it limits, as one text.
func (c *compiler) scope(r *Rule) string {
	var who, pairs []string
	for _, choice := range r.By {
		who = append(who, choice.String())
	}
	for _, p := range c.patterns[r.Index] {
		path := p.Path
		if path == anyPath {
			path = "/**" // which means the same
		}
		pairs = append(pairs, p.Host+path)
	}
	methods, headers := slices.Clone(r.Methods), slices.Clone(r.HeaderNames)
	for _, list := range [][]string{who, pairs, methods, headers} {
		slices.Sort(list)
	}
	return strings.Join([]string{r.Where.String(), strings.Join(who, "+"), strings.Join(methods, ","), strings.Join(headers, ","), strings.Join(pairs, " ")}, "\n")
}

// fight tells why one of two rules of one scope has nothing to decide, "" if both have.
func fight(a, b *Rule) string {
	if a.Tier || b.Tier {
		if a.Tier && b.Tier {
			return "by the same tiers"
		}
		return ""
	}
	if a.Algorithm.HasBurst() != b.Algorithm.HasBurst() {
		return "" // a bucket bounds the rate between bursts, a window what passes in it
	}
	// Both decide only if one has the lower rate, the other admits fewer at once.
	rates, quotas := compareRates(a.Limit, b.Limit), cmp.Compare(quota(a.Limit, a.Algorithm), quota(b.Limit, b.Algorithm))
	switch {
	case rates == 0 && quotas == 0:
		return "to the same limit"
	case rates <= 0 && quotas <= 0:
		return "which is never less strict, so that this one never decides"
	case rates >= 0 && quotas >= 0:
		return "which then never decides"
	}
	return ""
}

// compareRates compares count per window: negative if a is lower.
func compareRates(a, b limit.Limit) int {
	xh, xl := bits.Mul64(uint64(a.Count), uint64(b.Window))
	yh, yl := bits.Mul64(uint64(b.Count), uint64(a.Window))
	switch {
	case xh < yh || xh == yh && xl < yl:
		return -1
	case xh == yh && xl == yl:
		return 0
	}
	return 1
}
