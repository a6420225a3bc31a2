package wasmhost

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/stand"
)

var anyCall = encodePairs(Headers{{":method", "GET"}, {":path", "/edge/v1/deltas?since=7"}, {":authority", "weir"}})

// outcomeLog logs ":status" and the number of headers of each outcome.
func (a *asm) outcomeLog() []byte {
	return slices.Concat(a.tell("outcome", "env.proxy_get_header_map_value", callHeaders, ":status", scratch, scratch+4), a.logNumber(arg(2)))
}

func TestCallOutsEndOnTheClock(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name    string
		outcome Outcome
		timeout int // ms
		at      time.Duration
		want    string
	}{
		{"an answer", Outcome{Answer: Answer{Status: 204}, After: 30 * ms}, 100, 30 * ms, "?outcome 000 = 204 001"},
		{"at the timeout's instant", Outcome{Answer: Answer{Status: 200}, After: 100 * ms}, 100, 100 * ms, "?outcome 000 = 200 001"},
		{"beyond the timeout", Outcome{Answer: Answer{Status: 200}, After: 101 * ms}, 100, 100 * ms, "?outcome 000 = 504 003"},
		{"no timeout", Outcome{Answer: Answer{Status: 200}, After: time.Hour}, 0, time.Hour, "?outcome 000 = 200 001"},
		{"mute", Outcome{Fault: Mute}, 100, 100 * ms, "?outcome 000 = 504 003"},
		{"refused", Outcome{Fault: Refused}, 100, latency, "?outcome 000 = 503 003"},
		{"closed late", Outcome{Fault: Closed, After: 99 * ms}, 100, 99 * ms, "?outcome 000 = 503 003"},
		{"reset", Outcome{Fault: Reset, After: 5 * ms}, 100, 5 * ms, "?outcome 002 000"},
		{"reset beyond the timeout", Outcome{Fault: Reset, After: time.Second}, 100, 100 * ms, "?outcome 000 = 504 003"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newAsm()
			m.export("proxy_on_request_headers", m.call("env.proxy_http_call", "control", anyCall, "", "", c.timeout, scratch), drop, i32(0))
			m.export("proxy_on_http_call_response", m.outcomeLog())
			h := newHost(t, m, Options{Clusters: map[string]Cluster{"control": func(Call) Outcome { return c.outcome }}})
			push(t, h, Config{})
			h.Send(0, Request{}) // the call outlives the request
			h.Advance(c.at - time.Nanosecond)
			if got := items(infoTexts(h)); len(got) != 0 || h.CallsUnderWay() != 1 {
				t.Errorf("before its instant %v and %d calls under way", got, h.CallsUnderWay())
			}
			h.Advance(time.Nanosecond)
			if got := items(infoTexts(h)); !slices.Equal(got, []string{c.want}) || h.CallsUnderWay() != 0 {
				t.Errorf("at its instant %v and %d calls under way, want %q", got, h.CallsUnderWay(), c.want)
			}
			call := h.Calls()[0]
			if call.Thread != 1 || call.Path() != "/edge/v1/deltas?since=7" || call.At != boot || call.Timeout != time.Duration(c.timeout)*ms {
				t.Errorf("the call was %+v", call)
			}
		})
	}
	t.Run("mute without a timeout", func(t *testing.T) {
		m := newAsm()
		m.export("proxy_on_request_headers", m.call("env.proxy_http_call", "control", anyCall, "", "", 0, scratch), drop, i32(0))
		m.export("proxy_on_http_call_response", m.outcomeLog())
		h := newHost(t, m, Options{Clusters: map[string]Cluster{"control": func(Call) Outcome { return Outcome{Fault: Mute} }}})
		push(t, h, Config{})
		h.Send(0, Request{})
		h.Advance(1000 * time.Hour)
		if got := infoTexts(h); len(got) != 0 {
			t.Errorf("the module was told %v", got)
		}
	})
}

func TestCallOutsEndInTheOrderOfTheirInstants(t *testing.T) {
	m := newAsm()
	to := func(path string) []byte {
		headers := encodePairs(Headers{{":method", "GET"}, {":path", path}, {":authority", "weir"}})
		return append(m.call("env.proxy_http_call", "control", headers, path, "", 100, scratch), drop...)
	}
	// Every 10 ms; the third tick makes calls.
	m.export("proxy_on_configure", m.call("env.proxy_set_tick_period_milliseconds", 10), drop, i32(1))
	m.export("proxy_on_tick", m.block("#tick"), to("/20"), to("/5"))
	m.export("proxy_on_http_call_response", m.tell("end", "env.proxy_get_buffer_bytes", bufferCallBody, 0, 9, scratch, scratch+4))
	h := newHost(t, m, Options{Clusters: map[string]Cluster{"control": func(c Call) Outcome {
		var after int
		if _, err := fmt.Sscanf(c.Path(), "/%d", &after); err != nil {
			t.Error(err)
		}
		return Outcome{Answer: Answer{Status: 200, Body: c.Body}, After: time.Duration(after) * time.Millisecond}
	}}})
	push(t, h, Config{})
	h.threads[1].active.root.period = 0 // the worker stays still, so that one order shows
	h.Advance(35 * time.Millisecond)
	want := []string{"#tick", "?end 000 = /5", "#tick", "?end 000 = /5", "?end 000 = /20", "#tick", "?end 000 = /5"}
	if got := items(infoTexts(h)); !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}

