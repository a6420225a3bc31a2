package limiter_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// drawnRule is a rule of a random set.
type drawnRule struct {
	by, algorithm, mode string
	count, burst, cost  int64
	window              string
	failure             string
}

func (r drawnRule) text(i int) string {
	burst := ""
	if r.burst > 0 {
		burst = fmt.Sprintf(", burst: %d", r.burst)
	}
	return fmt.Sprintf("- {name: r%d, where: origin, by: [%s], algorithm: %s, limit: %d/%s%s, cost: %d, mode: %s, on-store-failure: %s, match: {paths: [\"/**\", /]}}\n",
		i, r.by, r.algorithm, r.count, r.window, burst, r.cost, r.mode, r.failure)
}

func drawRules(t *rapid.T, algorithms, windows, failures []string) (drawn []drawnRule, text string) {
	text = "version: 1\nrules:\n"
	for i := range rapid.IntRange(1, 4).Draw(t, "rules") {
		r := drawnRule{
			by:        rapid.SampledFrom([]string{"key", "tenant", "address", "key, endpoint", "global", "key|address"}).Draw(t, "by"),
			algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"),
			mode:      rapid.SampledFrom([]string{"enforce", "enforce", "enforce", "shadow"}).Draw(t, "mode"),
			count:     rapid.Int64Range(3, 12).Draw(t, "count"), cost: rapid.Int64Range(1, 3).Draw(t, "cost"),
			window: rapid.SampledFrom(windows).Draw(t, "window"), failure: rapid.SampledFrom(failures).Draw(t, "failure"),
		}
		if a, _ := rule.ParseAlgorithm(r.algorithm); a.HasBurst() {
			r.burst = rapid.Int64Range(3, 12).Draw(t, "burst")
		}
		if slices.ContainsFunc(drawn, func(o drawnRule) bool { return o.by == r.by }) {
			continue // two rules for one scope may fight
		}
		drawn = append(drawn, r)
		text += r.text(i)
	}
	return drawn, text
}

func drawCaller(t *rapid.T) identity.Caller {
	c := identity.Caller{Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(1, 2).Draw(t, "address"))})}
	if id := rapid.IntRange(0, 2).Draw(t, "key"); id > 0 {
		c.Key = &keys.Key{ID: fmt.Sprint(id), Tenant: "t"}
	}
	return c
}

// oracle decides by the algorithms alone: it asks each enforced rule, then charges all or none.
type oracle struct{ store *memory.Store }

// charges are those of the enforced rules that a request meets, under names of the oracle's own.
func (o *oracle) charges(rules []drawnRule, r limiter.Request, path string) (charges []limiter.Charge) {
	for i, d := range rules {
		who := ""
		switch k := r.Caller.Key; d.by {
		case "key", "tenant", "key, endpoint":
			if k == nil {
				continue
			}
			switch who = k.ID; d.by {
			case "tenant":
				who = k.Tenant
			case "key, endpoint":
				who += " " + path
			}
		case "address":
			who = r.Caller.Address.String()
		case "key|address":
			if who = r.Caller.Address.String(); k != nil {
				who = "key " + k.ID
			}
		}
		if d.mode == "shadow" {
			continue
		}
		c := limiter.Charge{Limit: limit.Limit{Count: d.count, Burst: d.burst, Window: map[string]limit.Micros{"1s": limit.Second, "10s": 10 * limit.Second, "1m": limit.Minute, "1h": limit.Hour}[d.window]}, Cost: d.cost}
		if r.Cost > 0 {
			c.Cost = r.Cost
		}
		c.Algorithm, _ = rule.ParseAlgorithm(d.algorithm)
		copy(c.Counter[:], fmt.Sprintf("%d %s", i, who))
		charges = append(charges, c)
	}
	return charges
}

func (o *oracle) admits(now limit.Micros, charges []limiter.Charge) (bool, []limiter.Outcome) {
	outcomes := make([]limiter.Outcome, len(charges))
	if err := o.store.Take(context.Background(), &limiter.Call{Now: now, Charges: charges, Outcomes: outcomes}); err != nil {
		panic(err)
	}
	return !slices.ContainsFunc(outcomes, func(o limiter.Outcome) bool { return o.Status != limiter.Admitted }), outcomes
}

var everyAlgorithm = []string{"token-bucket", "gcra", "sliding-window", "fixed-window", "leaky-bucket", "leaky-queue", "sliding-log"}

