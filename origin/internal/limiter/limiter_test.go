package limiter_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/decorate"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
)

// world is a limiter on a memory store whose faults a test commands, with a clock that a test moves.
type world struct {
	t       *testing.T
	limiter *limiter.Limiter
	metrics *telemetry.Metrics
	logged  *strings.Builder

	now   limit.Micros
	store *fault.Store // in front of the memory store
	local *memory.Store
	calls int               // of the store, to take
	seen  []limiter.Counter // of the last one
	asked []limiter.Charge  // of the last one
	lag   limit.Micros      // of one call to the store
	hang  limiter.Store     // if not nil, asked in place of store
	mu    sync.Mutex
}

func (w *world) Refund(ctx context.Context, c *limiter.Call) error { return w.store.Refund(ctx, c) }
func (w *world) Reset(ctx context.Context, c *limiter.Call) error  { return w.store.Reset(ctx, c) }

// Take decides by the world's time in the middle of its lag, as a store with a clock of its own.
func (w *world) Take(ctx context.Context, call *limiter.Call) error {
	w.mu.Lock()
	w.calls++
	w.seen, w.asked = w.seen[:0], append(w.asked[:0], call.Charges...)
	for i := range call.Charges {
		w.seen = append(w.seen, call.Charges[i].Counter)
	}
	w.now += w.lag / 2
	at := *call
	at.Now = w.now
	w.mu.Unlock()
	var err error
	if w.hang != nil {
		err = w.hang.Take(ctx, &at)
	} else {
		err = w.store.Take(ctx, &at)
	}
	w.mu.Lock()
	w.now += w.lag / 2
	call.By = at.By
	w.mu.Unlock()
	return err
}

