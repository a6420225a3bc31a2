package limiter

import (
	"strings"

	"github.com/weirproject/weir/origin/internal/denycache"
	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// work is the scratch of one check, reused: entry i of rules, charges, outcomes, answers and passes is about the same rule.
type work struct {
	req      Request
	matched  []rule.Matched
	chosen   []rule.Part
	rules    []applied
	charges  []Charge
	outcomes []Outcome
	answers  []answer
	passes   []denycache.Pass
	enforced int // charges without Shadow
	id       CallID

	open  []int // charges that the store is yet to answer
	sent  []Charge
	got   []Outcome
	call  Call  // to the store
	shown []int // the charge of each view

	user   *identity.User // whose id this is, in overrides
	userID string
}

// applied is a rule that applies to the request.
type applied struct {
	rule    *rule.Rule // in work.matched
	pattern string
	*planned
	breadth  breadth
	address  bool   // the principal has one, so that clients make up principals
	reserved uint64 // the second in which room for a new counter was reserved; 0: none was
}

// answer says what answered for a rule.
type answer uint8

const (
	unanswered answer = iota // since another rule refused already
	byStore
	byMemory // the deny cache
	byPenalty
	byLocal
	byOpen
	byClosed
	byBusy    // closed too, since this process has no room for another call that waits
	elsewhere // a shadow rule that is asked beside the call, or was skipped
)

// find collects the rules that apply to a request, with their counters. A rule that does not limit this caller does not
// apply; a peek asks no shadow rule, which it could not charge.
func (w *work) find(n *namer, p *plan) {
	req := &w.req
	w.enforced, w.id = 0, CallID{}
	set := p.release.Set
	w.matched = set.Match(rule.Origin, rule.Request{Method: req.Method, Path: req.Path, Host: req.Host, HasHeader: req.HasHeader}, w.matched[:0])
	w.rules, w.charges = w.rules[:0], w.charges[:0]
	has := present(&req.Caller)
	who := rule.Caller{Key: callerID(req), Tenant: req.Caller.Tenant(), Tier: req.Caller.Tier()}
	for i := range w.matched {
		m := &w.matched[i]
		shadow := m.Rule.Mode == rule.Shadow
		if shadow && req.Peek {
			continue
		}
		var missing rule.Choice
		if w.chosen, missing = m.Rule.Principal(has, w.chosen[:0]); missing != nil {
			continue
		}
		ru := applied{rule: &m.Rule, pattern: m.Pattern, planned: &p.rules[m.Rule.Index]}
		for _, part := range w.chosen {
			ru.address = ru.address || part == rule.Address
			if part == rule.User {
				who.User = w.userName(req.Caller.User)
			}
		}
		grant := set.Grant(ru.rule, w.chosen, who)
		if grant.Unlimited {
			continue
		}
		c := Charge{Algorithm: m.Rule.Algorithm, Limit: grant.Limit, Cost: ru.cost(req), Shadow: shadow}
		if req.Peek {
			c.Cost = 0
		}
		w.name(n, &c, &ru)
		w.rules, w.charges = append(w.rules, ru), append(w.charges, c)
		if !shadow {
			w.enforced++
		}
	}
	n0 := len(w.charges)
	w.outcomes, w.answers, w.passes = resize(w.outcomes, n0), resize(w.answers, n0), resize(w.passes, n0)
	if req.ID != "" && !req.Peek && w.enforced > 0 {
		w.id = n.id(req, w.charges)
	}
}

// cost is what a call costs by the rule.
func (ru *applied) cost(req *Request) int64 {
	if req.Cost > 0 {
		return req.Cost
	}
	return ru.rule.Cost
}

// name gives a charge the name of its counter, as wide as ru says. The principal's parts are in w.chosen.
func (w *work) name(n *namer, c *Charge, ru *applied) {
	of := ru.planned.name
	if c.Limit.Window != ru.rule.Limit.Window { // by a tier or an override
		of = ruleBytes(ru.rule.Name, ru.rule.Algorithm, c.Limit.Window)
	}
	n.name(c, ru.rule, &of, w.chosen, &principal{caller: &w.req.Caller, method: w.req.Method, pattern: ru.pattern, breadth: ru.breadth})
}

// userName is a user as overrides name one, `issuer|tenant|subject`, kept for the next check of the same. A subject may hold
// bars, as those of some issuers do; in what comes before it they would make it another user's.
func (w *work) userName(u *identity.User) string {
	if w.user != u {
		w.user, w.userID = u, userName(u)
	}
	return w.userID
}

func userName(u *identity.User) string {
	if strings.IndexByte(u.Issuer, '|') >= 0 || strings.IndexByte(u.Tenant, '|') >= 0 {
		return ""
	}
	return u.Issuer + "|" + u.Tenant + "|" + u.Subject
}

// clear lets go of what belongs to the request, which is not to live on with the scratch.
func (w *work) clear() {
	w.req, w.call = Request{}, Call{}
}

// resize is s with n zero elements.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// refused tells whether an enforced rule refuses, as far as is known.
func (w *work) refused() bool {
	for i := range w.outcomes {
		if w.outcomes[i].Status == Refused && !w.charges[i].Shadow {
			return true
		}
	}
	return false
}

// refuse is the answer of a process that did not ask the store. What it remembers may be of another caller's limit.
func (w *work) refuse(i int, by answer, d limit.Decision) {
	d.Limit = w.charges[i].Limit.Capacity()
	w.answers[i], w.outcomes[i] = by, Outcome{Status: Refused, Decision: d}
}
