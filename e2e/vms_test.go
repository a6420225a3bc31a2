package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/stand"
	"github.com/weirproject/weir/e2e/wasmhost"
)

// What Envoy does with its VMs, on the manual clock and by the built filter: what real Envoy shows only by chance of
// timing, or not at all.

// drained sends until an address is refused, and returns how many went through and the release that the refusal names.
func drained(t *testing.T, h *wasmhost.Host, worker int, address string) (passed, release int) {
	t.Helper()
	for range 1000 {
		r := h.Send(worker, from(address))
		switch r.Status {
		case 200:
			passed++
		case 429:
			var problem struct{ Release int }
			if err := json.Unmarshal([]byte(r.Body), &problem); err != nil {
				t.Fatalf("%v in %q", err, r.Body)
			}
			return passed, problem.Release
		default:
			t.Fatalf("status %d from %s, details %s", r.Status, r.From, r.Details)
		}
	}
	t.Fatal("1000 requests and no refusal")
	return 0, 0
}

// A push starts the living VM again: nothing that worker memory or shared data hold is lost or refilled.
func TestPushConfiguresTheLivingVM(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir)
	h := newHost(t, stand.Wasm, 3, wasmhost.Config{Plugin: bundleOf(t, fmt.Sprintf(tinyRules, 8), "", 1)})
	if h.Created() != 6 || h.VMs() != 5 {
		t.Errorf("%d VMs made and %d living, want base, canary, main thread and 3 workers, all but the canary living", h.Created(), h.VMs())
	}
	if passed, release := drained(t, h, 0, "192.0.2.1"); passed != 8 || release != 1 {
		t.Errorf("%d passed, then release %d refused", passed, release)
	}
	h.Send(1, from("192.0.2.2"))
	created := h.Created()
	second := wasmhost.Config{Plugin: bundleOf(t, fmt.Sprintf(tinyRules, 8), "", 2), Env: goEnv}
	if err := h.Push(second); err != nil {
		t.Fatal(err)
	}
	if h.Created() != created+1 || h.VMs() != 5 {
		t.Errorf("a push made %d VMs and left %d, want the canary alone and 5", h.Created()-created, h.VMs())
	}
	for worker := range 3 {
		if passed, release := drained(t, h, worker, "192.0.2.1"); passed != 0 || release != 2 {
			t.Errorf("worker %d: a drained address got %d through, then release %d refused", worker, passed, release)
		}
	}
	if passed, _ := drained(t, h, 1, "192.0.2.2"); passed != 7 {
		t.Errorf("an address with 7 tokens left got %d through", passed)
	}
	// The same configuration once more is none at all.
	if err := h.Push(second); err != nil || h.Created() != created+1 {
		t.Errorf("the same push again: %v, %d VMs made", err, h.Created()-created-1)
	}
}

// Requests in flight keep their root, whatever is pushed meanwhile, and each root goes with the last of them.
func TestRequestsInFlightFinishOnTheirRoot(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir)
	const releases = 4
	h := newHost(t, stand.Wasm, 2, wasmhost.Config{Plugin: bundleOf(t, fmt.Sprintf(tinyRules, 1000), "", 1)})
	settled := h.Contexts()
	var waiting []*wasmhost.Stream
	begin := func(release int) {
		for i := range 4 {
			s := h.Begin(i%2, from(fmt.Sprintf("192.0.2.%d", release)))
			if _, forwarded := s.Forwarded(); !forwarded {
				t.Fatalf("release %d: request %d was not let on", release, i)
			}
			waiting = append(waiting, s)
		}
	}
	begin(1)
	for release := 2; release <= releases; release++ {
		err := h.Push(wasmhost.Config{Plugin: bundleOf(t, fmt.Sprintf(tinyRules, 1000), "", release), Env: goEnv})
		if err != nil {
			t.Fatal(err)
		}
		// An old root on each of 2 workers stays beside 4 streams for each release.
		if got, want := h.Contexts(), settled+(release-1)*(2+4); got != want {
			t.Errorf("release %d: %d contexts, want %d", release, got, want)
		}
		begin(release)
	}
	for i, s := range waiting {
		s.Answer(wasmhost.Answer{Status: 204})
		r := s.End()
		if r.Status != 204 || r.From != wasmhost.Upstream || r.State["wasm.weir_verdict"] != "1" {
			t.Errorf("request %d of release %d ended with %d from %s", i, i/4+1, r.Status, r.From)
		}
	}
	if h.Contexts() != settled {
		t.Errorf("%d contexts once all have ended, want %d", h.Contexts(), settled)
	}
	if n, _ := h.Counter("weir_edge_recovered"); n != 0 {
		t.Errorf("the filter recovered %d times", n)
	}
}

