package limiter_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/shared/limit"
)

const penal = `
version: 1
rules:
- {name: r, where: origin, by: [key], algorithm: token-bucket, limit: 1/1s, penalty: {after: 3, ceiling: 1m, decay: 10s}}
`

// Case 17: a client that hammers is let back in on time, which is later for one under a penalty, and never beyond the ceiling.
func TestWhoGoesOnWhenRefusedIsRefusedForLonger(t *testing.T) {
	w := newWorld(t, penal)
	a := key("a", "")
	if !w.get(a, "/").Allowed {
		t.Fatal("the first call was refused")
	}
	longest := limit.Micros(0)
	began := w.now
	for v := w.get(a, "/"); !v.Allowed; v = w.get(a, "/") {
		longest = max(longest, v.Views[0].Decision.RetryAfter)
		w.now += 100 * limit.Millisecond
		if w.now > began+2*limit.Minute {
			t.Fatal("never let back in")
		}
	}
	if longest <= limit.Second || longest > limit.Minute {
		t.Errorf("the longest wait was %d µs at a limit of 1 a second", longest)
	}
	if took := w.now - began; took < 30*limit.Second || took > limit.Minute+limit.Second {
		t.Errorf("let back in after %d µs, want about the ceiling of a minute", took)
	}
	if n := testutil.ToFloat64(w.metrics.Rule("r").Penalties); n < 100 {
		t.Errorf("%v longer refusals are counted", n)
	}
}

func TestAPenaltyStandsOverReleasesAndIsToldToPeeks(t *testing.T) {
	w := newWorld(t, penal)
	a := key("a", "")
	w.admitted(10, a, "/")
	w.now += 1500 * limit.Millisecond // the limit alone would admit now
	w.limiter.Use(release(t, penal))
	calls := w.calls
	peek := limiter.Request{Caller: a, Method: "GET", Path: "/", Peek: true}
	wait := w.check(peek).Views[0].Decision.RetryAfter
	if v := w.get(a, "/"); v.Allowed || w.calls != calls || v.Hint.Scope != "key" || v.Hint.Wait != 30*limit.Second {
		t.Errorf("%+v after %d calls of the store", v, w.calls-calls)
	}
	for range 50 {
		w.check(peek)
	}
	if after := w.check(peek).Views[0].Decision.RetryAfter; after < wait || after > 4*wait {
		t.Errorf("50 peeks made a wait of %d µs one of %d", wait, after)
	}
	if !w.get(key("b", ""), "/").Allowed {
		t.Error("another key is refused")
	}
}

func TestCallsThatComeNearALimitAreCounted(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 20/1h}\n")
	near := func() float64 { return testutil.ToFloat64(w.metrics.Rule("r").NearLimit) }
	w.admitted(18, key("a", ""), "/") // 2 of 20 left are 10 %
	if n := near(); n != 0 {
		t.Errorf("%v calls are near the limit", n)
	}
	w.admitted(5, key("a", ""), "/")
	if n := near(); n != 2 {
		t.Errorf("%v calls of the last two are near the limit", n)
	}
}

// Those who share a counter for want of one of their own must not bear the penalty of one of them.
func TestASharedCounterHasNoPenalty(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [address], algorithm: token-bucket, limit: 3600/1h, burst: 1, penalty: {after: 1, ceiling: 1m, decay: 10s}}\n")
	w.hang = memory.New(1_000_000, nil)
	for i := range 750 { // the room that single callers have
		w.get(from(fmt.Sprintf("10.1.%d.%d", i/250, i%250)), "/")
	}
	w.admitted(50, from("192.0.2.1"), "/")
	if n := testutil.ToFloat64(w.metrics.Rule("r").Penalties); n != 0 {
		t.Errorf("%v penalties of a network", n)
	}
	w.admitted(50, from("10.1.0.1"), "/")
	if n := testutil.ToFloat64(w.metrics.Rule("r").Penalties); n == 0 {
		t.Error("no penalty of one caller")
	}
}

// What a process refuses by itself while the store is away, the limit may have room for: it is not to be held against anybody
// once the store is back.
func TestARefusalOfTheFallbackCountsForNoPenalty(t *testing.T) {
	w := newWorld(t, penal)
	a := key("a", "")
	w.store.Inject(fault.Fault{Reason: "unreachable"})
	w.get(a, "/")
	for range 10 {
		if v := w.get(a, "/"); v.Allowed || v.Views[0].Decision.RetryAfter > limit.Second {
			t.Fatalf("by the fallback: %+v", v)
		}
	}
	w.store.Heal()
	if v := w.get(a, "/"); !v.Allowed {
		t.Errorf("with the store back: %+v", v)
	}
}