func release(t *testing.T, text string) *rules.Release {
	t.Helper()
	r, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newWorld(t *testing.T, text string, with ...func(*limiter.Options)) *world {
	w := &world{t: t, now: 1000 * limit.Hour, metrics: telemetry.New(), logged: &strings.Builder{},
		store: fault.New(memory.New(10_000, nil)), local: memory.New(10_000, nil)}
	o := limiter.Options{
		Store: decorate.Metered(w, w.metrics), Fallback: w.local, Secret: []byte(strings.Repeat("s", 32)),
		Now: w.clock, Metrics: w.metrics, Log: slog.New(slog.NewTextHandler(w.logged, nil)),
	}
	for _, set := range with {
		set(&o)
	}
	w.limiter = limiter.New(o, release(t, text))
	t.Cleanup(w.limiter.Close)
	return w
}

// onMemory leaves out what a world has between the limiter and its memory store.
func onMemory(o *limiter.Options) { o.Store = o.Fallback }

func (w *world) clock() limit.Micros {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func key(id, tenant string) identity.Caller {
	return identity.Caller{Key: &keys.Key{ID: id, Tenant: tenant}, Address: netip.MustParseAddr("192.0.2.1")}
}

func from(address string) identity.Caller {
	return identity.Caller{Address: netip.MustParseAddr(address)}
}

func (w *world) get(c identity.Caller, path string) limiter.Verdict {
	return w.check(limiter.Request{Caller: c, Method: "GET", Path: path})
}

// check makes a call that must be understood.
func (w *world) check(r limiter.Request) limiter.Verdict {
	w.t.Helper()
	v, err := w.limiter.Check(context.Background(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// admitted makes n calls and counts those that pass.
func (w *world) admitted(n int, c identity.Caller, path string) (passed int) {
	for range n {
		if w.get(c, path).Allowed {
			passed++
		}
	}
	return passed
}

func (w *world) decisions(rule, outcome, source string) int {
	mfs, err := w.metrics.Registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, mf := range mfs {
		if mf.GetName() != "weir_decisions_total" {
			continue
		}
		for _, m := range mf.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["rule"] == rule && labels["outcome"] == outcome && labels["source"] == source {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	w.t.Fatalf("no decisions of rule %s, outcome %s, source %s", rule, outcome, source)
	return 0
}

const perKey = `
version: 1
rules:
- {name: per-key, where: origin, by: [key], limit: 10/1h}
- {name: per-address, where: origin, by: [address], limit: 1000/1h}
`

func TestEachCallerHasItsOwnLimit(t *testing.T) {
	w := newWorld(t, perKey)
	if n := w.admitted(15, key("a", ""), "/"); n != 10 {
		t.Errorf("admitted %d of 15 at 10/h", n)
	}
	if n := w.admitted(15, key("b", ""), "/"); n != 10 {
		t.Errorf("admitted %d of 15 of another key", n)
	}
	v := w.get(key("a", ""), "/")
	if v.Allowed || v.Code != header.RateLimited || v.Views[v.Deciding].Rule != "per-key" || v.Views[v.Deciding].Decision.RetryAfter <= 0 {
		t.Errorf("verdict %+v", v)
	}
	if n := w.admitted(5, from("198.51.100.7"), "/"); n != 5 {
		t.Errorf("a caller without a key was refused by a rule by key: %d of 5", n)
	}
}

// Case 18: what runs into the same text must not run into the same counter.
func TestPrincipalsThatLookAlikeHaveCountersOfTheirOwn(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: by-both, where: origin, by: [tenant, key], limit: 1/1h}
- {name: by-endpoint, where: origin, by: [key, endpoint], match: {paths: ["/a/**", /b]}, limit: 1000/1h}
`)
	odd := []string{"a", "", "b_c", "a_b", "c", "{x}", "x}", ":", "\n", "\x00", "\xff\xfe", strings.Repeat("k", 10_000)}
	for _, tenant := range odd[2:] {
		for _, id := range odd {
			if n := w.admitted(2, key(id, tenant), "/"); n != 1 {
				t.Errorf("tenant %.9q key %.9q: admitted %d of 2 at 1/h", tenant, id, n)
			}
		}
	}
	// What stands before a part, in the middle of one: its kind and the length of nothing.
	for kind := range byte(8) {
		between := string([]byte{kind, 0, 0, 0, 0})
		for _, one := range [][2]string{{"y" + between + "z", "x"}, {"z", "x" + between + "y"}, {"x", "y" + between + "z"}, {"x" + between + "y", "z"}} {
			if w.admitted(1, key(one[0], one[1]), "/") != 1 {
				t.Errorf("kind %d: a tenant and a key run into each other", kind)
			}
		}
	}
	w.get(key("z", "z"), "/a/x")
	for _, c := range w.seen {
		if text := string(c[:]); strings.ContainsAny(text, "\n\x00") || len(text) != limiter.CounterSize || !strings.HasPrefix(text, "w1:{") || strings.Contains(text, "z:z") {
			t.Errorf("counter name %q", text)
		}
	}
}

// A cluster keeps a caller's counters in one slot, which is one step, if their rules have the same first part.
func TestCountersWhoseFirstPartIsAlikeShareASlot(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: k, where: origin, by: [key], limit: 100/1h}
- {name: e, where: origin, by: [key, endpoint], match: {paths: [/a, /b]}, limit: 100/1h}
- {name: t, where: origin, by: [key, tenant], algorithm: gcra, limit: 100/1m}
`)
	slots := map[string]bool{}
	for i := range 100 {
		own := map[string]bool{}
		for _, path := range []string{"/a", "/b"} {
			for _, c := range w.counters(key(fmt.Sprint(i), "t"), path) {
				own[string(c[:10])] = true
			}
		}
		if len(own) != 1 {
			t.Errorf("key %d: counters in slots %v", i, own)
		}
		maps.Copy(slots, own)
	}
	if len(slots) < 95 {
		t.Errorf("100 keys share %d slots", len(slots))
	}
}

func TestAddressesOfOneNetworkShareACounter(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [address], limit: 10/1h}\n")
	passed := 0
	for i := range 100 {
		passed += w.admitted(1, from(fmt.Sprintf("2001:db8::%x", i+1)), "/")
	}
	if passed != 10 {
		t.Errorf("100 addresses of one /64 got %d calls of 10", passed)
	}
	if w.admitted(1, from("2001:db8:0:1::1"), "/") != 1 || w.admitted(1, from("::ffff:192.0.2.9"), "/") != 1 {
		t.Error("another network was refused")
	}
	if w.admitted(20, from("192.0.2.9"), "/") != 9 {
		t.Error("an IPv4 address and its mapped form are two callers")
	}
}

func TestEndpointsAreMethodAndPatternNeverThePath(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [endpoint], match: {paths: [\"/a/**\", /b]}, limit: 10/1h}\n")
	passed := 0
	for i := range 50 {
		passed += w.admitted(1, from("192.0.2.1"), fmt.Sprintf("/a/%d", i))
	}
	if passed != 10 {
		t.Errorf("50 paths of one pattern got %d calls of 10", passed)
	}
	if w.admitted(20, from("192.0.2.1"), "/b") != 10 || w.admitted(20, from("192.0.2.1"), "/c") != 20 {
		t.Error("patterns share a counter, or a path that matches none is limited")
	}
	made := 0
	for i := range 50 {
		v := w.check(limiter.Request{Caller: from("192.0.2.1"), Method: fmt.Sprintf("M%d", i), Path: "/b"})
		if v.Allowed {
			made++
		}
	}
	if made != 10 {
		t.Errorf("50 made-up methods got %d calls of 10", made)
	}
}

// Cases 17 and 5 of a limiter's usual mistakes: a refusal charges no other rule.
func TestARefusalChargesNoOtherRule(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: tight, where: origin, by: [key], limit: 5/1h}
- {name: wide, where: origin, by: [tenant], limit: 20/1h}
`)
	w.admitted(100, key("a", "t"), "/")
	if n := w.admitted(100, key("b", "t"), "/"); n != 5 {
		t.Errorf("key b got %d of its 5", n)
	}
	w.admitted(100, key("c", "t"), "/")
	if n := w.admitted(100, key("d", "t"), "/"); n != 5 {
		t.Errorf("the tenant's 20 were spent by refused calls: key d got %d of 5", n)
	}
	if n := w.admitted(1, key("e", "t"), "/"); n != 0 {
		t.Error("the tenant got more than its 20")
	}
}

func TestAHammeringClientCostsTheStoreNothingAndIsLetBackInOnTime(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 10/10s}\n")
	w.admitted(10, key("a", ""), "/")
	calls := w.calls
	v := w.get(key("a", ""), "/") // the tenth call left no room, so this is a hit already
	wait := v.Views[0].Decision.RetryAfter
	for now := w.now; w.now < now+wait-1; w.now += wait / 1000 {
		if w.get(key("a", ""), "/").Allowed {
			t.Fatalf("admitted %d µs before its time", now+wait-w.now)
		}
	}
	if w.calls != calls {
		t.Errorf("1000 refused calls were %d calls of the store", w.calls-calls)
	}
	if hits := testutil.ToFloat64(w.metrics.DenyCacheHits); hits < 1000 || w.decisions("r", "deny", "deny_cache") < 1000 {
		t.Errorf("%v hits counted", hits)
	}
	w.now += wait/1000 + 1
	if !w.get(key("a", ""), "/").Allowed {
		t.Error("not let back in after its wait")
	}
}

// The store decides somewhere on a round trip: what is remembered opens after the store would, by at most that trip.
func TestARememberedRefusalNeverOpensEarly(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 10/10s}\n")
	w.lag = 20 * limit.Millisecond
	w.admitted(10, key("a", ""), "/")
	began := w.now
	calls := w.calls
	var first limiter.Verdict
	for w.calls == calls {
		first = w.get(key("a", ""), "/")
		w.now++
		if w.now > began+40*limit.Second {
			t.Fatal("never opened")
		}
		if w.calls == calls {
			w.now += limit.Millisecond - 1
		}
	}
	if !first.Allowed {
		t.Errorf("the deny cache opened before the store, which refused: %+v", first.Views)
	}
}

// Case 16.
func TestAChangedLimitAppliesAtTheNextCall(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 10/1h}\n")
	w.admitted(20, key("a", ""), "/")
	w.limiter.Use(release(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 15/1h}\n"))
	if n := w.admitted(20, key("a", ""), "/"); n != 5 {
		t.Errorf("after raising 10 to 15: %d more", n)
	}
	w.limiter.Use(release(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 5/1h}\n"))
	v := w.get(key("a", ""), "/")
	if v.Allowed || v.Views[0].Decision.Remaining != 0 || v.Views[0].Decision.Limit != 5 {
		t.Errorf("after lowering to 5: %+v", v.Views)
	}
	calls := w.calls
	if w.get(key("a", ""), "/"); w.calls != calls {
		t.Error("a remembered refusal asked the store")
	}
	w.limiter.Use(w.limiter.Release()) // the same limits once more: nobody knows what else has changed
	if w.get(key("a", ""), "/"); w.calls != calls+1 {
		t.Error("a refusal is remembered over a release")
	}
	w.limiter.Use(release(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 5/2h}\n"))
	if n := w.admitted(20, key("a", ""), "/"); n != 5 {
		t.Errorf("a new window begins with a new counter: %d of 5", n)
	}
}

// Case 16, where it is not the release that changes: a key got another tier, or two callers of one counter have limits of
// their own. What refuses the one says nothing of the other.
func TestARefusalOfOneTierIsNoneOfALargerOne(t *testing.T) {
	const text = `
version: 1
tiers: {free: {limit: 2/1h}, paid: {limit: 6/1h}, burst: {limit: 2/1h, burst: 9}}
rules:
- {name: r, where: origin, by: [tenant], algorithm: %s, tier: true}
`
	of := func(tier string) identity.Caller {
		return identity.Caller{Key: &keys.Key{ID: "k", Tenant: "t", Tier: tier}, Address: netip.MustParseAddr("192.0.2.1")}
	}
	for _, algorithm := range []string{"sliding-window", "token-bucket", "gcra", "sliding-log"} {
		w := newWorld(t, fmt.Sprintf(strings.ReplaceAll(text, ", burst: 9", map[bool]string{true: ", burst: 9"}[algorithm == "token-bucket"]), algorithm))
		w.admitted(20, of("free"), "/")
		calls := w.calls
		if n := w.admitted(10, of("free"), "/"); n != 0 || w.calls != calls {
			t.Errorf("%s: exhausted, %d admitted in %d calls of the store", algorithm, n, w.calls-calls)
		}
		// A bucket keeps its level; a window has the rest at once.
		if v := w.get(of("paid"), "/"); w.calls == calls || v.Allowed != strings.HasPrefix(algorithm, "sliding") || v.Views[0].Decision.Limit != 6 {
			t.Errorf("%s: a larger tier of the same counter was answered %+v from memory: %v", algorithm, v.Views, w.calls == calls)
		}
		w.admitted(20, of("paid"), "/")
		calls = w.calls
		v := w.get(of("free"), "/")
		if n := w.admitted(10, of("free"), "/") + w.admitted(10, of("paid"), "/"); n != 0 || w.calls != calls || v.Allowed || v.Views[0].Decision.Limit != 2 {
			t.Errorf("%s: both exhausted, %d admitted in %d calls of the store; %+v", algorithm, n, w.calls-calls, v.Views)
		}
		if algorithm == "token-bucket" {
			if w.get(of("burst"), "/"); w.calls == calls {
				t.Errorf("a larger burst was answered from memory")
			}
		}
	}
}

const modes = `
version: 1
rules:
- {name: local, where: origin, by: [key], match: {paths: [/local]}, limit: 3/1h}
- {name: open, where: origin, by: [key], match: {paths: [/open]}, limit: 3/1h, on-store-failure: open}
- {name: closed, where: origin, by: [key], match: {paths: [/closed]}, limit: 3/1h, on-store-failure: closed}
- {name: both, where: origin, by: [tenant], match: {paths: [/closed]}, limit: 3/1h}
`

func TestWithoutAStoreEachRuleAnswersByItsMode(t *testing.T) {
	w := newWorld(t, modes)
	w.store.Inject(fault.Fault{Reason: "deadline"})
	a := key("a", "t")
	if n := w.admitted(10, a, "/local"); n != 3 {
		t.Errorf("local: %d of 10 at 3/h", n)
	}
	if n := w.admitted(10, a, "/open"); n != 10 {
		t.Errorf("open: %d of 10", n)
	}
	for range 10 {
		if v := w.get(a, "/closed"); v.Allowed || v.Code != header.LimiterUnavailable || !v.Degraded {
			t.Fatalf("closed: %+v", v)
		}
	}
	if v := w.get(key("b", "u"), "/local"); !v.Allowed || !v.Degraded {
		t.Errorf("local: %+v", v)
	}
	if n := testutil.ToFloat64(w.metrics.StoreErrors.WithLabelValues("deadline")); n != 31 {
		t.Errorf("%v store errors counted, want 31", n)
	}
	if w.decisions("open", "open", "local") != 10 || w.decisions("closed", "closed", "local") != 10 || w.decisions("local", "deny", "local") != 7 {
		t.Error("decisions are not counted by what answered")
	}
	// The store is back: the shared counters are the truth at once, and know of nothing.
	w.store.Heal()
	if n := w.admitted(10, a, "/local"); n != 3 {
		t.Errorf("after recovery: %d of 10 at 3/h", n)
	}
	if n := w.admitted(10, a, "/closed"); n != 3 {
		t.Errorf("a closed rule's refusals charged another rule: %d of 10 at 3/h", n)
	}
}

// Case 15.
func TestAForeignValueTroublesItsRuleAlone(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: local, where: origin, by: [key], match: {paths: [/local]}, limit: 3/1h}
- {name: open, where: origin, by: [key], match: {paths: [/open]}, limit: 3/1h, on-store-failure: open}
- {name: closed, where: origin, by: [key], match: {paths: [/closed]}, limit: 3/1h, on-store-failure: closed}
- {name: beside, where: origin, by: [address], limit: 8/1h}
`)
	for _, path := range []string{"/local", "/open", "/closed"} {
		w.check(limiter.Request{Caller: key("a", ""), Method: "GET", Path: path, Peek: true})
		w.store.Spoil(w.seen[0])
	}
	a := key("a", "")
	if v := w.get(a, "/closed"); v.Allowed || v.Code != header.LimiterUnavailable {
		t.Errorf("closed: %+v", v)
	}
	if n := w.admitted(5, a, "/local"); n != 3 {
		t.Errorf("local: %d of 5 at 3/h", n)
	}
	// beside has counted the three; refused calls and the closed one did not charge it.
	if n := w.admitted(10, a, "/open"); n != 5 {
		t.Errorf("open beside a limit of 8 with 3 used: %d of 10", n)
	}
	if n := strings.Count(w.logged.String(), "reason=foreign"); n != 1 {
		t.Errorf("%d lines logged, want one a minute:\n%s", n, w.logged)
	}
	if strings.Contains(w.logged.String(), "192.0.2.1") {
		t.Error("an address stands in the log")
	}
}

func TestALocalChargeIsGivenBackWhenTheStoreRefuses(t *testing.T) {
	w := newWorld(t, `
version: 1
rules:
- {name: spoilt, where: origin, by: [key], limit: 5/1h}
- {name: full, where: origin, by: [address], limit: 1/1h}
`)
	w.admitted(1, from("192.0.2.1"), "/") // uses up full for this address
	w.check(limiter.Request{Caller: identity.Caller{Key: &keys.Key{ID: "a"}, Address: netip.MustParseAddr("192.0.2.50")}, Method: "GET", Path: "/", Peek: true})
	w.store.Spoil(w.seen[0])
	w.limiter.Use(w.limiter.Release()) // forget refusals, so that the store is asked
	for range 20 {
		w.limiter.Use(w.limiter.Release())
		if w.get(key("a", ""), "/").Allowed {
			t.Fatal("admitted over a full limit")
		}
	}
	passed := 0
	for i := range 10 {
		c := identity.Caller{Key: &keys.Key{ID: "a"}, Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)})}
		if w.get(c, "/").Allowed {
			passed++
		}
	}
	if passed != 5 {
		t.Errorf("the fallback admitted %d of its 5: refused calls were charged", passed)
	}
}

