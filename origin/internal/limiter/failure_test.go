package limiter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
)

const threeParts = `
version: 1
rules:
- {name: by-key, where: origin, by: [key], limit: 10/1h}
- {name: by-tenant, where: origin, by: [tenant], limit: 100/1h, on-store-failure: MODE}
- {name: by-address, where: origin, by: [address], limit: 100/1h}
`

// counters are those of a caller's rules, in order.
func (w *world) counters(c identity.Caller, path string) []limiter.Counter {
	w.check(limiter.Request{Caller: c, Method: "GET", Path: path, Peek: true})
	return append([]limiter.Counter(nil), w.seen...)
}

// left is what the first rule leaves a caller.
func (w *world) left(c identity.Caller) int64 {
	return w.check(limiter.Request{Caller: c, Method: "GET", Path: "/", Peek: true}).Views[0].Decision.Remaining
}

func TestWhenAPartOfTheStoreIsLostItsRuleAnswersByItsModeAlone(t *testing.T) {
	for mode, want := range map[string]struct {
		passed int   // of 20 calls
		left   int64 // to by-key, of 10
	}{"local": {10, 0}, "open": {10, 0}, "closed": {0, 10}} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, strings.Replace(threeParts, "MODE", mode, 1))
			a := key("a", "t")
			tenant := w.counters(a, "/")[1]
			w.store.Inject(fault.Fault{Lost: func(c limiter.Counter) bool { return c == tenant }})
			for i := range 20 {
				v := w.get(a, "/")
				if v.Allowed != (i < want.passed) {
					t.Fatalf("call %d: %+v", i, v)
				}
				if v.Allowed && !v.Degraded {
					t.Errorf("call %d does not say that it is degraded", i)
				}
				if mode == "closed" && v.Code != header.LimiterUnavailable {
					t.Errorf("call %d: %s", i, v.Code)
				}
			}
			w.store.Heal()
			// What the other parts charged for a call that was refused for the lost one was given back.
			if n := w.left(a); n != want.left {
				t.Errorf("%d left to the rule by key, want %d", n, want.left)
			}
		})
	}
}

// The other parts refuse: nothing is charged, the lost rule's fallback neither.
func TestALostPartBesideARefusalChargesNobody(t *testing.T) {
	w := newWorld(t, strings.Replace(threeParts, "MODE", "local", 1))
	a := key("a", "t")
	w.admitted(10, a, "/")
	tenant := w.counters(a, "/")[1]
	w.store.Inject(fault.Fault{Lost: func(c limiter.Counter) bool { return c == tenant }})
	for range 5 {
		w.limiter.Use(w.limiter.Release()) // the store is asked, not the deny cache
		if v := w.get(a, "/"); v.Allowed || v.Code != header.RateLimited || v.Views[v.Deciding].Rule != "by-key" {
			t.Fatalf("%+v", v)
		}
	}
	if n := w.local.Len(); n != 0 {
		t.Errorf("%d counters of the fallback", n)
	}
}

func TestAnExactRuleNeverAnswersFromAProcessAlone(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 10/1h, exact: true}\n")
	a := key("a", "")
	w.admitted(1, a, "/")
	for name, f := range map[string]fault.Fault{"no answer": {Reason: "deadline"}, "a lost part": {Lost: func(limiter.Counter) bool { return true }}} {
		w.store.Inject(f)
		if v := w.get(a, "/"); v.Allowed || v.Code != header.LimiterUnavailable || v.Hint != (limiter.Hint{}) {
			t.Errorf("%s: %+v", name, v)
		}
		w.store.Heal()
	}
	w.store.Spoil(w.counters(a, "/")[0])
	if v := w.get(a, "/"); v.Allowed || v.Code != header.LimiterUnavailable {
		t.Errorf("a foreign value: %+v", v)
	}
	if w.local.Len() != 0 {
		t.Error("the fallback was asked")
	}
}

