package limiter

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

const (
	// MaxHeld is how many counters [Limiter.Holding] looks at: a caller of some hundred rules by endpoint has that many,
	// and at the store it is some hundred requests.
	MaxHeld = 10_000
	// heldAtOnce is how many are asked for in one request: a store is not to be busy with it for longer than with a few calls.
	heldAtOnce = 64
)

// Held is one counter of a caller, with what it would answer a call of the rule's cost.
type Held struct {
	Rule      rule.Rule
	Principal string // who the counter is for, as `key=acme-prod endpoint`
	// Pattern and Method are what of requests the counter is for, of a rule by endpoint; else empty. Method is `*` for all that
	// HTTP does not define.
	Pattern, Method string
	Counter         Counter
	Limit           limit.Limit    // the caller's
	Basis           rule.Basis     // what Limit was taken from
	Decision        limit.Decision // of a refused call of a cost above 1, RetryAfter is after how long it passes at the latest
	Status          Status
	Penalised       bool         // a penalty keeps up a refusal, on this process
	PenaltyLeft     limit.Micros // for how long
	DenyCached      bool         // a refusal is remembered, on this process
	Err             error        // the store could not be asked: Decision and Status mean nothing

	former Counter
}

// Holding are the counters of a caller under all rules, or those that a request q meets if it is not zero, as they stand,
// in the order of the rule set.
// Nothing is charged or made. More than [MaxHeld] are an error. Rules that do not limit the caller have none.
func (l *Limiter) Holding(ctx context.Context, who identity.Caller, q rule.Request) ([]Held, error) {
	f := l.finder(who)
	p := f.plan
	if q.Method != "" || q.Path != "" {
		matched := p.release.Set.Match(rule.Origin, q, nil)
		slices.SortFunc(matched, func(a, b rule.Matched) int { return int(a.Rule.Index) - int(b.Rule.Index) })
		for _, m := range matched {
			f.add(&m.Rule, []string{m.Pattern}, []string{rule.EndpointMethod(q.Method)})
		}
	} else {
		for r := range p.release.Set.Rules() {
			if r.Where == rule.Origin {
				f.add(&r, nil, nil)
			}
		}
	}
	if f.tooMany {
		return nil, fmt.Errorf("the caller has more than %d counters: want a method and a path, which narrow them down", MaxHeld)
	}
	return f.look(ctx), nil
}

// HoldingOf is like [Limiter.Holding] of the counters of one origin rule alone: of a rule by endpoint the one of a method and
// a pattern, if it has that; all of them where neither is named.
func (l *Limiter) HoldingOf(ctx context.Context, who identity.Caller, name, method, pattern string) ([]Held, error) {
	f := l.finder(who)
	for r := range f.plan.release.Set.Rules() {
		if r.Name != name || r.Where != rule.Origin {
			continue
		}
		if method == "" && pattern == "" {
			f.add(&r, nil, nil)
		} else if f.plan.has(&r, method, pattern) {
			f.add(&r, []string{pattern}, []string{method})
		}
	}
	if f.tooMany {
		return nil, fmt.Errorf("rule %s has more than %d counters of the caller: want the method and the pattern of one", name, MaxHeld)
	}
	return f.look(ctx), nil
}

// has tells whether r counts a method and a pattern apart.
func (p *plan) has(r *rule.Rule, method, pattern string) bool {
	return slices.Contains(endpointMethods(r), method) &&
		slices.ContainsFunc(p.release.Set.Patterns(r), func(p rule.Pattern) bool { return p.Path == pattern })
}

func (l *Limiter) finder(who identity.Caller) *finder {
	f := &finder{limiter: l, plan: l.plan.Load(), who: who, has: present(&who),
		caller: rule.Caller{Tenant: who.Tenant(), Tier: who.Tier()}}
	if who.Key != nil {
		f.caller.Key = who.Key.ID
	}
	if who.User != nil {
		f.caller.User = userName(who.User)
	}
	return f
}

// finder collects the counters of a caller.
type finder struct {
	limiter *Limiter
	plan    *plan
	who     identity.Caller
	has     rule.Parts
	caller  rule.Caller
	held    []Held
	charges []Charge
	tooMany bool
}

