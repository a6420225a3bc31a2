package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirproject/weir/e2e/stand"
	"github.com/weirproject/weir/e2e/wasmhost"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Memory is compared as the size of each VM's linear memory in bytes. Go's runtime takes it in steps of 512 KiB, and when its
// collector runs hangs on what was allocated before: so flat means that the second half's 300,000 requests of each worker
// took one step at most, where two bytes kept of each would take two.

// memoryStep is what Go's runtime grows by on Wasm.
const memoryStep = 512 << 10

// Case 24. Memory is bounded, so that a million addresses push a limited one out of every table; whatever comes into
// its place may be held for more used than it is, and is never held for less. Of those addresses a quarter come with a
// forged key and a quarter with an issued one, and between them the limited one is denied and a busy one allowed.
func TestMillionAddressesBringNoAmnestyAndLeaveNothing(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir)
	const million = 1_000_000
	keyring := stand.NewKeyring(t)
	alice := "x-api-key: " + keyring.Issue(t, "alice")
	rules := `version: 1
rules:
- {name: tiny, where: edge, by: [address], algorithm: token-bucket, limit: 20/1h, valid-key: {limit: 1000000/1h}}
`
	h := newHost(t, stand.Wasm, 2, wasmhost.Config{Plugin: bundleOf(t, rules, keyring.File(), 1)})
	counts := map[string]map[int]int{"limited": {}, "plain": {}, "forged": {}, "keyed": {}, "busy": {}}
	for i := range 40 {
		counts["limited"][h.Send(i%2, from("192.0.2.66")).Status]++
	}
	forged := make([]string, 1000)
	for i := range forged {
		forged[i] = "x-api-key: " + keyring.Forge(t)
	}
	var before []uint32
	var shared, contexts int
	for i := range million {
		address := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		switch i / 2 % 4 {
		case 0, 1:
			counts["plain"][h.Send(i%2, from(address)).Status]++
		case 2:
			counts["forged"][h.Send(i%2, from(address, forged[i%len(forged)])).Status]++
		case 3:
			counts["keyed"][h.Send(i%2, from(address, alice)).Status]++
		}
		if i%10 == 0 {
			counts["limited"][h.Send(i/10%2, from("192.0.2.66")).Status]++
			counts["busy"][h.Send(i/10%2, from("198.51.100.1", alice)).Status]++
		}
		if i == million/2 {
			before, shared, contexts = h.Memories(), h.Shared().Len(), h.Contexts()
		}
	}
	t.Logf("answers %v, %d shared values, %v bytes a VM", counts, h.Shared().Len(), h.Memories())
	for i, bytes := range h.Memories() {
		if bytes > before[i]+memoryStep {
			t.Errorf("VM %d grew from %d to %d bytes in the second half", i, before[i], bytes)
		}
	}
	if h.Shared().Len() != shared || h.Contexts() != contexts {
		t.Errorf("%d shared values and %d contexts, %d and %d at half time", h.Shared().Len(), h.Contexts(), shared, contexts)
	}
	if counts["limited"][200] != 20 {
		t.Errorf("the limited address got %v, want its 20 and no more", counts["limited"])
	}
	// A new address may find its place held for used; more than a few would punish the innocent.
	for kind, want := range map[string]int{"plain": 200, "forged": 401, "keyed": 200, "busy": 200} {
		if all := counts[kind][want] + counts[kind][429]; counts[kind][want] < all*99/100 || len(counts[kind]) > 2 {
			t.Errorf("%s: answers %v, want %d and at most 1 %% of 429", kind, counts[kind], want)
		}
	}
}

// megabyte is a bundle of at least 1 MiB that holds real keys, as a large installation's does.
type megabyte struct {
	hashKey keyfilter.HashKey
	hashes  []uint64
}

func newMegabyte(t *testing.T) *megabyte {
	t.Helper()
	m := &megabyte{}
	random := rand.New(rand.NewPCG(1, 2)) // which keys they are does not matter
	for n := 1 << 17; ; n += n / 4 {
		for len(m.hashes) < n {
			m.hashes = append(m.hashes, random.Uint64())
		}
		if len(m.release(t, 1, 2)) >= 1<<20 {
			return m
		}
	}
}

