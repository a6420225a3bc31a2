package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/stand"
	"github.com/weirproject/weir/e2e/wasmhost"
)

// bundleOf compiles rules for the filter.
func bundleOf(t testing.TB, rules, keys string, release int) []byte {
	t.Helper()
	b, err := os.ReadFile(stand.BuildBundle(t, rules, keys, release))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func from(address string, headers ...string) wasmhost.Request {
	r := wasmhost.Request{From: address + ":40000"}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Headers.Add(name, value)
	}
	return r
}

func TestDamagedBundleNeverReachesAWorker(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir)
	bundle := bundleOf(t, fmt.Sprintf(tinyRules, 2), "", 7)
	h := newHost(t, stand.Wasm, 2, wasmhost.Config{Plugin: bundle})
	for i := range bundle {
		damaged := append([]byte{}, bundle...)
		damaged[i] ^= 1
		if err := h.Push(wasmhost.Config{Plugin: damaged}); err == nil {
			t.Fatalf("a bundle with byte %d damaged was taken", i)
		}
	}
	if err := h.Push(wasmhost.Config{Plugin: bundle[:len(bundle)/2]}); err == nil {
		t.Error("half a bundle was taken")
	}
	if got, _ := h.Gauge("weir_edge_release"); got != 7 {
		t.Errorf("weir_edge_release = %d, want 7", got)
	}
	if n, _ := h.Counter("weir_edge_bundle_rejected"); n != uint64(len(bundle)+1) {
		t.Errorf("weir_edge_bundle_rejected = %d, want %d", n, len(bundle)+1)
	}
	counts := map[int]int{}
	for i := range 6 {
		counts[h.Send(i%2, from("192.0.2.1")).Status]++
	}
	if counts[200] != 2 || counts[429] != 4 {
		t.Errorf("answers %v, want the last good rule's 2", counts)
	}
}

// The bound holds in every interval, over all workers, whatever the traffic looks like.
func TestEveryIntervalStaysWithinTheBound(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir)
	const workers, rate, burst, lease = 4, 200, 400, 20 // lease: min(200/s × 100 ms, 400/8)
	rules := fmt.Sprintf("version: 1\nrules:\n- {name: flood, where: edge, by: [address], algorithm: token-bucket, limit: %d/1s, burst: %d}\n", rate, burst)
	h := newHost(t, stand.Wasm, workers, wasmhost.Config{Plugin: bundleOf(t, rules, "", 1)})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var admitted []time.Duration
	refused := 0
	for range 20_000 {
		// Bursts of calls at one instant, then pauses up to where leases die.
		if random.IntN(20) == 0 {
			h.Advance(time.Duration(random.IntN(130_000)) * time.Microsecond)
		}
		switch h.Send(random.IntN(workers), from("192.0.2.1")).Status {
		case 200:
			admitted = append(admitted, h.Clock().Monotonic())
		case 429:
			refused++
		default:
			t.Fatal("neither 200 nor 429")
		}
	}
	worst := 0.0
	for i := range admitted {
		for j := i; j < len(admitted); j++ {
			allowed := burst + rate*(admitted[j]-admitted[i]).Seconds() + workers*lease
			worst = max(worst, float64(j-i+1)/allowed)
		}
	}
	if worst > 1 {
		t.Errorf("an interval admitted %.3f times its bound", worst)
	}
	if refused == 0 || worst < 0.8 {
		t.Errorf("%d refused, worst interval at %.3f of its bound: this was no test of the bound", refused, worst)
	}
}

// Faults of the fault build on the manual clock; a start that fails is in vms_test.go.
func TestFaultsOnTheManualClock(t *testing.T) {
	stand.Need(t, stand.FaultWasm, stand.Weir)
	bundle := bundleOf(t, wideRules, "", 1)
	t.Run("trap", func(t *testing.T) {
		h := newHost(t, stand.FaultWasm, 2, wasmhost.Config{Plugin: bundle, VM: "trap-on-path=/trap"})
		h.Advance(time.Minute)
		trap := from("192.0.2.1")
		trap.Path = "/trap"
		h.Send(0, from("192.0.2.1"))
		reached := h.Reached()
		if r := h.Send(0, trap); r.Status != 503 || h.Reached() != reached {
			t.Errorf("the trap: status %d, reached the API: %v", r.Status, h.Reached() != reached)
		}
		if r := h.Send(1, from("192.0.2.1")); r.Status != 200 {
			t.Errorf("the other worker: status %d", r.Status)
		}
		if r := h.Send(0, from("192.0.2.1")); r.Status != 200 {
			t.Errorf("after the reload: status %d\n%s", r.Status, h.LogText())
		}
		h.Send(0, trap)
		h.Advance(wasmhost.DefaultReload - time.Microsecond)
		if r := h.Send(0, from("192.0.2.1")); r.Status != 503 {
			t.Errorf("before the second reload: status %d", r.Status)
		}
		h.Advance(time.Microsecond)
		if r := h.Send(0, from("192.0.2.1")); r.Status != 200 {
			t.Errorf("after the second reload: status %d", r.Status)
		}
	})
	t.Run("no shared data", func(t *testing.T) {
		h := newHost(t, stand.FaultWasm, 2, wasmhost.Config{Plugin: bundleOf(t, fmt.Sprintf(tinyRules, 5), "", 1), VM: "no-shared-data"})
		counts := map[int]int{}
		for i := range 40 {
			counts[h.Send(i%2, from("192.0.2.1")).Status]++
		}
		if counts[200] != 10 {
			t.Errorf("answers %v, want a bucket of 5 on each of 2 workers", counts)
		}
	})
}

func TestFilterOnAMachineThatJustBooted(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir)
	code, err := os.ReadFile(stand.Path(t, stand.Wasm))
	if err != nil {
		t.Fatal(err)
	}
	clock := wasmhost.NewClock()
	clock.Reset(time.Millisecond) // Go's runtime itself refuses a clock at 0
	h, err := wasmhost.New(code, wasmhost.Options{Clock: clock, Guard: true})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Push(wasmhost.Config{Plugin: bundleOf(t, fmt.Sprintf(tinyRules, 2), "", 1)}); err != nil {
		t.Fatal(err)
	}
	clock.Step(-1000 * time.Hour) // the wall clock is nothing to the filter
	counts := map[int]int{}
	for range 4 {
		counts[h.Send(0, from("192.0.2.1")).Status]++
	}
	if counts[200] != 2 || counts[429] != 2 {
		t.Errorf("answers %v, want 2 × 200", counts)
	}
}