func TestAPeekChargesNothingAndAsksTheStore(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 2/1h}\n")
	peek := func() limiter.Verdict {
		return w.check(limiter.Request{Caller: key("a", ""), Method: "GET", Path: "/", Peek: true})
	}
	for range 10 {
		if v := peek(); !v.Allowed || v.Views[0].Decision.Remaining != 2 {
			t.Fatalf("%+v", v.Views)
		}
	}
	w.admitted(2, key("a", ""), "/")
	calls := w.calls
	if v := peek(); v.Allowed || v.Views[0].Decision.Remaining != 0 || w.calls != calls+1 {
		t.Errorf("at the limit: %+v after %d calls", v, w.calls-calls)
	}
}

func TestNoRuleMeansNoStoreAndNoHeaders(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], match: {paths: [/a]}, limit: 2/1h}\n")
	v := w.get(key("a", ""), "/b")
	if !v.Allowed || v.Deciding != -1 || len(v.Views) != 0 || w.calls != 0 {
		t.Errorf("%+v, %d calls", v, w.calls)
	}
}

// A hundred at once through the whole pipeline: deny cache and store together admit exactly one.
func TestParallelCallsWithOneLeftAdmitOne(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 10/1h}\n")
	w.admitted(9, key("a", ""), "/")
	var wg sync.WaitGroup
	var mu sync.Mutex
	passed := 0
	for range 100 {
		wg.Go(func() {
			if w.get(key("a", ""), "/").Allowed {
				mu.Lock()
				passed++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if passed != 1 {
		t.Errorf("%d of 100 got the last one", passed)
	}
}

func benchmarked(t testing.TB, secrets *limiter.Rotation) (*limiter.Limiter, func(*limiter.Limiter, string)) {
	r, err := rules.Parse("r", []byte(`
version: 1
rules:
- {name: per-key, where: origin, by: [key], limit: 9007199254740991/1h}
- {name: per-address, where: origin, by: [address], match: {paths: [/two, /three, /shadow, /none]}, limit: 9007199254740991/1h}
- {name: per-endpoint, where: origin, by: [key, endpoint], match: {paths: [/three]}, algorithm: token-bucket, limit: 9007199254740991/1h}
- {name: trial, where: origin, by: [tenant], match: {paths: [/shadow]}, algorithm: gcra, limit: 9007199254740991/1h, mode: shadow}
- {name: none, where: origin, by: [global], limit: 1/1h, match: {paths: [/none]}}
overrides:
- {rule: per-key, key-id: a, limit: 9007199254740990/1h}
`))
	if err != nil {
		t.Fatal(err)
	}
	store, metrics := memory.New(memory.DefaultSize, nil), telemetry.New()
	l := limiter.New(limiter.Options{Store: decorate.Traced(decorate.Metered(store, metrics)), Fallback: store, Secret: make([]byte, 32), Rotation: secrets, Now: func() limit.Micros { return limit.Hour },
		Metrics: metrics, Log: slog.New(slog.DiscardHandler)}, r)
	caller := key("a", "t")
	return l, func(l *limiter.Limiter, path string) {
		if _, err := l.Check(context.Background(), limiter.Request{Caller: caller, Method: "GET", Path: path}); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	l, check := benchmarked(b, nil)
	for name, path := range map[string]string{"1 rule": "/one", "2 rules": "/two", "3 rules": "/three", "2 rules, 1 shadow": "/shadow", "refused": "/none"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				check(l, path)
			}
		})
	}
}
