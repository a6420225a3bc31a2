package wasmhost

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestCanaryRefusesAndTheLastGoodStays(t *testing.T) {
	m := newAsm()
	// Configuring succeeds only with a configuration of three bytes.
	m.export("proxy_on_configure", arg(1), i32(-3), add, eqz)
	m.export("proxy_on_request_headers", m.call("env.proxy_set_property", "weir_verdict", "1"), drop, i32(0))
	h := newHost(t, m, Options{Workers: 2, Guard: true})
	push(t, h, Config{Plugin: []byte("abc")})
	for range 2 {
		if err := h.Push(Config{Plugin: []byte("broken")}); !errors.Is(err, ErrPush) {
			t.Errorf("push = %v, want a refusal", err)
		}
	}
	if h.Bypassed() != 0 {
		t.Error("a refused push reached a worker")
	}
	if r := h.Send(1, Request{}); r.Status != 200 {
		t.Errorf("status %d after a refused push, want the last good one's 200", r.Status)
	}
	push(t, h, Config{Plugin: []byte("xyz")})
}

// startsOnce is a module whose first start in the process succeeds and all later ones fail: the canary passes.
func startsOnce() *asm {
	m := newAsm()
	m.export("proxy_on_vm_start", m.call("env.proxy_set_shared_data", "started", "1", -1), eqz)
	m.export("proxy_on_request_headers", m.call("env.proxy_set_property", "weir_verdict", "1"), drop, i32(0))
	return m
}

func TestStartThatFailsOnAWorkerBypassesTheFilter(t *testing.T) {
	h := newHost(t, startsOnce(), Options{Workers: 2, Guard: true})
	push(t, h, Config{}) // Envoy says nothing: the canary passed
	if h.Bypassed() != 2 {
		t.Fatalf("%d workers bypassed, want 2", h.Bypassed())
	}
	r := h.Send(0, Request{})
	if r.Status != 503 || r.From != Guard || r.Callbacks["proxy_on_request_headers"] != 0 {
		t.Errorf("status %d from %s, callbacks %v", r.Status, r.From, r.Callbacks)
	}
	h.Advance(10 * DefaultReload)
	if r := h.Send(0, Request{}); r.From != Guard {
		t.Error("a filter whose start failed must not be loaded again by itself")
	}
	if err := h.Push(Config{Plugin: []byte("next")}); !errors.Is(err, ErrPush) {
		t.Errorf("push = %v, want a refusal until vm_config.configuration changes", err)
	}

	open := newHost(t, startsOnce(), Options{})
	push(t, open, Config{})
	if r := open.Send(0, Request{}); r.Status != 200 {
		t.Errorf("status %d without a guard; Envoy lets the request on", r.Status)
	}
}

func TestTrapAnswers503UntilTheReload(t *testing.T) {
	m := newAsm()
	m.export("proxy_on_request_headers",
		m.call("env.proxy_get_header_map_value", requestHeaders, "trap", scratch, scratch+4), eqz, when(unreachable),
		m.call("env.proxy_set_property", "weir_verdict", "1"), drop, i32(0))
	h := newHost(t, m, Options{Workers: 2, Guard: true})
	push(t, h, Config{})
	h.Advance(DefaultReload)
	waiting := h.Begin(0, Request{})
	elsewhere := h.Begin(1, Request{})
	trap := Request{Headers: Headers{{"trap", "1"}}}
	statuses := []int{h.Send(0, trap).Status}
	for _, s := range []*Stream{waiting, elsewhere} {
		s.Answer(Answer{Status: 200})
		statuses = append(statuses, s.End().Status)
	}
	// The base interval since the last load is over, so the next request loads the plugin; a second trap has to wait.
	statuses = append(statuses, h.Send(0, Request{}).Status, h.Send(0, trap).Status, h.Send(0, Request{}).Status)
	h.Advance(DefaultReload - time.Microsecond)
	statuses = append(statuses, h.Send(0, Request{}).Status)
	h.Advance(time.Microsecond)
	statuses = append(statuses, h.Send(0, Request{}).Status)
	if want := []int{503, 503, 200, 200, 503, 503, 503, 200}; !slices.Equal(statuses, want) {
		t.Errorf("trap, in flight, other worker, reloaded, trap, backoff, backoff, reloaded = %v, want %v", statuses, want)
	}
	if h.Reached() != 4 {
		t.Errorf("%d requests reached the upstream, want 4", h.Reached())
	}
}

func TestHeadersBeyondEnvoysLimitNeverReachTheModule(t *testing.T) {
	m := newAsm()
	m.export("proxy_on_request_headers", i32(0))
	h := newHost(t, m, Options{})
	push(t, h, Config{})
	r := h.Send(0, Request{Headers: Headers{{"x-api-key", string(make([]byte, headerLimit))}}})
	if r.Status != 431 || len(r.Callbacks) != 0 {
		t.Errorf("status %d, callbacks %v", r.Status, r.Callbacks)
	}
}

// The control for tests that find memory flat.
func TestMemoryThatGrowsIsSeen(t *testing.T) {
	m := newAsm()
	m.export("proxy_on_request_headers", i32(1), []byte{0x40, 0}, drop, i32(0)) // memory.grow by a page
	h := newHost(t, m, Options{Workers: 2})
	push(t, h, Config{})
	before := h.Memories()
	h.Send(1, Request{})
	if after := h.Memories(); len(after) != 3 || after[0] != before[0] || after[1] != before[1] || after[2] != before[2]+64<<10 {
		t.Errorf("%v bytes after worker 1 took a page, %v before", after, before)
	}
}
