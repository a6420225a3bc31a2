package rule

import (
	"strconv"
	"strings"

	"github.com/weirproject/weir/shared/limit"
)

// tier is a tier as read.
type tier struct {
	name string
	allowance
}

func (c *compiler) readTiers(specs []TierSpec) {
	for _, spec := range specs {
		c.field = "tiers." + spec.Name.Text
		if !ValidName(spec.Name.Text) {
			c.fault(spec.Name.At, "", spec.Name.Text, "want a tier's name: 1 to 63 of a-z, 0-9, -")
			continue
		}
		a, ok := c.allowance(spec.At, spec.Limit, spec.Burst)
		if _, twice := c.set.tiers[spec.Name.Text]; twice {
			c.fault(spec.At, "", spec.Name.Text, "is given twice")
			continue
		}
		c.set.tiers[spec.Name.Text] = a
		if ok {
			c.tiers = append(c.tiers, tier{spec.Name.Text, a})
		}
	}
}

// allowance reads a limit with its burst, or the word for none.
func (c *compiler) allowance(at Source, rate, burst Scalar) (a allowance, ok bool) {
	if rate.Text == unlimited {
		if burst.Set {
			c.fault(burst.At, ".burst", burst.Text, "what is unlimited has no burst")
		}
		return allowance{unlimited: true}, !burst.Set
	}
	before := len(c.faults)
	a.limit = c.burst(".burst", burst, c.rate(at, ".limit", rate))
	return a, len(c.faults) == before
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
	if !s.Set {
		return l
	}
	n, tooLarge, ok := parseCount(s.Text)
	if !ok || tooLarge || n == 0 {
		c.fault(s.At, field, s.Text, limit.ErrBurst.Error())
		return l
	}
	if l.Window == 0 { // the rate is a fault of its own
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

// limits reads what the rule admits.
func (c *compiler) limits(spec *Spec, r *Rule) {
	c.offset(spec, r)
	if r.Tier && r.Where == Origin {
		c.tierLimits(spec, r)
		return
	}
	c.ownLimits(spec, r, present(spec.ValidAt) && r.Where == Edge)
}

func (c *compiler) offset(spec *Spec, r *Rule) {
	if r.Offset && r.Algorithm != FixedWindow {
		c.fault(spec.Offset.At, ".offset", spec.Offset.Text, "a "+r.Algorithm.String()+" has no windows to offset: want it under algorithm: fixed-window")
	}
}

// ownLimits reads the limits that the rule itself gives, with the one for known keys or without.
func (c *compiler) ownLimits(spec *Spec, r *Rule, withValid bool) {
	if spec.Limit.Text == unlimited {
		c.fault(spec.Limit.At, ".limit", spec.Limit.Text, "a rule that limits nobody is no rule: want unlimited only in a tier or an override")
		return
	}
	r.Limit = c.ownLimit(spec.At, "", spec.Limit, spec.Burst, r)
	if withValid {
		valid := c.ownLimit(spec.ValidAt, ".valid-key", spec.ValidLimit, spec.ValidBurst, r)
		r.Valid = &valid
	}
}

// ownLimit reads a limit of the rule and checks it against its algorithm.
func (c *compiler) ownLimit(at Source, section string, rate, burst Scalar, r *Rule) limit.Limit {
	before := len(c.faults)
	l := c.burst(section+".burst", burst, c.rate(at, section+".limit", rate))
	if len(c.faults) > before {
		return l
	}
	if field, reason := illegal(l, r); reason == "" {
		return l
	} else if field == ".burst" {
		c.fault(burst.At, section+field, burst.Text, reason)
	} else {
		c.fault(rate.At, section+field, rate.Text, reason)
	}
	return l
}

// illegal tells which field of a limit does not go with a rule's algorithm or cost, and why.
func illegal(l limit.Limit, r *Rule) (field, reason string) {
	switch {
	case l.Burst > 0 && !r.Algorithm.HasBurst():
		return ".burst", "a " + r.Algorithm.String() + " has no burst: want none, its limit is its burst"
	case r.Algorithm == SlidingLog && l.Count > limit.MaxLogCount:
		return ".limit", "a sliding-log keeps an entry for each call: want a count of at most " + strconv.Itoa(limit.MaxLogCount)
	case l.Count > 0 && r.Cost > quota(l, r.Algorithm):
		return ".limit", "can never admit a call of cost " + strconv.FormatInt(r.Cost, 10)
	}
	return "", ""
}

// quota is what may be spent at once.
func quota(l limit.Limit, a Algorithm) int64 {
	if a.HasBurst() {
		return l.Capacity()
	}
	return l.Count
}

// tierLimits checks that every tier goes with the rule, whose own limit becomes the strictest.
func (c *compiler) tierLimits(spec *Spec, r *Rule) {
	for _, f := range []struct {
		s     Scalar
		field string
	}{{spec.Limit, ".limit"}, {spec.Burst, ".burst"}} {
		if f.s.Set {
			c.fault(f.s.At, f.field, f.s.Text, "the tiers say it: want "+f.field[1:]+" or tier: true, not both")
		}
	}
	if len(r.By) == len(spec.By) && !r.names(Key) && !r.names(User) && !r.names(Tenant) {
		c.fault(spec.Tier.At, ".tier", spec.Tier.Text, "only keys, users and tenants have a tier: want one of them in by")
	}
	if len(c.set.tiers) == 0 {
		c.fault(spec.Tier.At, ".tier", spec.Tier.Text, "the file has no tiers")
	}
	strictest := -1
	for i, t := range c.tiers {
		if t.unlimited {
			continue
		}
		if field, reason := illegal(t.limit, r); reason != "" {
			c.fault(spec.Tier.At, ".tier", spec.Tier.Text, "tier "+t.name+field+": "+reason)
		}
		if strictest < 0 || stricter(t.limit, c.tiers[strictest].limit) {
			strictest = i
		}
	}
	if strictest >= 0 {
		r.Limit = c.tiers[strictest].limit
	} else if len(c.tiers) > 0 && len(c.tiers) == len(c.set.tiers) {
		c.fault(spec.Tier.At, ".tier", spec.Tier.Text, "every tier is unlimited: want at least one limit for callers without a tier")
	}
}

// stricter tells whether a admits less than b: by rate, then by what it admits at once.
func stricter(a, b limit.Limit) bool {
	if order := compareRates(a, b); order != 0 {
		return order < 0
	}
	return a.Capacity() < b.Capacity()
}

func (c *compiler) readOverrides(d Draft) {
	for i, spec := range d.Overrides {
		c.field = "overrides[" + strconv.Itoa(i) + "]"
		a, ok := c.allowance(spec.At, spec.Limit, spec.Burst)
		to, known := c.subject(spec)
		if !known {
			continue
		}
		r := &c.rules[to.rule]
		if ok && !a.unlimited {
			if field, reason := illegal(a.limit, r); field == ".burst" {
				c.fault(spec.Burst.At, field, spec.Burst.Text, reason)
			} else if reason != "" {
				c.fault(spec.Limit.At, field, spec.Limit.Text, reason)
			}
		}
		if _, twice := c.set.overrides[to]; twice {
			c.fault(spec.At, "", to.id, "is a second override of "+r.Name+" for the same caller")
		}
		c.set.overrides[to] = a
	}
}

// subject is whom an override is for.
func (c *compiler) subject(spec OverrideSpec) (to subject, ok bool) {
	before := len(c.faults)
	named, known := c.names[spec.Rule.Text]
	switch {
	case !spec.Rule.Set:
		c.fault(spec.At, ".rule", "", "is missing: want the name of a rule")
	case !known:
		c.fault(spec.Rule.At, ".rule", spec.Rule.Text, "is no rule of this file")
	}
	var of Scalar
	for _, f := range []struct {
		s     Scalar
		field string
		basis Basis
		parts []Part
	}{
		{spec.Key, ".key-id", OfKey, []Part{Key}},
		{spec.User, ".user", OfUser, []Part{User}},
		{spec.Tenant, ".tenant", OfTenant, []Part{Key, User, Tenant}},
	} {
		if !f.s.Set {
			continue
		}
		if of.Set {
			c.fault(f.s.At, f.field, f.s.Text, "want one of key-id, user, tenant, not two")
			continue
		}
		of = f.s
		to = subject{uint32(named), f.basis, f.s.Text}
		if f.s.Text == "" || len(f.s.Text) > maxSubject {
			c.fault(f.s.At, f.field, f.s.Text, "want 1 to "+strconv.Itoa(maxSubject)+" bytes")
		} else if f.basis == OfUser && !isUser(f.s.Text) {
			c.fault(f.s.At, f.field, f.s.Text, "want issuer|tenant|subject, the tenant may be empty: nobody is called otherwise")
		}
		if r := &c.rules[named]; known && r.Terms != nil && len(r.By) > 0 && !namesAny(r, f.parts) {
			c.fault(f.s.At, f.field, f.s.Text, "rule "+r.Name+" does not tell callers apart by it: its by is ["+byText(r)+"]")
		}
	}
	if !of.Set {
		c.fault(spec.At, "", "", "want one of key-id, user, tenant")
	}
	return to, len(c.faults) == before
}

// isUser tells whether text is what a verified user is called: a subject may hold a |, its issuer and tenant do not.
func isUser(text string) bool {
	issuer, rest, _ := strings.Cut(text, "|")
	_, subject, _ := strings.Cut(rest, "|")
	return issuer != "" && subject != ""
}

func namesAny(r *Rule, parts []Part) bool {
	for _, p := range parts {
		if r.names(p) {
			return true
		}
	}
	return false
}

func byText(r *Rule) string {
	text := ""
	for i, choice := range r.By {
		if i > 0 {
			text += ", "
		}
		text += choice.String()
	}
	return text
}
