package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/gateway"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// limitsNobody tells which rules limit nobody, since the configuration c, of file, names no keys or no issuer of users.
func limitsNobody(file string, c config.Config, set *rule.Set) (warnings rule.Faults) {
	var (
		keyless  = "needs keys, of which " + file + " names no file, so that the rule limits nobody: want keys: weir.keys.yaml there, as made by: weir key new --id NAME"
		userless = "needs users, of whom " + file + " names no issuer, so that the rule limits nobody: want identity: {oidc: [{issuer: https://login.example.com, audience: [my-api]}]} there"
	)
	known := rule.Parts(0).With(rule.Address)
	if c.Keys != "" {
		known = known.With(rule.Key).With(rule.Tenant)
	}
	if len(c.Identity.Issuers) > 0 {
		known = known.With(rule.User)
	}
	for _, i := range c.Identity.Issuers {
		if i.Claims.Tenant != "" {
			known = known.With(rule.Tenant)
		}
	}
	for r := range set.Rules() {
		if _, missing := r.Principal(known, nil); missing != nil {
			want := keyless
			if !slices.Contains(missing, rule.Key) && slices.Contains(missing, rule.User) {
				want = userless
			}
			warnings = append(warnings, rule.Fault{At: rule.Source{File: c.Rules, Line: int(r.Line)}, Field: fmt.Sprintf("rules[%d].by", r.Index), Value: missing.String(), Want: want})
		}
	}
	return warnings
}

// unheld tells of queues in which a call may have to wait for longer than the gateway holds one: those at the end are
// answered as if it was overloaded.
func unheld(file string, set *rule.Set) (warnings rule.Faults) {
	for r := range set.Rules() {
		if r.Algorithm != rule.LeakyQueue || r.Mode == rule.Shadow || r.Tier {
			continue
		}
		if l := r.Limit; float64(l.Burst-r.Cost)*float64(l.Window) > float64(gateway.DefaultMaxHold)*float64(max(1, l.Count)) {
			warnings = append(warnings, rule.Fault{At: rule.Source{File: file, Line: int(r.Line)}, Field: fmt.Sprintf("rules[%d].burst", r.Index),
				Value: strconv.FormatInt(l.Burst, 10), Want: fmt.Sprintf("a call at its end would wait for longer than the %d s that the gateway holds one, and is answered 503 instead", gateway.DefaultMaxHold/limit.Second)})
		}
	}
	return warnings
}

// unknownTiers tells of keys whose tier the rules do not know: they get the strictest, which nobody sees from outside.
func unknownTiers(file string, issued *keys.File, set *rule.Set) (warnings rule.Faults) {
	tiered := false
	for r := range set.Rules() {
		tiered = tiered || r.Tier
	}
	told := map[string]bool{}
	for _, k := range issued.Entries {
		if tiered && k.Tier != "" && !told[k.Tier] && !set.HasTier(k.Tier) {
			told[k.Tier] = true
			warnings = append(warnings, rule.Fault{At: rule.Source{File: file}, Field: "tier", Value: k.Tier,
				Want: "is no tier of the rules, so that key " + k.ID + " and others of it get the strictest"})
		}
	}
	return warnings
}
