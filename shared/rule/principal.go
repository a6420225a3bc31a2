package rule

import (
	"strings"

	"github.com/weirproject/weir/shared/limit"
)

// Choice is a list of parts of which the first that a request has is taken: `key|user|address`.
type Choice []Part

// String is the spelling in a rules file.
func (c Choice) String() string {
	text := ""
	for i, p := range c {
		if i > 0 {
			text += "|"
		}
		text += p.String()
	}
	return text
}

// Parts is a set of parts: those that a request has. Endpoint and Global are in every request and need no mention.
type Parts uint8

// With is p and part.
func (p Parts) With(part Part) Parts { return p | 1<<part }

// Has tells whether part is in p.
func (p Parts) Has(part Part) bool {
	return part == Endpoint || part == Global || p&(1<<part) != 0
}

// Principal appends the parts that name who is limited by the rule in a request that has those present, one for each
// choice. A choice of which the request has no part is missing: then the rule does not apply.
func (t *Terms) Principal(present Parts, dst []Part) (chosen []Part, missing Choice) {
next:
	for _, choice := range t.By {
		for _, part := range choice {
			if present.Has(part) {
				dst = append(dst, part)
				continue next
			}
		}
		return dst, choice
	}
	return dst, nil
}

// names tells whether part stands in any choice of the rule.
func (t *Terms) names(part Part) bool {
	for _, choice := range t.By {
		for _, p := range choice {
			if p == part {
				return true
			}
		}
	}
	return false
}

// EndpointMethod is the method as it names an endpoint, in capitals, `*` for one that HTTP does not define. A method is the
// client's to choose: made-up ones share a counter, or each would open a new one.
func EndpointMethod(m string) string {
	for _, known := range [...]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"} {
		if strings.EqualFold(m, known) {
			return known
		}
	}
	return "*"
}

// Caller is who calls, as far as limits depend on it. A part that is unknown is empty.
type Caller struct {
	Key    string // the API key's id
	User   string
	Tenant string
	Tier   string
}

// Basis is what a limit was taken from.
type Basis uint8

// The bases, from the one that is asked last to the one that is asked first.
const (
	OfRule      Basis = iota
	OfStrictest       // the rule's limit is the tier's, which the caller has none of: the strictest tier's
	OfTier            // the caller's tier
	OfTenant          // an override for the tenant
	OfUser            // an override for the user
	OfKey             // an override for the key
)

// Grant is the limit of one caller under one rule.
type Grant struct {
	Limit     limit.Limit // zero if Unlimited
	Unlimited bool
	Basis     Basis
}

// Grant is the limit that applies to who under r, whose principal is chosen. An override for the key comes before one
// for the user, then one for the tenant, then the tier, then the rule's own limit. A caller without a tier, or with one
// that the rules do not know, gets the strictest. An override applies only where the principal tells its subject apart:
// two callers of one counter never have different limits because of it.
func (s *Set) Grant(r *Rule, chosen []Part, who Caller) Grant {
	var has Parts
	for _, p := range chosen {
		has |= 1 << p
	}
	key, user, tenant := has&(1<<Key) != 0, has&(1<<User) != 0, has&(1<<Tenant) != 0
	if len(s.overrides) > 0 {
		for _, o := range [...]struct {
			applies bool
			basis   Basis
			id      string
		}{{key, OfKey, who.Key}, {user, OfUser, who.User}, {key || user || tenant, OfTenant, who.Tenant}} {
			if !o.applies || o.id == "" {
				continue
			}
			if a, ok := s.overrides[subject{r.Index, o.basis, o.id}]; ok {
				return Grant{a.limit, a.unlimited, o.basis}
			}
		}
	}
	if !r.Tier {
		return Grant{Limit: r.Limit}
	}
	if key || user || tenant {
		if a, ok := s.tiers[who.Tier]; ok {
			return Grant{a.limit, a.unlimited, OfTier}
		}
	}
	return Grant{Limit: r.Limit, Basis: OfStrictest}
}

// HasTier tells whether the rules know a tier by that name.
func (s *Set) HasTier(name string) bool {
	_, ok := s.tiers[name]
	return ok
}

// subject is whom an override is for, under which rule.
type subject struct {
	rule  uint32
	basis Basis
	id    string
}

// allowance is a limit or none.
type allowance struct {
	limit     limit.Limit
	unlimited bool
}