// release is the bundle under a number, with a rule that lets burst requests through.
func (m *megabyte) release(t *testing.T, number uint64, burst int64) []byte {
	t.Helper()
	b, err := bundle.Encode(bundle.Content{
		Release: number,
		Rule: &rule.Rule{
			Name:  "tiny",
			Limit: limit.Limit{Count: burst, Window: limit.Hour, Burst: burst},
			Terms: &rule.Terms{Where: rule.Edge, Algorithm: rule.TokenBucket, By: []rule.Choice{{rule.Address}}, PrefixV4: 32, PrefixV6: 64},
		},
		Gate:      &bundle.Gate{KeyHeader: "x-api-key", HashKey: m.hashKey},
		KeyHashes: m.hashes,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A push leaves neither contexts nor memory behind, and no bucket is refilled by it, however large the bundle is and
// although requests are in flight on the release before it.
func TestTwoHundredPushesOfAMegabyteLeaveNothing(t *testing.T) {
	stand.Need(t, stand.Wasm)
	const pushes, settled = 200, 40 // the first pushes let the heap find its size
	m := newMegabyte(t)
	h := newHost(t, stand.Wasm, 2, wasmhost.Config{Plugin: m.release(t, 1, 2)})
	for i := range 4 {
		h.Send(i%2, from("192.0.2.1"))
	}
	contexts := h.Contexts()
	var before []uint32
	var vms int
	for i := range pushes {
		waiting := h.Begin(i%2, from("192.0.2.2")) // on the old release; of its two tokens none comes back
		content := m.release(t, uint64(i+2), 2)
		if err := h.Push(wasmhost.Config{Plugin: content, Env: goEnv}); err != nil {
			t.Fatalf("push %d: %v", i, err)
		}
		if r := h.Send(i%2, from("192.0.2.1")); r.Status != 429 {
			t.Fatalf("push %d refilled a bucket: status %d", i, r.Status)
		}
		waiting.Answer(wasmhost.Answer{Status: 204})
		if r := waiting.End(); (r.Status == 204) != (i < 2) {
			t.Fatalf("push %d: a request in flight ends with %d", i, r.Status)
		}
		if release, _ := h.Gauge("weir_edge_release"); release != uint64(i+2) {
			t.Fatalf("push %d: release %d is in force", i, release)
		}
		if i == settled {
			before, vms = h.Memories(), h.Created()
			t.Logf("%d bytes a bundle, %d keys, %v bytes a VM", len(content), len(m.hashes), before)
		}
	}
	for i, bytes := range h.Memories() {
		if bytes != before[i] {
			t.Errorf("VM %d grew from %d to %d bytes over %d pushes", i, before[i], bytes, pushes-settled-1)
		}
	}
	if h.Contexts() != contexts {
		t.Errorf("%d contexts after %d pushes, %d before", h.Contexts(), pushes, contexts)
	}
	if made := h.Created() - vms; made != pushes-settled-1 {
		t.Errorf("%d pushes made %d VMs, want one canary each", pushes-settled-1, made)
	}
}

const (
	envoyPushes = 24
	// settledPush is from when on Envoy's memory is compared: allocators and V8 find their size before.
	settledPush = 9
	// pushGrowth bounds in bytes what the pushes after that may leave: a copy of each bundle in one place would be 14 MB.
	pushGrowth = 8 << 20
)

// Envoy frees what a push replaces only for filters that let go of it.
func TestPushesLeaveNothingInEnvoy(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	m := newMegabyte(t)
	e, _ := behind(t, stand.EdgeSettings{Workers: 2})
	admin, c := stand.NewClient(t, ""), stand.NewClient(t, "127.0.0.41")
	path := filepath.Join(t.TempDir(), "bundle")
	var settled, last int64
	for i := range envoyPushes {
		if err := os.WriteFile(path, m.release(t, uint64(i+2), 1000), 0o600); err != nil {
			t.Fatal(err)
		}
		e.Push(t, path)
		e.Until(t, fmt.Sprintf("runs push %d", i), func() error {
			got := e.Stat(t, admin, releaseGauge)
			return unless(got == i+2, "%s = %d", releaseGauge, got)
		})
		if r := c.Get(t, e.URL+"/"); r.Status != 200 {
			t.Fatalf("push %d: status %d", i, r.Status)
		}
		if last = e.Resident(t); i == settledPush {
			settled = last
		}
	}
	t.Logf("resident %.1f MiB after %d pushes of 1 MB, %.1f MiB after %d", float64(settled)/(1<<20), settledPush+1, float64(last)/(1<<20), envoyPushes)
	if last-settled > pushGrowth {
		t.Errorf("Envoy grew by %d bytes over %d pushes, want at most %d", last-settled, envoyPushes-settledPush-1, pushGrowth)
	}
}