// methods are what an endpoint's counter may be named by.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "*"}

// add adds the counters of a rule: one, or of a rule by endpoint one for each pattern and method, nil for all that it has.
func (f *finder) add(r *rule.Rule, patterns, only []string) {
	chosen, missing := r.Principal(f.has, nil)
	if missing != nil {
		return
	}
	set := f.plan.release.Set
	grant := set.Grant(r, chosen, f.caller)
	if grant.Unlimited {
		return
	}
	if !slices.Contains(chosen, rule.Endpoint) {
		f.counter(r, chosen, grant, "", "")
		return
	}
	if patterns == nil {
		for _, p := range set.Patterns(r) {
			if !slices.Contains(patterns, p.Path) { // another host
				patterns = append(patterns, p.Path)
			}
		}
		slices.Sort(patterns)
		only = endpointMethods(r)
	}
	for _, pattern := range patterns {
		for _, method := range only {
			f.counter(r, chosen, grant, pattern, method)
		}
	}
}

// endpointMethods are the methods that a rule's endpoints are named by.
func endpointMethods(r *rule.Rule) (found []string) {
	if len(r.Methods) == 0 {
		return methods
	}
	for _, m := range r.Methods {
		found = append(found, rule.EndpointMethod(m))
		if m == "GET" {
			found = append(found, "HEAD")
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func (f *finder) counter(r *rule.Rule, chosen []rule.Part, grant rule.Grant, pattern, method string) {
	if f.tooMany = f.tooMany || len(f.held) == MaxHeld; f.tooMany {
		return
	}
	c := Charge{Algorithm: r.Algorithm, Limit: grant.Limit, Shadow: r.Mode == rule.Shadow}
	of := ruleBytes(r.Name, r.Algorithm, grant.Limit.Window)
	f.limiter.namer.name(&c, r, &of, chosen, &principal{caller: &f.who, method: method, pattern: pattern})
	f.held = append(f.held, Held{Rule: *r, Principal: f.principal(chosen), Pattern: pattern, Method: method, Counter: c.Counter,
		Limit: grant.Limit, Basis: grant.Basis, former: c.Former})
	f.charges = append(f.charges, c)
}

// principal is who a counter is for, as people read it.
func (f *finder) principal(chosen []rule.Part) string {
	words := make([]string, len(chosen))
	for i, part := range chosen {
		switch words[i] = part.String(); part {
		case rule.Key:
			words[i] += "=" + f.caller.Key
		case rule.User:
			u := f.who.User
			words[i] += "=" + u.Issuer + "|" + u.Tenant + "|" + u.Subject
		case rule.Tenant:
			words[i] += "=" + f.caller.Tenant
		case rule.Address:
			words[i] += "=" + networkOf(f.who.Address)
		}
	}
	return strings.Join(words, " ")
}

// networkOf is the network of an address that counts as one caller, as 192.0.2.7/32.
func networkOf(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	p, err := a.Prefix(bitsOf(a, own))
	if err != nil { // no family is shorter than its prefixes
		return a.String()
	}
	return p.String()
}

// look asks the store, and this process's memory, for all counters that were found.
func (f *finder) look(ctx context.Context) []Held {
	for from := 0; from < len(f.held); from += heldAtOnce {
		to := min(from+heldAtOnce, len(f.held))
		f.limiter.look(ctx, f.plan, f.held[from:to], f.charges[from:to])
	}
	return f.held
}

// look asks for some counters in one request.
func (l *Limiter) look(ctx context.Context, p *plan, held []Held, charges []Charge) {
	now := l.o.Now()
	outcomes := make([]Outcome, len(charges))
	err := l.o.Store.Take(ctx, &Call{Now: now, Charges: charges, Outcomes: outcomes})
	for i := range held {
		h, o := &held[i], &outcomes[i]
		penalty, stands := l.penalties.Standing(h.Counter, now)
		h.Penalised, h.PenaltyLeft = stands, penalty.RetryAfter
		h.DenyCached = p.deny.Refuses(h.Counter, h.Limit, h.Rule.Cost, now)
		if h.Err = err; err == nil {
			h.Decision, h.Status, h.Err = peeked(o.Decision, h.Rule.Cost), o.Status, o.Err
		}
	}
}