func TestCallOutsEndWithTheirContext(t *testing.T) {
	answered := 0
	o := Options{Clusters: map[string]Cluster{"control": func(Call) Outcome {
		answered++
		return Outcome{Answer: Answer{Status: 200}, After: time.Second}
	}}}
	m := newAsm()
	m.export("proxy_on_configure", m.call("env.proxy_http_call", "control", anyCall, "", "", 0, scratch), drop, i32(1))
	m.export("proxy_on_request_headers", m.call("env.proxy_get_header_map_value", requestHeaders, "trap", scratch, scratch+4), eqz, when(unreachable), i32(0))
	m.export("proxy_on_http_call_response", m.outcomeLog())
	for _, e := range []string{"proxy_on_done", "proxy_on_log", "proxy_on_delete"} {
		code := []byte{}
		if callbacks[e].results > 0 {
			code = i32(1)
		}
		m.export(e, code)
	}
	h := newHost(t, m, o)
	push(t, h, Config{})
	// The canary asked as well, and ended with its call under way.
	if answered != 3 || h.CallsUnderWay() != 2 {
		t.Errorf("%d calls made and %d under way, want 3 and 2", answered, h.CallsUnderWay())
	}
	if got := []int{h.Calls()[0].Thread, h.Calls()[1].Thread, h.Calls()[2].Thread}; !slices.Equal(got, []int{noThread, 0, 1}) {
		t.Errorf("threads %v called, want canary, main thread, worker", got)
	}
	s := h.Begin(0, Request{})
	push(t, h, Config{Plugin: []byte("two")})
	// The main thread's old root is gone with its call; the worker's lives on while a request is in flight on it.
	if h.CallsUnderWay() != 3 {
		t.Errorf("%d calls under way after a push, want 3", h.CallsUnderWay())
	}
	s.Answer(Answer{Status: 200})
	if s.End(); h.CallsUnderWay() != 2 {
		t.Errorf("%d calls under way once the old root has gone, want 2", h.CallsUnderWay())
	}
	h.Send(0, Request{Headers: Headers{{"trap", "1"}}})
	h.Advance(time.Second)
	if got := items(infoTexts(h)); !slices.Equal(got, []string{"?outcome 000 = 200 001"}) {
		t.Errorf("told of %q, want the main thread's call alone: the worker's VM has trapped", got)
	}
}

// heldRequest holds each request until a call-out has ended, then lets it go on or, at 403, answers it.
func heldRequest() *asm {
	m := newAsm()
	const stream, denied = scratch + 32, scratch + 36
	m.export("proxy_on_context_create", arg(1), when(i32(stream), arg(0), store))
	m.export("proxy_on_request_headers", m.call("env.proxy_http_call", "control", anyCall, "", "", 1000, scratch), drop,
		i32(denied), m.call("env.proxy_get_header_map_value", requestHeaders, "deny", scratch, scratch+4), store, i32(1))
	m.export("proxy_on_http_call_response", m.call("env.proxy_set_effective_context", load(stream)), drop,
		m.tell("held", "env.proxy_get_property", "request\x00path", scratch, scratch+4),
		m.tell("answer", "env.proxy_get_header_map_value", callHeaders, ":status", scratch, scratch+4),
		load(denied), eqz, when(m.call("env.proxy_send_local_response", 403, "weir_denied", "no", "", -1), drop),
		load(denied), when(m.tell("on", "env.proxy_continue_stream", 0)), m.block("#done"))
	return m
}

// heldSays is what it logs of one request that goes on and one that does not.
var heldSays = []string{"?held 000 = /p", "?answer 000 = 200", "?on 000", "#done", "?held 000 = /p", "?answer 000 = 200", "#done"}

func TestHeldRequestGoesOnAfterACallOut(t *testing.T) {
	h := newHost(t, heldRequest(), Options{Clusters: map[string]Cluster{"control": func(Call) Outcome { return Outcome{Answer: Answer{Status: 200}} }}})
	push(t, h, Config{})
	for _, c := range []struct {
		deny   bool
		status int
		from   From
	}{{false, 204, Upstream}, {true, 403, Filter}} {
		r := Request{Path: "/p"}
		if c.deny {
			r.Headers.Add("deny", "1")
		}
		s := h.Begin(0, r)
		if _, forwarded := s.Forwarded(); forwarded {
			t.Error("the request went on before the call-out ended")
		}
		h.Advance(latency)
		if _, forwarded := s.Forwarded(); forwarded {
			s.Answer(Answer{Status: 204})
		}
		if got := s.End(); got.Status != c.status || got.From != c.from {
			t.Errorf("status %d from %s, want %d from %s", got.Status, got.From, c.status, c.from)
		}
	}
	if got := items(infoTexts(h)); !slices.Equal(got, heldSays) {
		t.Errorf("said %q, want %q", got, heldSays)
	}
	if h.Reached() != 1 {
		t.Errorf("%d requests reached the upstream, want 1", h.Reached())
	}
}

