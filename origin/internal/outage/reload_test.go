package outage_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/header"
)

// ask is a call of key to path, as set says.
func (p *process) ask(t *testing.T, key, path string, set func(*limiter.Request)) limiter.Verdict {
	t.Helper()
	r := limiter.Request{Caller: identity.Caller{Key: &keys.Key{ID: key}}, Method: "GET", Path: path}
	set(&r)
	v, err := p.limiter.Check(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (p *process) passes(t *testing.T, calls int, key, path string) (passed int) {
	for range calls {
		if p.check(t, key, path).Allowed {
			passed++
		}
	}
	return passed
}

func peek(r *limiter.Request)             { r.Peek = true }
func refundable(r *limiter.Request)       { r.Refundable = true }
func id(id string) func(*limiter.Request) { return func(r *limiter.Request) { r.ID = id } }
func (p *process) left(t *testing.T, k string) int {
	return int(p.ask(t, k, "/", peek).Views[0].Decision.Remaining)
}

// Case 13, on a server that is out of memory and has some again. Meanwhile rules change, calls are repeated, looked at and taken
// back: each side, the server and the fallback, knows what it charged, once, and nothing of the other's.
func TestRulesChangeAndCallsAreTakenBackWhileTheServerIsOutOfMemory(t *testing.T) {
	t.Parallel()
	const n = 4
	server := valkeytest.Start(t)
	text := func(limit int) string {
		return fmt.Sprintf(`
version: 1
rules:
- {name: r, where: origin, by: [key], algorithm: fixed-window, limit: %d/24h, penalty: {after: 1, ceiling: 10m, decay: 1m}}
- {name: seen, where: origin, by: [key], algorithm: fixed-window, limit: 1/24h, mode: shadow}
- {name: exact, where: origin, match: {paths: [/exact]}, by: [key], limit: 40/24h, on-store-failure: closed}
`, limit)
	}
	p := start(t, server.Addr, text(40), 10*time.Second, n)
	use := func(text string) {
		t.Helper()
		r, err := rules.Parse("rules", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		p.limiter.Use(r)
	}
	memory := func(bytes string) {
		t.Helper()
		if err := server.Do("CONFIG", "SET", "maxmemory", bytes).Error(); err != nil {
			t.Fatal(err)
		}
	}
	p.ask(t, "a", "/", id("before"))
	before := p.ask(t, "a", "/", refundable)
	if left := p.left(t, "a"); left != 38 {
		t.Fatalf("%d left of 40 after two calls", left)
	}

	memory("1")
	// Until then the server, which may still be read, answers peeks.
	for end := time.Now().Add(20 * time.Second); p.breaker() != breaker.Open; p.check(t, "x", "/") {
		if time.Now().After(end) {
			t.Fatal("the breaker does not open")
		}
	}
	// A call that the server charged, repeated: the fallback, which cannot know, charges it once.
	if v := p.ask(t, "a", "/", id("before")); !v.Degraded || !v.Allowed {
		t.Errorf("a repeat in failure: %+v", v)
	}
	for range 3 {
		p.ask(t, "a", "/", id("before"))
		p.ask(t, "a", "/", peek)
	}
	during := p.ask(t, "a", "/", refundable)
	if v := p.ask(t, "a", "/", peek); v.Views[0].Decision.Remaining != 8 || v.Views[0].Decision.Limit != 10 || len(v.Views) != 1 {
		t.Errorf("of a share of 10 two are charged: %+v", v)
	}
	if err := p.limiter.Refund(t.Context(), before.Receipt); err == nil {
		t.Error("a refund that the server did not make is told as done")
	}
	if err := p.limiter.Refund(t.Context(), during.Receipt); err != nil {
		t.Error(err)
	}
	if passed := p.passes(t, 30, "a", "/"); passed != 9 {
		t.Errorf("%d passed, want the 9 that are left of the share", passed)
	}
	if v := p.check(t, "b", "/exact"); v.Allowed || v.Code != header.LimiterUnavailable {
		t.Errorf("a closed rule: %+v", v)
	}
	use(text(80))
	if passed := p.passes(t, 30, "a", "/"); passed != 10 {
		t.Errorf("%d passed once the limit rose to 80, want the 10 by which the share rose", passed)
	}
	use(text(20))
	if v := p.check(t, "a", "/"); v.Allowed || v.Views[0].Decision.Limit != 5 {
		t.Errorf("a limit of 20: %+v", v)
	}
	use("version: 1\nrules:\n- {name: other, where: origin, by: [key], limit: 1/24h}\n")
	if v := p.check(t, "a", "/"); !v.Allowed || v.Views[0].Rule != "other" {
		t.Errorf("without the rule: %+v", v)
	}
	use(text(40))
	if passed := p.passes(t, 10, "a", "/"); passed != 0 {
		t.Errorf("%d passed once the rule was back, whose share is used up", passed)
	}

	memory("0")
	p.awaitStore(t)
	// No refusal of the fallback is held against the caller, nor a charge of it.
	if v := p.ask(t, "a", "/", id("before")); !v.Allowed || v.Degraded || p.left(t, "a") != 38 {
		t.Errorf("a repeat of a call from before: %+v, %d left, want 38", v, p.left(t, "a"))
	}
	if passed := p.passes(t, 50, "a", "/"); passed != 38 {
		t.Errorf("%d passed of the 38 that the server had left", passed)
	}
}