// A caller over its limit for an hour is not told that the limiter is unavailable for a second.
func TestTheCodeIsThatOfTheRuleThatDecides(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: full, where: origin, by: [key], limit: 1/1h}
- {name: lost, where: origin, by: [address], limit: 100/1h, on-store-failure: closed}
`)
	a := key("a", "")
	w.store.Inject(fault.Fault{Reason: "open"})
	if v := w.get(a, "/"); v.Code != header.LimiterUnavailable || v.Views[v.Deciding].Rule != "lost" {
		t.Errorf("%+v", v)
	}
	w.store.Heal()
	if v := w.get(a, "/"); !v.Allowed {
		t.Errorf("the refused call was charged: %+v", v)
	}
	w.limiter.Use(w.limiter.Release())
	w.store.Spoil(w.counters(a, "/")[1])
	if v := w.get(a, "/"); v.Code != header.RateLimited || v.Views[v.Deciding].Rule != "full" {
		t.Errorf("%+v", v)
	}
}

// odd is a store that answers every charge with one status.
type odd struct {
	*fault.Store
	status limiter.Status
	calls  int
	begun  int // calls that no bound on time was set for
}

func (o *odd) Take(_ context.Context, c *limiter.Call) error {
	o.calls++
	if c.By.IsZero() {
		o.begun++
		c.By = time.Now()
	}
	for i := range c.Outcomes {
		c.Outcomes[i] = limiter.Outcome{Status: o.status}
	}
	return nil
}

// Whatever a store says, a call ends, with no more admitted than the modes allow.
func TestAStoreThatNeverComesToAnEndIsAsGoodAsNone(t *testing.T) {
	for _, status := range []limiter.Status{limiter.Foreign, limiter.Unmade, limiter.Lost} {
		w := newWorld(t, `
version: 1
rules:
- {name: a, where: origin, by: [key], limit: 2/1h}
- {name: b, where: origin, by: [address], limit: 5/1h}
- {name: c, where: origin, by: [tenant], limit: 7/1h}
`)
		w.hang = &odd{Store: w.store, status: status}
		if n := w.admitted(9, key("a", "t"), "/"); n != 2 {
			t.Errorf("status %d: %d of 9, want the fallback's 2", status, n)
		}
		if n := w.hang.(*odd).calls; n > 9*6 {
			t.Errorf("status %d: %d requests of 9 calls", status, n)
		}
		if n := w.hang.(*odd).begun; n != 9 {
			t.Errorf("status %d: time was given %d times to 9 calls", status, n)
		}
	}
}

func TestBadRequestsAreToldByFieldAndChargeNothing(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 10/1h}\n")
	long := make([]byte, limiter.MaxRequestID+1)
	for name, c := range map[string]struct {
		r    limiter.Request
		want string
	}{
		"negative cost": {limiter.Request{Cost: -5}, `cost: "-5": want 1 to 9007199254740991, or 0 for what each rule says`},
		"huge cost":     {limiter.Request{Cost: limit.MaxCount + 1}, `cost: "9007199254740992": want 1 to 9007199254740991, or 0 for what each rule says`},
		"long id":       {limiter.Request{ID: string(long)}, ""},
		"nobody's id":   {limiter.Request{ID: "x", Caller: from("192.0.2.1")}, `id: "x": want none without an authenticated caller`},
	} {
		if c.r.Caller.Key == nil && !c.r.Caller.Address.IsValid() {
			c.r.Caller = key("a", "")
		}
		c.r.Method, c.r.Path = "GET", "/"
		_, err := w.limiter.Check(t.Context(), c.r)
		if err == nil || c.want != "" && err.Error() != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if w.calls != 0 {
		t.Errorf("%d calls of the store", w.calls)
	}
	// Case 8: a cost beyond the limit never passes, and says so.
	v := w.check(limiter.Request{Caller: key("a", ""), Method: "GET", Path: "/", Cost: 11})
	if v.Allowed || v.Views[0].Decision.RetryAfter != limit.Never || v.Hint != (limiter.Hint{}) || w.decisions("r", "never", "store") != 1 {
		t.Errorf("%+v", v)
	}
	if n := w.admitted(20, key("a", ""), "/"); n != 10 {
		t.Errorf("%d of 20 after a cost that never passes: want 10", n)
	}
}

// Case 9, for costs above 1.
func TestAPeekTellsWhetherACallOfItsCostWouldPass(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], algorithm: token-bucket, limit: 10/1h, cost: 3}\n")
	a := identity.Caller{Key: &keys.Key{ID: "a"}}
	peek := func(cost int64) limiter.Verdict {
		return w.check(limiter.Request{Caller: a, Method: "GET", Path: "/", Cost: cost, Peek: true})
	}
	for cost, want := range map[int64]bool{0: true, 1: true, 10: true, 11: false} {
		if v := peek(cost); v.Allowed != want || v.Views[0].Decision.Remaining != 10 {
			t.Errorf("cost %d: %+v", cost, v)
		}
	}
	w.get(a, "/") // by the rule's cost, 3
	w.get(a, "/")
	w.get(a, "/")
	if v := peek(0); v.Allowed || v.Code != header.RateLimited || v.Views[0].Decision.Remaining != 1 {
		t.Errorf("with 1 left, a call of 3: %+v", v)
	}
	v := peek(0)
	w.now += v.Views[0].Decision.RetryAfter
	if v = peek(0); !v.Allowed {
		t.Errorf("after its wait: %+v", v)
	}
	if v := peek(11); v.Views[0].Decision.RetryAfter != limit.Never {
		t.Errorf("a cost that never passes: %+v", v)
	}
}
