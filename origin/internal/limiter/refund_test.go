package limiter_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/shared/limit"
)

const tenPerHour = "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 10/1h}\n"

// with makes a call of a with more to it than its path.
func (w *world) with(c identity.Caller, set func(*limiter.Request)) limiter.Verdict {
	r := limiter.Request{Caller: c, Method: "GET", Path: "/"}
	set(&r)
	return w.check(r)
}

func refundable(r *limiter.Request) { r.Refundable = true }

func TestARefundGivesBackWhatWasChargedOnce(t *testing.T) {
	var told []limiter.Counter
	w := newWorld(t, tenPerHour, func(o *limiter.Options) { o.Announce = func(c []limiter.Counter) { told = append(told, c...) } })
	a := key("a", "")
	if v := w.get(a, "/"); v.Receipt != nil {
		t.Error("a call that nobody will refund has a receipt")
	}
	w.admitted(8, a, "/")
	last := w.with(a, refundable)
	if w.get(a, "/").Allowed || last.Receipt == nil {
		t.Fatal("the tenth call was not the last")
	}
	for range 2 { // the second does nothing
		if err := w.limiter.Refund(t.Context(), last.Receipt); err != nil {
			t.Fatal(err)
		}
	}
	// What was remembered is forgotten: the store is asked, here and elsewhere.
	if n := w.admitted(5, a, "/"); n != 1 {
		t.Errorf("%d calls after the refund of one", n)
	}
	if len(told) != 1 || told[0] != w.seen[0] {
		t.Errorf("told %q", told)
	}
	if w.with(a, refundable).Receipt != nil {
		t.Error("a refused call has a receipt")
	}
	if err := w.limiter.Refund(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestARefundIsOfTheStoreThatCharged(t *testing.T) {
	w := newWorld(t, tenPerHour)
	a := key("a", "")
	w.store.Inject(fault.Fault{Reason: "unreachable"})
	v := w.with(a, refundable)
	w.admitted(20, a, "/")
	if err := w.limiter.Refund(t.Context(), v.Receipt); err != nil {
		t.Fatal(err)
	}
	if n := w.admitted(5, a, "/"); n != 1 {
		t.Errorf("the fallback admits %d after the refund of one", n)
	}
	w.store.Heal()
	v = w.with(a, refundable)
	w.store.Inject(fault.Fault{Reason: "unreachable", On: fault.Refund})
	if err := w.limiter.Refund(t.Context(), v.Receipt); err == nil {
		t.Error("a refund that failed is told as done")
	}
}

// A queue's call that is not made any more leaves its place to the next.
func TestAHeldCallHasAReceipt(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], algorithm: leaky-queue, limit: 10/1s, burst: 3}\n")
	a := key("a", "")
	for i, want := range []limit.Micros{0, 100 * limit.Millisecond, 200 * limit.Millisecond} {
		v := w.get(a, "/")
		if !v.Allowed || v.Hold != want || (v.Receipt != nil) != (i > 0) {
			t.Fatalf("call %d: %+v", i, v)
		}
		if i == 2 {
			if err := w.limiter.Refund(t.Context(), v.Receipt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if v := w.get(a, "/"); !v.Allowed || v.Hold != 200*limit.Millisecond {
		t.Errorf("the place was not given back: %+v", v)
	}
	if v := w.get(a, "/"); v.Allowed {
		t.Error("a fourth call fits a queue of three")
	}
}

func id(id string) func(*limiter.Request) { return func(r *limiter.Request) { r.ID = id } }

func TestARepeatedCallIsChargedOnceEvenAtTheLimit(t *testing.T) {
	w := newWorld(t, tenPerHour)
	a := key("a", "")
	for i := range 10 {
		for range 3 {
			if v := w.with(a, id(fmt.Sprint(i))); !v.Allowed || v.Views[0].Decision.Remaining != int64(9-i) {
				t.Fatalf("call %d: %+v", i, v)
			}
		}
	}
	if w.with(a, id("other")).Allowed || w.get(a, "/").Allowed {
		t.Error("an eleventh call passed")
	}
	if v := w.with(a, id("9")); !v.Allowed || !v.Views[0].Decision.Allowed || v.Views[0].Decision.RetryAfter != 0 {
		t.Errorf("the tenth, repeated when all are refused: %+v", v)
	}
	// An id is its caller's, and that of one call.
	if w.with(user("i", "t", "a"), id("9")); w.decisions("r", "deny", "store") < 1 {
		t.Error("no refusal is counted")
	}
	if n := w.admitted(10, key("b", ""), "/"); n != 10 {
		t.Errorf("another key: %d of 10", n)
	}
	if w.with(key("b", ""), id("9")).Allowed {
		t.Error("another caller's id let a call pass")
	}
	w.now += limiter.IDKept + limit.Second
	if w.with(a, id("9")).Allowed {
		t.Error("an id is remembered for longer than said")
	}
}

// An id must not be a ticket for other calls than the one it was given for.
func TestAnIDLetsNoOtherCallPass(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: r, where: origin, by: [key], limit: 10/1h}
- {name: s, where: origin, by: [key, endpoint], match: {paths: [/b]}, limit: 1/1h}
`)
	a := key("a", "")
	w.with(a, id("x"))
	w.with(a, func(r *limiter.Request) { r.ID, r.Cost = "x", 4 })
	w.with(a, func(r *limiter.Request) { r.ID, r.Path = "x", "/b" })
	if n := w.left(a); n != 10-1-4-1 {
		t.Errorf("%d left after calls of 1, 4 and 1 under one id", n)
	}
	// As many charges of the same cost, of another principal; the same principal, of another caller.
	w = newWorld(t, `
version: 1
rules:
- {name: r, where: origin, by: [tenant, endpoint], match: {paths: [/b, /c]}, limit: 10/1h}
`)
	for _, call := range []struct {
		caller identity.Caller
		path   string
	}{{key("a", "t"), "/b"}, {key("a", "t"), "/c"}, {key("b", "t"), "/b"}, {key("a", "u"), "/b"}, {key("a", "t"), "/b"}} {
		w.with(call.caller, func(r *limiter.Request) { r.ID, r.Path = "x", call.path })
	}
	for call, want := range map[string]int64{"t /b": 8, "t /c": 9, "u /b": 9} {
		tenant, path, _ := strings.Cut(call, " ")
		v := w.check(limiter.Request{Caller: key("c", tenant), Method: "GET", Path: path, Peek: true})
		if n := v.Views[0].Decision.Remaining; n != want {
			t.Errorf("%s: %d left, want %d", call, n, want)
		}
	}
}

func TestParallelRepeatsAreChargedOnce(t *testing.T) {
	w := newWorld(t, tenPerHour)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if !w.with(key("a", ""), id("x")).Allowed {
				t.Error("a repeat was refused")
			}
		})
	}
	wg.Wait()
	if n := w.left(key("a", "")); n != 9 {
		t.Errorf("%d left of 10 after one call, repeated 99 times", n)
	}
}

func TestAResetFreesACallerEverywhere(t *testing.T) {
	var told []limiter.Counter
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 3/1h, penalty: {after: 1, ceiling: 10m, decay: 1m}}\n",
		func(o *limiter.Options) { o.Announce = func(c []limiter.Counter) { told = append(told, c...) } })
	a := key("a", "")
	last := w.with(a, refundable)
	w.admitted(9, a, "/")
	held, err := w.limiter.Holding(t.Context(), a, noRequest)
	if err != nil || len(held) != 1 || !held[0].DenyCached || !held[0].Penalised || held[0].Decision.Allowed {
		t.Fatalf("%+v, %v", held, err)
	}
	// A refund does not clear a penalty, here or elsewhere.
	if err := w.limiter.Refund(t.Context(), last.Receipt); err != nil || len(told) != 0 || w.get(a, "/").Allowed {
		t.Errorf("%v, told %q", err, told)
	}
	if err := w.limiter.Reset(t.Context(), held[0]); err != nil {
		t.Fatal(err)
	}
	if n := w.admitted(9, a, "/"); n != 3 || len(told) != 1 || told[0] != held[0].Counter {
		t.Errorf("%d of 9 after a reset, told %q", n, told)
	}
	w.store.Inject(fault.Fault{Reason: "unreachable", On: fault.Reset})
	if err := w.limiter.Reset(t.Context(), held[0]); err == nil || len(told) != 1 {
		t.Errorf("a reset that failed: %v, told %q", err, told)
	}
}

// Another process reset or refunded it.
func TestForgettingACounterAsksTheStoreAgain(t *testing.T) {
	w := newWorld(t, tenPerHour)
	a := key("a", "")
	w.admitted(20, a, "/")
	c := w.counters(a, "/")[0]
	if err := w.store.Reset(t.Context(), &limiter.Call{Charges: []limiter.Charge{{Counter: c}}, Outcomes: make([]limiter.Outcome, 1)}); err != nil {
		t.Fatal(err)
	}
	if w.get(a, "/").Allowed {
		t.Fatal("the store was asked before it was told to")
	}
	w.limiter.Forget(c)
	if n := w.admitted(20, a, "/"); n != 10 {
		t.Errorf("%d of 20", n)
	}
}

// forgetful is a store whose counters another process resets while each call is on its way back.
type forgetful struct {
	limiter.Store
	forget func(*limiter.Call)
}

func (s *forgetful) Take(ctx context.Context, c *limiter.Call) error {
	err := s.Store.Take(ctx, c)
	s.forget(c)
	return err
}

// The refusal of a call with an id, which asks the store whatever is remembered, is as outdated as any by a reset.
func TestARefusalOnItsWayIsForgottenWithItsCounter(t *testing.T) {
	for _, id := range []string{"", "once"} {
		w := newWorld(t, tenPerHour)
		a := key("a", "")
		w.admitted(10, a, "/")
		c := w.counters(a, "/")[0]
		w.limiter.Forget(c)
		w.hang = &forgetful{w.store, func(call *limiter.Call) {
			if err := w.store.Reset(t.Context(), call); err != nil {
				t.Error(err)
			}
			w.limiter.Forget(c)
		}}
		if w.with(a, func(r *limiter.Request) { r.ID = id }).Allowed {
			t.Fatal("the eleventh call passed")
		}
		w.hang = nil
		if !w.get(a, "/").Allowed {
			t.Errorf("id %q: a refusal from before the reset is remembered", id)
		}
	}
}

// meanwhile is a store of several slots: each of a refused call is charged until all have answered, then given back.
type meanwhile struct {
	*fault.Store
	do func()
}

func (s *meanwhile) Take(ctx context.Context, c *limiter.Call) error {
	if len(c.Charges) < 2 {
		return s.Store.Take(ctx, c)
	}
	var parts []*limiter.Call
	for i := range c.Charges {
		part := &limiter.Call{Now: c.Now, Charges: c.Charges[i : i+1], Outcomes: make([]limiter.Outcome, 1)}
		if err := s.Store.Take(ctx, part); err != nil {
			return err
		}
		parts = append(parts, part)
	}
	s.do()
	for _, part := range parts {
		if err := s.Refund(ctx, part); err != nil {
			return err
		}
	}
	return s.Store.Take(ctx, c)
}

// A call over several slots that is refused by one holds charges of the others for a moment. Who is refused by these must not
// be for as long as if they stayed.
func TestARefusalByWhatIsGivenBackIsForgotten(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: per-key, where: origin, by: [key], limit: 1/1h}
- {name: all, where: origin, by: [global], match: {paths: [/all]}, limit: 1/1h}
`, apart())
	w.get(key("b", ""), "/all")
	w.limiter.Use(w.limiter.Release()) // the store is asked, not the deny cache
	refused := false
	w.hang = &meanwhile{w.store, func() { refused = !w.get(key("a", ""), "/").Allowed }}
	if w.get(key("a", ""), "/all").Allowed || !refused {
		t.Fatalf("a call that was to be refused was not, beside it: %v", refused)
	}
	if !w.get(key("a", ""), "/").Allowed {
		t.Error("a refusal by a charge that was given back is remembered")
	}
}
