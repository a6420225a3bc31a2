package campaign

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// client is who calls. A part that it has none of is empty.
type client struct {
	key, tenant, tier, address string
	user                       string // issuer|tenant|subject
}

// callers are all who call, by name: two users of one subject are of two issuers, and two are of the same texts in a row. The
// user of b1 has a tier where its key has none, so that k1 and b1 share counters by limits of their own.
var callers = map[string]client{
	"k1": {key: "k1", tenant: "t", address: "192.0.2.1"},
	"k2": {key: "k2", tenant: "t", tier: "paid", address: "192.0.2.1"},
	"k3": {key: "k3", tenant: "u", address: "192.0.2.2"},
	"a1": {address: "192.0.2.1"},
	"a2": {address: "192.0.2.2"},
	"u1": {user: "https://a|t|s", tenant: "t", address: "192.0.2.1"},
	"u2": {user: "https://b|t|s", tenant: "t", tier: "paid", address: "192.0.2.2"},
	"u3": {user: "https://a||ts", address: "192.0.2.1"},
	"b1": {key: "k1", user: "https://a|v|s", tenant: "t", tier: "paid", address: "192.0.2.2"},
}

// caller is the identity of a client. A tenant is the key's, or else the user's; a tier is the user's where there is one.
func (c client) caller() identity.Caller {
	who := identity.Caller{Address: netip.MustParseAddr(c.address)}
	if c.key != "" {
		who.Key = &keys.Key{ID: c.key, Tenant: c.tenant}
	}
	if c.user != "" {
		parts := strings.Split(c.user, "|")
		who.User = &identity.User{Issuer: parts[0], Tenant: parts[1], Subject: parts[2]}
		who.User.Tier = c.tier
	} else if c.key != "" {
		who.Key.Tier = c.tier
	}
	return who
}

// part is what a client has of a part of principals, by its name in a rule.
func (c client) part(name string, r ruleSpec, path string) string {
	switch name {
	case "endpoint":
		return endpoint(r, path)
	case "global":
		return "all"
	}
	return map[string]string{"key": c.key, "user": c.user, "tenant": c.tenant, "address": c.address}[name]
}

// principal is whom a rule counts a call of c for, "" if it does not apply.
func (c client) principal(r ruleSpec, path string) (all string) {
choices:
	for choice := range strings.SplitSeq(r.by, "+") {
		for name := range strings.SplitSeq(choice, "|") {
			if value := c.part(name, r, path); value != "" {
				all += " " + name + "=" + value
				continue choices
			}
		}
		return ""
	}
	return all
}

// asked are the enforced rules that a call meets, by the text of the rules alone.
func asked(rules []ruleSpec, s step) (all []modelled) {
	c := callers[s.who]
	for _, r := range rules {
		principal := c.principal(r, s.path)
		if r.mode == "shadow" || r.path == "/a" && s.path != "/a" || principal == "" {
			continue
		}
		m := modelled{spec: r, limit: limit.Limit{Count: r.count, Window: r.window, Burst: r.burst}, cost: cmp.Or(s.cost, r.cost)}
		m.algorithm, _ = rule.ParseAlgorithm(r.algorithm)
		if r.tier {
			if m.limit.Count = freeCount; c.tier == "paid" {
				m.limit.Count = paidCount
			}
		}
		if r.override > 0 && (r.by == "key" && c.key == "k1" || r.by == "user" && c.user == callers["u1"].user) {
			m.limit = limit.Limit{Count: r.override, Window: r.window}
		}
		m.key = fmt.Sprintf("%s %s %d%s", r.name, r.algorithm, r.window, principal)
		all = append(all, m)
	}
	return all
}

// asked are the enforced rules that a call meets at a process, with where their windows begin.
func (p *player) asked(proc *process, s step) []modelled {
	all := asked(p.h.releases[proc.release], s)
	for i := range all {
		if m := &all[i]; m.spec.offset {
			m.offset = p.offset(proc, s, *m)
		}
	}
	return all
}

// offset is where the windows of a counter begin. That is the limiter's to choose, once for all processes and releases: it is
// what the first one says.
func (p *player) offset(proc *process, s step, m modelled) limit.Micros {
	at, known := p.offsets[m.key]
	if known {
		return at
	}
	c, _ := proc.charge(s, m.spec.name)
	at = c.Offset
	p.offsets[m.key] = at
	if at > 0 {
		p.count.offsets++
	}
	return at
}

// endpoint is the pattern that a path meets: / and /a are both met by the widest, but for /, which has its own.
func endpoint(r ruleSpec, path string) string {
	if r.path == "/a" || path == "/" {
		return path
	}
	return r.path
}
