package limiter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/shared/rule"
)

var noRequest rule.Request

func TestEveryCounterOfACallerIsFoundAsItIsCharged(t *testing.T) {
	w := newWorld(t, `
version: 1
tiers: {paid: {limit: 50/1m}}
rules:
- {name: by-key, where: origin, by: [key], tier: true}
- {name: by-user, where: origin, by: [user], limit: 9/1h}
- {name: trial, where: origin, by: [tenant], limit: 9/1h, mode: shadow}
- {name: edges, where: edge, by: [address], limit: 9/1h}
- {name: by-endpoint, where: origin, by: [address, endpoint], match: {paths: [/a, "/b/**"], methods: [GET, POST], hosts: [x.com, y.com]}, limit: 3/1h}
- {name: staff, where: origin, by: [tenant], limit: 9/1h}
overrides:
- {rule: staff, tenant: t, limit: unlimited}
`)
	who := key("a", "t")
	who.Key = &keys.Key{ID: "a", Tenant: "t", Tier: "paid"}
	for range 4 {
		w.check(limiter.Request{Caller: who, Method: "GET", Path: "/b/c", Host: "y.com"})
	}
	w.limiter.Close()
	calls := w.calls
	held, err := w.limiter.Holding(t.Context(), who, noRequest)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range held {
		got = append(got, fmt.Sprintf("%s %s %s %s %d of %d refused=%v", h.Rule.Name, h.Principal, h.Method, h.Pattern, h.Decision.Remaining, h.Limit.Count, h.DenyCached))
	}
	const address = "by-endpoint address=192.0.2.1/32 endpoint "
	want := []string{
		"by-key key=a   47 of 50 refused=false",
		"trial tenant=t   6 of 9 refused=false",
		address + "GET /a 3 of 3 refused=false", address + "HEAD /a 3 of 3 refused=false", address + "POST /a 3 of 3 refused=false",
		address + "GET /b/** 0 of 3 refused=true", address + "HEAD /b/** 3 of 3 refused=false", address + "POST /b/** 3 of 3 refused=false",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if held[0].Basis != rule.OfTier || w.calls != calls+1 {
		t.Errorf("basis %v, %d requests", held[0].Basis, w.calls-calls)
	}
	held, err = w.limiter.Holding(t.Context(), who, rule.Request{Method: "GET", Path: "/b/c", Host: "x.com"})
	if err != nil || len(held) != 3 || held[2].Decision.Allowed || held[2].Pattern != "/b/**" {
		t.Errorf("of one request: %+v, %v", held, err)
	}
	w.store.Inject(fault.Fault{Reason: "busy"})
	held, err = w.limiter.Holding(t.Context(), who, noRequest)
	if err != nil || len(held) != 8 || held[0].Err == nil || !held[5].DenyCached {
		t.Errorf("without a store: %+v, %v", held, err)
	}
}

// Who sees a rule at zero for ever takes it for one that nobody meets.
func TestARuleOfTheEdgeIsNoSeriesOfAnOrigin(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: ours, where: origin, by: [address], limit: 9/1h}
- {name: edges, where: edge, by: [address], limit: 9/1h}
`)
	families, err := w.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "rule" {
					rules[l.GetValue()]++
				}
			}
		}
	}
	if rules["ours"] == 0 || len(rules) != 1 {
		t.Errorf("series by rule: %v, want those of ours alone", rules)
	}
}

func TestCountersOfACallerAreBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("version: 1\nrules:\n- {name: r, where: origin, by: [key, endpoint], limit: 3/1h, match: {paths: [/a]}}\n")
	for i := range 1001 {
		fmt.Fprintf(&text, "- {name: r%d, where: origin, by: [address, endpoint], limit: 3/1h, match: {paths: [/a%d]}}\n", i, i)
	}
	w := newWorld(t, text.String())
	_, err := w.limiter.Holding(t.Context(), from("192.0.2.1"), noRequest)
	if err == nil || !strings.Contains(err.Error(), "more than 10000 counters") {
		t.Errorf("%v", err)
	}
	held, err := w.limiter.Holding(t.Context(), identity.Caller{Key: &keys.Key{ID: "a"}}, noRequest)
	if err != nil || len(held) != 10 {
		t.Errorf("%d counters, %v", len(held), err)
	}
}