// A trap answers 503 to what is in flight on its worker, of all roots, and to what comes until the reload; the release
// of the last push is what is loaded again, and no bucket is full again.
func TestTrapReloadsTheReleaseInForce(t *testing.T) {
	stand.Need(t, stand.FaultWasm, stand.Weir)
	const vm = "trap-on-path=/trap"
	h := newHost(t, stand.FaultWasm, 2, wasmhost.Config{Plugin: bundleOf(t, fmt.Sprintf(tinyRules, 50), "", 1), VM: vm})
	if passed, _ := drained(t, h, 1, "192.0.2.1"); passed != 50 {
		t.Fatalf("%d passed", passed)
	}
	old := h.Begin(0, from("192.0.2.2"))
	if err := h.Push(wasmhost.Config{Plugin: bundleOf(t, fmt.Sprintf(tinyRules, 50), "", 2), VM: vm, Env: goEnv}); err != nil {
		t.Fatal(err)
	}
	young, elsewhere := h.Begin(0, from("192.0.2.3")), h.Begin(1, from("192.0.2.4"))
	reached := h.Reached()
	trap := from("192.0.2.5")
	trap.Path = "/trap"
	if r := h.Send(0, trap); r.Status != 503 || r.GRPC != 14 {
		t.Errorf("the trap: status %d, gRPC %d", r.Status, r.GRPC)
	}
	for i := range 20 {
		if r := h.Send(0, from("192.0.2.6")); r.Status != 503 {
			t.Errorf("request %d before the reload: status %d", i, r.Status)
		}
	}
	if h.Reached() != reached {
		t.Errorf("%d requests reached the API while the filter was down", h.Reached()-reached)
	}
	for name, c := range map[string]struct {
		s      *wasmhost.Stream
		status int
	}{"old root": {old, 503}, "new root": {young, 503}, "other worker": {elsewhere, 200}} {
		c.s.Answer(wasmhost.Answer{Status: 200})
		if r := c.s.End(); r.Status != c.status {
			t.Errorf("in flight on the %s: status %d, want %d", name, r.Status, c.status)
		}
	}
	created := h.Created()
	h.Advance(wasmhost.DefaultReload)
	for worker := range 2 {
		if passed, release := drained(t, h, worker, "192.0.2.1"); passed != 0 || release != 2 {
			t.Errorf("worker %d: a drained address got %d through after the reload, then release %d refused", worker, passed, release)
		}
	}
	if h.Created() != created+1 || h.VMs() != 4 || h.Bypassed() != 0 {
		t.Errorf("%d VMs made, %d living, %d workers without a filter", h.Created()-created, h.VMs(), h.Bypassed())
	}
}

// A start that fails on a worker after the canary passed: Envoy takes the push, that worker has no filter, and nothing
// but the guard stands between its clients and the API until vm_config.configuration changes.
func TestWorkerWithoutAFilterIsClosedUntilANewVM(t *testing.T) {
	stand.Need(t, stand.FaultWasm, stand.Weir)
	bundle := bundleOf(t, fmt.Sprintf(tinyRules, 5), "", 1)
	// Base VMs do not start: the canary is the first, then the main thread and worker 0.
	h := newHost(t, stand.FaultWasm, 2, wasmhost.Config{Plugin: bundle, VM: "start-fails-after=3"})
	if h.Bypassed() != 1 || h.VMs() >= h.Workers()+2 {
		t.Fatalf("%d workers without a filter, %d VMs, want 1 and fewer than %d", h.Bypassed(), h.VMs(), h.Workers()+2)
	}
	if passed, _ := drained(t, h, 0, "192.0.2.1"); passed != 5 {
		t.Errorf("the worker with a filter let %d through", passed)
	}
	reached := h.Reached()
	shut := func(when string) {
		t.Helper()
		for range 10 {
			if r := h.Send(1, from("192.0.2.1")); r.From != wasmhost.Guard || r.Status != 503 || len(r.Callbacks) != 0 {
				t.Errorf("%s: status %d from %s, callbacks %v", when, r.Status, r.From, r.Callbacks)
			}
		}
		if h.Reached() != reached {
			t.Errorf("%s: %d requests reached the API past no filter", when, h.Reached()-reached)
		}
	}
	shut("at once")
	h.Advance(time.Hour)
	reached = h.Reached()
	shut("an hour later")
	next := wasmhost.Config{Plugin: bundleOf(t, fmt.Sprintf(tinyRules, 5), "", 2), VM: "start-fails-after=3", Env: goEnv}
	if err := h.Push(next); !errors.Is(err, wasmhost.ErrPush) {
		t.Errorf("the next push: %v, want a refusal", err)
	}
	shut("after the refused push")

	next.VM = "start-fails-after=1000" // a new VM generation under the same vm_id
	if err := h.Push(next); err != nil {
		t.Fatalf("a push with another vm_config.configuration: %v", err)
	}
	if h.Bypassed() != 0 {
		t.Errorf("%d workers without a filter after it", h.Bypassed())
	}
	for worker := range 2 {
		r := h.Send(worker, from("192.0.2.7"))
		if r.Status != 200 {
			t.Errorf("worker %d: status %d", worker, r.Status)
		}
	}
	if n := strings.Count(h.LogText(), "Failed to"); n == 0 {
		t.Error("Envoy's log says nothing of the failed start")
	}
}

// Shared buckets outlive a VM generation: vm_id stays, and with it what an address has spent.
func TestNewVMGenerationRefillsNoBucket(t *testing.T) {
	stand.Need(t, stand.FaultWasm, stand.Weir)
	bundle := bundleOf(t, fmt.Sprintf(tinyRules, 5), "", 1)
	h := newHost(t, stand.FaultWasm, 2, wasmhost.Config{Plugin: bundle, VM: "start-fails-after=1000"})
	drained(t, h, 0, "192.0.2.1")
	if err := h.Push(wasmhost.Config{Plugin: bundle, VM: "start-fails-after=2000", Env: goEnv}); err != nil {
		t.Fatal(err)
	}
	counts := map[int]int{}
	for i := range 10 {
		counts[h.Send(i%2, from("192.0.2.1")).Status]++
	}
	if !maps.Equal(counts, map[int]int{429: 10}) {
		t.Errorf("answers %v, want 10 refusals", counts)
	}
}
