package limiter_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
)

// apart has every counter in a slot of its own.
func apart() func(*limiter.Options) {
	return func(o *limiter.Options) {
		o.Slot = func(c *limiter.Counter) (hash uint32) {
			for _, b := range c {
				hash = hash*16777619 ^ uint32(b)
			}
			return hash
		}
	}
}

// hungCounter is a store of which the part with one counter does not answer until its gate opens.
type hungCounter struct {
	*fault.Store
	counter limiter.Counter
	gate    chan struct{}
}

func (h *hungCounter) Take(ctx context.Context, c *limiter.Call) error {
	for i := range c.Charges {
		if c.Charges[i].Counter == h.counter {
			<-h.gate
		}
	}
	return h.Store.Take(ctx, c)
}

// Case 29.
func TestAnExhaustedShadowRuleIsSeenByNobodyAndLetsTheOthersDecide(t *testing.T) {
	for name, slots := range map[string]func(*limiter.Options){"one slot": func(*limiter.Options) {}, "slots apart": apart()} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, `
version: 1
rules:
- {name: trial, where: origin, by: [key], limit: 3/1h, mode: shadow}
- {name: real, where: origin, by: [key], limit: 7/1h}
`, slots)
			a := key("a", "")
			for i := range 10 {
				v := w.get(a, "/")
				w.limiter.Close() // what runs beside the call is over
				if v.Allowed != (i < 7) {
					t.Fatalf("call %d: allowed %v", i, v.Allowed)
				}
				if len(v.Views) != 1 || v.Views[v.Deciding].Rule != "real" {
					t.Fatalf("call %d shows %+v", i, v.Views)
				}
			}
			// Seven calls were for both, the shadow rule would have refused the last four of them. The rest never came to it.
			for outcome, want := range map[string]int{"allow store": 3, "shadow_deny store": 0, "shadow_deny deny_cache": 4, "shadow_skipped deny_cache": 3} {
				var o, s string
				fmt.Sscan(outcome, &o, &s)
				if n := w.decisions("trial", o, s); n != want {
					t.Errorf("trial %s: %d, want %d", outcome, n, want)
				}
			}
			if n := w.decisions("real", "allow", "store"); n != 7 {
				t.Errorf("real admitted %d", n)
			}
		})
	}
}

func TestAShadowRuleIsChargedAsIfItWereAlone(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: trial, where: origin, by: [tenant], limit: 10/1h, mode: shadow}
- {name: real, where: origin, by: [key], limit: 2/1h}
`)
	for i := range 6 { // keys of one tenant, the deny cache out of the way
		w.admitted(2, key(fmt.Sprint(i), "t"), "/")
	}
	if n := w.decisions("trial", "allow", "store"); n != 10 {
		t.Errorf("trial would have admitted %d of 12, want its 10", n)
	}
	if n := w.decisions("trial", "shadow_deny", "deny_cache") + w.decisions("trial", "shadow_deny", "store"); n != 2 {
		t.Errorf("trial would have refused %d of 12, want 2", n)
	}
}

// A shadow rule whose part of the store hangs must not be waited for, however many calls come.
func TestAShadowRuleInAnotherSlotNeverDelaysACall(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: trial, where: origin, by: [tenant], limit: 1000000/1h, mode: shadow}
- {name: real, where: origin, by: [key], limit: 1000000/1h}
`, apart())
	w.get(key("a", "t"), "/")
	w.limiter.Close()
	trial := limiter.Counter{}
	for _, r := range w.store.Asked() {
		for i := range r.Call.Charges {
			if r.Call.Charges[i].Shadow {
				trial = r.Call.Charges[i].Counter
				if len(r.Call.Charges) != 1 {
					t.Error("the shadow charge goes with the enforced one")
				}
			}
		}
	}
	hung := &hungCounter{Store: w.store, counter: trial, gate: make(chan struct{})}
	w.hang = hung
	const calls = 1000
	for range calls {
		if v := w.get(key("a", "t"), "/"); !v.Allowed || v.Degraded {
			t.Fatalf("%+v", v)
		}
	}
	if n := w.decisions("trial", "shadow_skipped", "local"); n != calls-256 {
		t.Errorf("%d skipped, want all but the 256 that may be under way", n)
	}
	close(hung.gate)
	w.limiter.Close()
	if n := w.decisions("trial", "allow", "store"); n != 1+256 {
		t.Errorf("%d counted when they came back, want 257", n)
	}
}

func TestAFailingStoreSkipsShadowRules(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: trial, where: origin, by: [key], limit: 3/1h, mode: shadow, on-store-failure: closed}
- {name: real, where: origin, by: [key], limit: 5/1h}
`)
	w.store.Inject(fault.Fault{Reason: "unreachable"})
	if n := w.admitted(9, key("a", ""), "/"); n != 5 {
		t.Errorf("%d of 9 by the fallback at 5/h", n)
	}
	if n := w.decisions("trial", "shadow_skipped", "store"); n != 9 {
		t.Errorf("%d skipped, want 9", n)
	}
}

func TestShadowRulesAndPeeksAreNoBusinessOfTheDenyCache(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: trial, where: origin, by: [key], limit: 1/1h, mode: shadow}
- {name: real, where: origin, by: [key], limit: 5/1h}
`)
	a := limiter.Request{Caller: key("a", ""), Method: "GET", Path: "/", Peek: true}
	for range 9 {
		if v := w.check(a); !v.Allowed || v.Views[0].Decision.Remaining != 5 {
			t.Fatalf("%+v", v.Views)
		}
	}
	if w.decisions("trial", "allow", "store")+w.decisions("trial", "shadow_deny", "store") != 0 {
		t.Error("a peek asked a shadow rule")
	}
	w.admitted(9, a.Caller, "/")
	calls := w.calls
	if v := w.check(a); v.Allowed || w.calls != calls+1 {
		t.Errorf("a peek at the limit: %+v, %d calls of the store", v, w.calls-calls)
	}
}

// A call that is sent again is charged once by shadow rules as well, wherever their counters are.
func TestARepeatedCallIsChargedOnceByShadowRules(t *testing.T) {
	for name, slots := range map[string]func(*limiter.Options){"one slot": func(*limiter.Options) {}, "slots apart": apart()} {
		w := newWorld(t, `
version: 1
rules:
- {name: trial, where: origin, by: [tenant], limit: 3/1h, mode: shadow}
- {name: real, where: origin, by: [key], limit: 100/1h}
`, slots)
		for i := range 20 {
			w.with(key("a", "t"), func(r *limiter.Request) { r.ID = fmt.Sprint(i / 10) })
			w.limiter.Close() // what runs beside the call is over
		}
		w.get(key("b", "t"), "/")
		w.limiter.Close()
		if n := w.decisions("trial", "shadow_deny", "store") + w.decisions("trial", "shadow_deny", "deny_cache"); n != 0 {
			t.Errorf("%s: two calls, each sent ten times, and another one are %d refusals at 3/h", name, n)
		}
	}
}