func TestRealEnvoyHoldsARequestAlike(t *testing.T) {
	both := newMirror(t, heldRequest())
	for _, c := range []struct {
		header string
		status int
	}{{"x-a: 1", 200}, {"deny: 1", 403}} {
		var r stand.Result
		both.envoy.Until(t, "answers", func() (err error) {
			r, err = both.client.Try(both.url+"/p", c.header)
			return err
		})
		if r.Status != c.status {
			t.Errorf("Envoy answers %d, want %d", r.Status, c.status)
		}
	}
	for _, all := range both.await(t, "#done", 2) {
		compare(t, "said", all, heldSays)
	}
}

// ticker ticks three times, stops its timer, and tells when a call-out that it makes then has run into its timeout.
func ticker() *asm {
	m := newAsm()
	const left = scratch + 32
	mute := encodePairs(Headers{{":method", "GET"}, {":path", "/mute"}, {":authority", "weir"}})
	m.export("proxy_on_configure", i32(left), i32(3), store,
		m.tell("period", "env.proxy_set_tick_period_milliseconds", 10), i32(1))
	m.export("proxy_on_tick", m.block("#tick"), m.logNumber(arg(0)), i32(left), load(left), i32(-1), add, store,
		load(left), eqz, when(m.tell("stop", "env.proxy_set_tick_period_milliseconds", 0),
			m.tell("call", "env.proxy_http_call", "control", mute, "", "", 200, scratch+16)))
	m.export("proxy_on_http_call_response", m.block("#end"), m.outcomeLog(), m.block("#done"))
	return m
}

func TestRealEnvoyTicksAlike(t *testing.T) {
	both := newMirror(t, ticker())
	both.host.Advance(time.Second)
	// The main thread's VM and the worker's: each tells of its end, 20 periods after its last tick.
	threads := both.await(t, "#done", 2)
	if len(threads) != 2 {
		t.Errorf("%d threads of Envoy tick, want main thread and worker", len(threads))
	}
	host := []string{"#tick 001", "#tick 001", "#tick 001", "?stop 000", "?call 000", "#end", "?outcome 000 = 504 003", "#done"}
	for thread, all := range threads {
		for len(all) > 0 && all[0] == "?period 000" { // the canary's too, on the main thread
			all = all[1:]
		}
		compare(t, "thread "+thread, all, host)
	}
	counts := map[string]int{}
	for _, item := range both.hostItems() {
		counts[item]++
	}
	for _, item := range host {
		if want := 2 * len(slices.DeleteFunc(slices.Clone(host), func(o string) bool { return o != item })); counts[item] != want {
			t.Errorf("this host said %q %d times, want %d", item, counts[item], want)
		}
	}
}

// Each configuration makes a call whose answer is its timeout. A push that comes first ends the call of the root before,
// unheard, in both worlds: a module must not wait for it.
func TestRealEnvoyEndsCallOutsOfAnOldRootAlike(t *testing.T) {
	m := newAsm()
	mute := encodePairs(Headers{{":method", "GET"}, {":path", "/mute"}, {":authority", "weir"}})
	m.export("proxy_on_configure", m.block("#configure"), m.logNumber(arg(0)),
		m.call("env.proxy_http_call", "control", mute, "", "", 3000, scratch), drop, i32(1))
	m.export("proxy_on_http_call_response", m.block("#called"), m.logNumber(arg(0)), m.block("#done"))
	m.export("proxy_on_log").export("proxy_on_delete").export("proxy_on_done", i32(1))
	both := newMirror(t, m)
	both.await(t, "#configure 001", 3) // canary, main thread, worker
	both.push(t, "two")
	both.await(t, "#configure 001", 4)   // the next canary
	threads := both.await(t, "#done", 2) // 3 s after the push, and later than the first root's timeout
	both.host.Advance(10 * time.Second)
	host := map[string]int{}
	for _, item := range both.hostItems() {
		host[item]++
	}
	envoy := map[string]int{}
	for _, all := range threads {
		for _, item := range all {
			envoy[item]++
		}
	}
	want := map[string]int{"#configure 001": 4, "#configure 002": 2, "#called 002": 2, "#done": 2}
	if !maps.Equal(envoy, want) || !maps.Equal(host, want) {
		t.Errorf("Envoy's module said %v, this host's %v, want %v", envoy, host, want)
	}
}