// Call for call the pipeline, with its memory of refusals, its refunds and shadow rules, decides as the algorithms alone
// do: so nothing is charged that is refused, no limit is passed, and shadow rules change nothing.
func TestAnyCallsUnderAnyRulesAreDecidedAsByTheAlgorithmsAlone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		drawn, text := drawRules(rt, everyAlgorithm, []string{"1s", "10s", "1m"}, []string{"local"})
		w := newWorld(t, text)
		o := &oracle{memory.New(10_000, nil)}
		type paid struct {
			receipt  *limiter.Receipt
			charges  []limiter.Charge
			outcomes []limiter.Outcome
		}
		var receipts []paid
		for range rapid.IntRange(1, 60).Draw(rt, "calls") {
			w.limiter.Close() // shadow rules that are asked beside calls: time stands still meanwhile
			w.now += limit.Micros(rapid.Int64Range(0, int64(limit.Second)).Draw(rt, "later"))
			if n := len(receipts); n > 0 && rapid.IntRange(0, 9).Draw(rt, "refund") == 0 {
				p := receipts[n-1]
				receipts = receipts[:n-1]
				if err := w.limiter.Refund(rt.Context(), p.receipt); err != nil {
					rt.Fatal(err)
				}
				if err := o.store.Refund(rt.Context(), &limiter.Call{Now: w.now, Charges: p.charges, Outcomes: p.outcomes}); err != nil {
					rt.Fatal(err)
				}
				continue
			}
			path := rapid.SampledFrom([]string{"/", "/a"}).Draw(rt, "path")
			r := limiter.Request{Caller: drawCaller(rt), Method: "GET", Path: path, Refundable: true}
			if rapid.Bool().Draw(rt, "costly") {
				r.Cost = rapid.Int64Range(1, 14).Draw(rt, "cost of the call")
			}
			charges := o.charges(drawn, r, path)
			want, outcomes := o.admits(w.now, charges)
			v, err := w.limiter.Check(rt.Context(), r)
			if err != nil {
				rt.Fatal(err)
			}
			if v.Allowed != want {
				rt.Fatalf("%s%+v at %d: allowed %v, the algorithms %v: %+v, %+v", text, r, w.now, v.Allowed, want, v.Views, outcomes)
			}
			for _, view := range v.Views {
				if view.Decision.Remaining < 0 || view.Decision.Remaining > view.Decision.Limit {
					rt.Fatalf("%+v", view)
				}
			}
			if v.Receipt != nil {
				receipts = append(receipts, paid{v.Receipt, charges, outcomes})
			}
		}
	})
}

// Whatever fails meanwhile, each admitted call is charged once by each rule, at the store or at the fallback, and a refused
// one by none. So no more is admitted than both have.
func TestWhateverFailsEachAdmittedCallIsChargedOnceAndNoOther(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		_, text := drawRules(rt, []string{"fixed-window", "sliding-window", "sliding-log"}, []string{"1h"}, []string{"local", "closed"})
		w := newWorld(t, text)
		used := map[limiter.Counter]int64{}
		rules := map[limiter.Counter]limiter.Charge{}
		for range rapid.IntRange(1, 60).Draw(rt, "calls") {
			path := rapid.SampledFrom([]string{"/", "/a"}).Draw(rt, "path")
			r := limiter.Request{Caller: drawCaller(rt), Method: "GET", Path: path, Peek: true, Cost: rapid.Int64Range(1, 4).Draw(rt, "cost of the call")}
			w.store.Heal()
			w.store.Asked()
			if _, err := w.limiter.Check(rt.Context(), r); err != nil { // a peek asks no shadow rule
				rt.Fatal(err)
			}
			var charges []limiter.Charge
			for _, asked := range w.store.Asked() {
				charges = asked.Call.Charges
			}
			for _, c := range charges {
				rules[c.Counter] = c
			}
			if len(charges) > 0 {
				some := charges[rapid.IntRange(0, len(charges)-1).Draw(rt, "which")].Counter
				switch rapid.SampledFrom([]string{"none", "unreachable", "busy", "lost", "all but one lost", "foreign"}).Draw(rt, "fault") {
				case "unreachable":
					w.store.Inject(fault.Fault{Reason: "unreachable", On: fault.Take})
				case "busy":
					w.store.Inject(fault.Fault{Reason: limiter.Busy, On: fault.Take})
				case "lost":
					w.store.Inject(fault.Fault{Lost: func(c limiter.Counter) bool { return c == some }, On: fault.Take})
				case "all but one lost":
					w.store.Inject(fault.Fault{Lost: func(c limiter.Counter) bool { return c != some }, On: fault.Take})
				case "foreign":
					w.store.Spoil(some)
				}
			}
			if rapid.Bool().Draw(rt, "forgetful") {
				w.limiter.Use(w.limiter.Release())
			}
			r.Peek = false
			v, err := w.limiter.Check(rt.Context(), r)
			if err != nil {
				rt.Fatal(err)
			}
			w.limiter.Close()
			if v.Allowed {
				for _, c := range charges {
					used[c.Counter] += r.Cost
				}
			}
		}
		w.store.Heal()
		for counter, c := range rules {
			charged := int64(0)
			for _, s := range []limiter.Store{w.store.Behind(), w.local} {
				outcomes := make([]limiter.Outcome, 1)
				c.Cost, c.Existing = 0, false
				if err := s.Take(rt.Context(), &limiter.Call{Now: w.now, Charges: []limiter.Charge{c}, Outcomes: outcomes}); err != nil {
					rt.Fatal(err)
				}
				charged += c.Limit.Count - outcomes[0].Decision.Remaining
			}
			if charged != used[counter] {
				rt.Fatalf("%s%s: charged %d for calls of %d", text, counter, charged, used[counter])
			}
		}
	})
}
