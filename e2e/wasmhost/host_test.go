package wasmhost

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"
)

func newHost(t *testing.T, module *asm, o Options) *Host {
	t.Helper()
	h, err := New(module.bytes(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func push(t *testing.T, h *Host, c Config) {
	t.Helper()
	if err := h.Push(c); err != nil {
		t.Fatalf("%v\n%s", err, h.LogText())
	}
}

func TestImportsThatEnvoyLacksAreAllNamed(t *testing.T) {
	m := newAsm()
	m.declare(Import{Module: "env", Name: "proxy_get_log_level", Params: []api.ValueType{api.ValueTypeI32}})
	m.declare(Import{Module: "wasi_snapshot_preview1", Name: "proc_raise"})
	m.declare(Import{Module: "env", Name: "proxy_log"}) // in another type
	_, err := New(m.bytes(), Options{})
	for _, want := range []string{
		"missing import env.proxy_get_log_level", "missing import wasi_snapshot_preview1.proc_raise",
		"import env.proxy_log has another type",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

func TestInitializeRunsAndMayCallLittle(t *testing.T) {
	m := newAsm()
	m.export("_initialize", m.call("env.proxy_log", 2, "init"), drop)
	h := newHost(t, m, Options{})
	push(t, h, Config{})
	// The base VM, the canary, the main thread and one worker.
	if got := infoLines(h); len(got) != 4 || h.Created() != 4 {
		t.Errorf("_initialize ran %d times in %d VMs, want 4 in 4", len(got), h.Created())
	}

	m = newAsm()
	m.export("_initialize", m.call("env.proxy_set_shared_data", "k", "v", 0), drop)
	h = newHost(t, m, Options{})
	if err := h.Push(Config{}); !errors.Is(err, ErrPush) {
		t.Errorf("push = %v, want a refusal: shared data is out of bounds for _initialize", err)
	}
	if h.Shared().Len() != 0 {
		t.Error("_initialize wrote shared data")
	}
}

func TestSharedDataCompareAndSet(t *testing.T) {
	s := NewSharedData()
	if !s.Set("slot", "a", 0xffffffff) {
		t.Error("a cas that no value has must create a missing key")
	}
	if s.Set("slot", "b", 0xffffffff) {
		t.Error("the same cas must mismatch once the key is there: it is an atomic create")
	}
	_, first, _ := s.Get("slot")
	s.Set("other", "x", 0)
	if !s.Set("slot", "c", first) {
		t.Error("a current cas must be taken")
	}
	value, second, _ := s.Get("slot")
	if value != "c" || second != first+2 {
		t.Errorf("slot = %q cas %d after cas %d and one write elsewhere: cas counts all writes of the process", value, second, first)
	}
	if s.Set("slot", "d", first) {
		t.Error("an old cas must mismatch")
	}
	if !s.Set("slot", "e", 0) {
		t.Error("cas 0 must overwrite")
	}
	s.last = 0xffffffff
	s.Set("slot", "f", 0)
	s.Set("slot", "g", 0)
	if _, cas, _ := s.Get("slot"); cas != 1 {
		t.Errorf("cas %d after the largest one, want 1: 0 would mean overwrite", cas)
	}
	if _, _, found := s.Get("missing"); found {
		t.Error("a missing key was found")
	}
}

func TestMetricErrors(t *testing.T) {
	all := stats{}
	m := newMetricIDs()
	counter, _ := m.define(all, kindCounter, "c")
	gauge, _ := m.define(all, kindGauge, "g")
	histogram, _ := m.define(all, kindHistogram, "h")
	again, _ := m.define(all, kindCounter, "c")
	for _, c := range []struct {
		what      string
		got, want status
	}{
		{"define a fourth kind", func() status { _, s := m.define(all, kinds, "x"); return s }(), badArgument},
		{"increment a counter", m.increment(counter, 2), ok},
		{"increment a counter by 0", m.increment(counter, 0), badArgument},
		{"increment a counter by -1", m.increment(counter, -1), badArgument},
		{"increment an unknown counter", m.increment(counter+40, 1), notFound},
		{"increment a gauge by 5", m.increment(gauge, 5), ok},
		{"increment a gauge by -2", m.increment(gauge, -2), ok},
		{"increment a histogram", m.increment(histogram, 1), badArgument},
		{"record an unknown gauge", m.record(gauge+40, 1), notFound},
		{"record a counter adds", m.record(counter, 3), ok},
		{"record a histogram", m.record(histogram, 1), ok},
		{"get a histogram", func() status { _, s := m.get(histogram); return s }(), badArgument},
		{"get an unknown counter", func() status { _, s := m.get(counter + 40); return s }(), notFound},
	} {
		if c.got != c.want {
			t.Errorf("%s = %d, want %d", c.what, c.got, c.want)
		}
	}
	if counter == again {
		t.Error("two definitions of one name gave one id; Envoy gives two for one metric")
	}
	m.increment(again, 1)
	if v, _ := m.get(counter); v != 6 {
		t.Errorf("counter = %d, want 2+3+1", v)
	}
	if v, _ := m.get(gauge); v != 3 {
		t.Errorf("gauge = %d, want 3", v)
	}
}

func TestDuplicateHeadersReadInThreeWays(t *testing.T) {
	m := newAsm()
	m.export("proxy_on_request_headers",
		m.call("env.proxy_get_header_map_value", requestHeaders, "X-Key", scratch, scratch+4), drop, m.logResult("value"),
		m.call("env.proxy_get_property", "request\x00headers\x00x-key", scratch, scratch+4), drop, m.logResult("property"),
		m.call("env.proxy_get_header_map_pairs", requestHeaders, scratch, scratch+4), drop, m.logResult("pairs"),
		m.call("env.proxy_get_property", "source\x00address", scratch, scratch+4), drop, m.logResult("address"),
		i32(0))
	h := newHost(t, m, Options{})
	push(t, h, Config{})
	r := h.Send(0, Request{From: "192.0.2.7:99", Headers: Headers{{"X-Key", "one"}, {"x-key", " two "}}})
	got := infoLines(h)
	if got[1] != "one" || got[3] != "one,two" || got[7] != "192.0.2.7:99" {
		t.Errorf("value, property, address = %q, %q, %q", got[1], got[3], got[7])
	}
	if !strings.HasSuffix(got[5], "x-key|one|x-key|two|") {
		t.Errorf("pairs = %q do not list both lines", got[5])
	}
	if r.Calls["proxy_get_property"] != 2 || r.Calls["proxy_log"] != 8 || r.Callbacks["proxy_on_request_headers"] != 1 {
		t.Errorf("calls %v, callbacks %v", r.Calls, r.Callbacks)
	}
}

func TestGuardLetsOnOnlyWhatIsMarked(t *testing.T) {
	m := newAsm()
	m.export("proxy_on_request_headers",
		m.call("env.proxy_get_header_map_value", requestHeaders, "good", scratch, scratch+4), eqz,
		when(m.call("env.proxy_set_property", "weir_verdict", "1"), drop), i32(0))
	h := newHost(t, m, Options{Guard: true})
	push(t, h, Config{})
	r := h.Send(0, Request{})
	if r.Status != 503 || r.From != Guard || h.Reached() != 0 {
		t.Errorf("unmarked: %d from %s, %d reached the upstream", r.Status, r.From, h.Reached())
	}
	r = h.Send(0, Request{Headers: Headers{{"good", "1"}}})
	if r.Status != 200 || r.State["wasm.weir_verdict"] != "1" || h.Reached() != 1 {
		t.Errorf("marked: %d, state %v, %d reached the upstream", r.Status, r.State, h.Reached())
	}
}

func TestLocalReplyStopsWhateverTheCallbackReturns(t *testing.T) {
	m := newAsm()
	m.export("proxy_on_request_headers", m.call("env.proxy_send_local_response", 429, "weir_rate limited", "{}",
		encodePairs(Headers{{"Retry-After", "3"}}), 8), drop, i32(0))
	m.export("proxy_on_response_headers",
		m.call("env.proxy_get_header_map_value", responseHeaders, "retry-after", scratch, scratch+4), drop, m.logResult("retry"),
		// The request's headers are still there, since the reply stopped the request.
		i32(scratch+16), m.call("env.proxy_get_header_map_value", requestHeaders, ":path", scratch, scratch+4), store,
		i32(0))
	h := newHost(t, m, Options{})
	push(t, h, Config{})
	r := h.Send(0, Request{})
	if r.Status != 429 || r.From != Filter || r.Details != "weir_rate_limited" || r.GRPC != 8 || r.Body != "{}" {
		t.Errorf("answer %+v", r)
	}
	if got := infoLines(h); got[1] != "3" {
		t.Errorf("the response callback read %q, want the module's own header", got[1])
	}
	if h.Reached() != 0 {
		t.Error("the request went on")
	}
	memory := h.threads[1].active.vm.mod.Memory()
	if s, _ := memory.ReadUint32Le(scratch + 16); status(s) != ok {
		t.Errorf("request headers in the response callback of a local reply: status %d, want %d", s, ok)
	}
}

func TestStreamLifecycleLeavesNothing(t *testing.T) {
	m := newAsm()
	for name, sig := range callbacks {
		if sig.results == 0 && strings.HasPrefix(name, "proxy_on_") {
			m.export(name, m.call("env.proxy_log", 2, strings.TrimPrefix(name, "proxy_on_")), drop)
		}
	}
	m.export("proxy_on_done", m.call("env.proxy_log", 2, "done"), drop, i32(1))
	h := newHost(t, m, Options{})
	push(t, h, Config{})
	before := h.Contexts()
	start := len(infoLines(h))
	h.Send(0, Request{})
	if got := infoLines(h)[start:]; !slices.Equal(got, []string{"context_create", "log", "done", "delete"}) {
		t.Errorf("order %v", got)
	}
	if h.Contexts() != before {
		t.Errorf("%d contexts after a stream, %d before", h.Contexts(), before)
	}

	// A push keeps the VM; the old root goes when its last stream has ended.
	s := h.Begin(0, Request{})
	vms := h.Created()
	push(t, h, Config{Plugin: []byte("two")})
	if made := h.Created() - vms; made != 1 {
		t.Errorf("a config push made %d VMs, want the canary alone", made)
	}
	if h.Contexts() != before+2 { // the stream and its old root
		t.Errorf("%d contexts with a stream on the old root, want %d", h.Contexts(), before+2)
	}
	s.Answer(Answer{Status: 200})
	s.End()
	if h.Contexts() != before {
		t.Errorf("%d contexts once the old stream has ended, want %d", h.Contexts(), before)
	}
}

func TestTicksRunInOrderOfTheirInstants(t *testing.T) {
	m := newAsm()
	m.export("proxy_on_configure", m.call("env.proxy_set_tick_period_milliseconds", 400), drop,
		m.call("env.proxy_define_metric", kindCounter, "ticks", scratch), drop, i32(1))
	m.export("proxy_on_tick", m.call("env.proxy_increment_metric", load(scratch), []byte{0x42, 1}), drop)
	h := newHost(t, m, Options{Workers: 2})
	push(t, h, Config{})
	h.Advance(time.Second)
	if n, _ := h.Counter("ticks"); n != 6 {
		t.Errorf("%d ticks in 1 s at 400 ms on main and two workers, want 6", n)
	}
	if h.Clock().Monotonic() != boot+time.Second {
		t.Errorf("the clock stands at %v", h.Clock().Monotonic())
	}
}
