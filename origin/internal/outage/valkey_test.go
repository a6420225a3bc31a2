package outage_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/origin/internal/clock"
	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/decorate"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/origin/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is an origin's limiter on a real server.
type process struct {
	limiter *limiter.Limiter
	store   *valkey.Store
	metrics *telemetry.Metrics
}

// start starts a process that waits for its store for a deadline at most, and shares its limits with n-1 others.
func start(t *testing.T, addr, text string, deadline time.Duration, n int64) *process {
	t.Helper()
	r, err := rules.Parse("rules", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{metrics: telemetry.New()}
	p.store = valkey.New(valkey.Options{Addrs: []string{addr}, Log: slog.New(slog.DiscardHandler), Commands: p.metrics.StoreCommands})
	t.Cleanup(p.store.Close)
	p.store.AwaitFirst(t.Context())
	p.limiter = limiter.New(limiter.Options{
		Store: decorate.Metered(decorate.Deadline(p.store, deadline), p.metrics), Fallback: memory.New(10_000, nil), Secret: []byte(strings.Repeat("s", 32)),
		Now:       clock.Anchored(),
		Processes: func() int64 { return n }, Metrics: p.metrics, Log: slog.New(slog.DiscardHandler),
	}, r)
	t.Cleanup(p.limiter.Close)
	return p
}

func (p *process) check(t *testing.T, key, path string) limiter.Verdict {
	v, err := p.limiter.Check(context.Background(), limiter.Request{
		Caller: identity.Caller{Key: &keys.Key{ID: key}, Address: netip.MustParseAddr("192.0.2.1")}, Method: "GET", Path: path})
	if err != nil {
		t.Error(err)
	}
	return v
}

func (p *process) breaker() breaker.State { return p.store.Shards()[0].Breaker }

func (p *process) asked() int {
	return int(testutil.ToFloat64(p.metrics.StoreCommands.WithLabelValues("fcall")))
}

func (p *process) await(t *testing.T, state breaker.State) {
	t.Helper()
	until(t, fmt.Sprintf("the breaker is %v", state), func() bool { return p.breaker() == state })
}

// awaitStore waits until the shared counter of key a is used again.
func (p *process) awaitStore(t *testing.T) {
	t.Helper()
	until(t, "the server is used again", func() bool { return !p.ask(t, "a", "/", peek).Degraded })
}

// until asks again and again: a process tells nobody when it is back with its server.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so in time: %s", what)
		}
	}
}

// Case 13. Every call is answered once, by its rule's mode; of a server that stopped nobody asks more than once an open
// period; what it finds in its sockets later charges nobody.
func TestAStoppedStoreIsAskedOnceAPeriodAndAnswersGoOn(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	const whole, n = 40, 4
	p := start(t, server.Addr, fmt.Sprintf(`
version: 1
rules:
- {name: local, where: origin, match: {paths: [/local]}, by: [key], limit: %[1]d/24h}
- {name: open, where: origin, match: {paths: [/open]}, by: [key], limit: %[1]d/24h, on-store-failure: open}
- {name: closed, where: origin, match: {paths: [/closed]}, by: [key], limit: %[1]d/24h, on-store-failure: closed}
`, whole), 10*time.Millisecond, n)
	modes := []string{"/local", "/open", "/closed"}
	passed, calls := map[string]int{}, 0
	var slowest time.Duration
	round := func() {
		for _, path := range modes {
			began := time.Now()
			v := p.check(t, "a", path)
			slowest = max(slowest, time.Since(began))
			if calls++; v.Allowed {
				passed[path]++
			}
			if !v.Degraded {
				t.Errorf("%s: %+v", path, v)
			}
		}
	}
	before := server.Calls()
	server.Stop()
	defer server.Continue()
	for end := time.Now().Add(20 * time.Second); p.breaker() == breaker.Closed && time.Now().Before(end); {
		round()
	}
	toOpen, inFirst := calls, slowest
	asked := p.asked()
	slowest = 0
	if p.breaker() != breaker.Open {
		t.Fatalf("the breaker is %v after %d calls", p.breaker(), calls)
	}
	for range 500 { // an open period is much longer
		round()
	}
	if more := p.asked() - asked; more != 0 {
		t.Errorf("%d calls of the store while the breaker was open", more)
	}
	t.Logf("opened after %d calls, the slowest took %v; the slowest of %d after that %v", toOpen, inFirst, calls-toOpen, slowest)

	p.await(t, breaker.Probing)
	var all sync.WaitGroup
	var admitted atomic.Int64
	for i := range 200 { // at once
		all.Go(func() {
			if v := p.check(t, fmt.Sprint("at once ", i), "/open"); v.Allowed && v.Degraded {
				admitted.Add(1)
			}
		})
	}
	all.Wait()
	if more := p.asked() - asked; more != 1 {
		t.Errorf("%d calls of the store in an open period, want 1", more)
	}
	if admitted.Load() != 200 {
		t.Errorf("%d of 200 were answered by their mode", admitted.Load())
	}
	if passed["/local"] != whole/n || passed["/open"] != calls/3 || passed["/closed"] != 0 {
		t.Errorf("of %d calls each passed: %v, want %d by the fallback, all, none", calls/3, passed, whole/n)
	}

	server.Continue()
	began := time.Now()
	for end := time.Now().Add(20 * time.Second); p.check(t, "probe", "/open").Degraded && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	t.Logf("the shared counters hold again %v after the server runs on", time.Since(began))
	sent := p.asked()
	if ran := int(server.Since(before)["fcall"]); ran > sent {
		t.Errorf("the server ran %d checks, of which %d were sent", ran, sent)
	}
	v := p.check(t, "a", "/local")
	if d := v.Views[0].Decision; v.Degraded || !v.Allowed || d.Remaining != whole-1 {
		t.Errorf("what a stopped server found in its sockets was charged, or it does not answer: %+v", v)
	}
}

// Case 14 of a process that misses its deadline: the store admits one of a hundred, but is not heard. The process cannot know
// that nothing is left, and admits its share.
func TestAHundredAtOnceWithOneLeftMissTheirDeadline(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	const whole, n = 100, 4
	text := fmt.Sprintf("version: 1\nrules:\n- {name: r, where: origin, by: [key], algorithm: fixed-window, limit: %d/24h}\n", whole)
	other := start(t, server.Addr, text, 10*time.Second, n)
	for range whole - 1 {
		if v := other.check(t, "a", "/"); !v.Allowed || v.Degraded {
			t.Fatalf("%+v", v)
		}
	}
	proxy := valkeytest.StartProxy(t, server.Addr)
	p := start(t, proxy.Addr, text, 10*time.Millisecond, n)
	proxy.Delay(0, 100*time.Millisecond)
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if p.check(t, "a", "/").Allowed {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	left := other.check(t, "a", "/")
	t.Logf("%d of 100 passed with one left; the store admits one more: %v", passed.Load(), left.Allowed)
	if got := passed.Load(); got < 1 || got > whole/n+1 {
		t.Errorf("%d passed, want at most the share of %d and what the store admitted, 1", got, whole/n)
	}
}
