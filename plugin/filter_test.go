package main

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/proxytest"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/weirproject/weir/plugin/abi"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

const (
	address = "source.address"
	apiKey  = "request.headers.x-api-key"
)

func newKey(t *testing.T, seed byte) string {
	t.Helper()
	key, err := keyfilter.Format{}.New(rand.NewChaCha8([32]byte{seed}))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// encoded is a bundle of a rule that lets 10 through at once, 20 with a key, and in which key is known.
func encoded(t *testing.T, release uint64, headers rule.Headers, key string) []byte {
	t.Helper()
	return encodedLimits(t, release, headers, key, perSecond(1, 10), perSecond(1, 20))
}

func perSecond(count, burst int64) limit.Limit {
	return limit.Limit{Count: count, Window: limit.Second, Burst: burst}
}

func encodedLimits(t *testing.T, release uint64, headers rule.Headers, key string, anonymous, valid limit.Limit) []byte {
	t.Helper()
	hashKey := keyfilter.HashKey{5}
	b, err := bundle.Encode(bundle.Content{
		Release: release,
		Rule: &rule.Rule{
			Name:  "flood",
			Limit: anonymous,
			Valid: &valid,
			Terms: &rule.Terms{Where: rule.Edge, By: []rule.Choice{{rule.Address}}, Headers: headers, PrefixV4: 32, PrefixV6: 64},
		},
		Gate:      &bundle.Gate{KeyHeader: "x-api-key", HashKey: hashKey},
		KeyHashes: []uint64{keyfilter.Hash(hashKey, []byte(key))},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func started(t *testing.T, configuration []byte) *filter {
	t.Helper()
	f := &filter{}
	if !f.start(configuration) {
		t.Fatal("the start failed")
	}
	return f
}

func TestAnAdmittedRequestIsMarkedAndCounted(t *testing.T) {
	h := newHost(t)
	key := newKey(t, 1)
	f := started(t, encoded(t, 3, rule.Full, key))
	for class, request := range map[string]map[string]string{
		"anonymous": {address: "192.0.2.1:1"},
		"valid":     {address: "192.0.2.1:1", apiKey: key},
	} {
		action, marked, reply := h.request(f, request)
		if action != abi.Continue || !marked || reply != nil {
			t.Errorf("%s: action %d, marked %v, reply %v", class, action, marked, reply)
		}
		if h.counts["weir_edge_allowed."+class] != 1 {
			t.Errorf("%s: counters %v", class, h.counts)
		}
	}
	if h.counts["weir_edge_release"] != 3 || h.counts["weir_edge_lease"] != 1 {
		t.Errorf("gauges %v, want release 3, lease 1", h.counts)
	}
}

func TestRefusalsSayWhyInEachPlace(t *testing.T) {
	key, forged := newKey(t, 1), newKey(t, 2)
	for name, c := range map[string]struct {
		headers  map[string]string
		drained  bool
		status   uint32
		code     string
		grpc     int32
		wants    []string
		isAbsent []string
	}{
		"over the limit": {nil, true, 429, "rate_limited", 8, []string{"retry-after", "ratelimit", "ratelimit-policy"}, []string{"www-authenticate"}},
		"unknown key":    {map[string]string{apiKey: forged}, false, 401, "key_unknown", 16, []string{"www-authenticate"}, []string{"retry-after", "ratelimit"}},
		"malformed key":  {map[string]string{apiKey: ""}, false, 401, "key_malformed", 16, []string{"www-authenticate"}, []string{"retry-after"}},
		"two keys":       {map[string]string{apiKey: key + "," + key}, false, 400, "key_conflict", -1, nil, []string{"retry-after", "www-authenticate"}},
		"bearer":         {map[string]string{"request.headers.authorization": "Bearer " + forged}, false, 401, "key_unknown", 16, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			f := started(t, encoded(t, 3, rule.Full, key))
			request := map[string]string{address: "192.0.2.1:1"}
			if c.drained {
				for range 10 {
					h.request(f, request)
				}
			}
			for path, value := range c.headers {
				request[path] = value
			}
			action, marked, reply := h.request(f, request)
			if action != abi.Pause || marked || reply == nil {
				t.Fatalf("action %d, marked %v, reply %v", action, marked, reply)
			}
			if reply.status != c.status || reply.details != "weir_"+c.code+".flood" || reply.grpc != c.grpc {
				t.Errorf("got %+v", reply)
			}
			var body struct {
				Status  int
				Code    string
				Where   string
				Release uint64
			}
			if err := json.Unmarshal([]byte(reply.body), &body); err != nil {
				t.Fatalf("%v in %q", err, reply.body)
			}
			if body.Status != int(c.status) || body.Code != c.code || body.Where != "edge" || body.Release != 3 {
				t.Errorf("body %s", reply.body)
			}
			if reply.headers["content-type"] != "application/problem+json" {
				t.Errorf("headers %v", reply.headers)
			}
			for _, header := range c.wants {
				if reply.headers[header] == "" {
					t.Errorf("no %s in %v", header, reply.headers)
				}
			}
			for _, header := range c.isAbsent {
				if reply.headers[header] != "" {
					t.Errorf("%s in %v", header, reply.headers)
				}
			}
			if h.counts["weir_edge_denied."+c.code+".flood"] == 0 {
				t.Errorf("counters %v", h.counts)
			}
		})
	}
}

func TestARuleThatTellsNothingTellsNothing(t *testing.T) {
	h := newHost(t)
	f := started(t, encoded(t, 3, rule.None, newKey(t, 1)))
	var reply *localReply
	for reply == nil {
		_, _, reply = h.request(f, map[string]string{address: "192.0.2.1:1"})
	}
	if len(reply.headers) != 2 || reply.headers["cache-control"] != "no-store" || strings.Contains(reply.body, "flood") || strings.Contains(reply.body, "release") || strings.Contains(reply.body, "retry") {
		t.Errorf("headers %v, body %s", reply.headers, reply.body)
	}
}

func TestBeforeAnyStartNothingIsMarked(t *testing.T) {
	h := newHost(t)
	if action, marked, reply := h.request(&filter{}, nil); action != abi.Continue || marked || reply != nil {
		t.Errorf("action %d, marked %v: the guard must refuse", action, marked)
	}
}

func TestWithoutABundleTheFilterLimitsAllTheSame(t *testing.T) {
	h := newHost(t)
	f := started(t, nil)
	admitted := 0
	for range 5000 {
		if _, marked, _ := h.request(f, map[string]string{address: "192.0.2.1:1", apiKey: "anything"}); marked {
			admitted++
		}
	}
	if admitted == 0 || admitted == 5000 {
		t.Errorf("%d of 5,000 admitted", admitted)
	}
	if h.counts["weir_edge_release"] != 0 {
		t.Errorf("release %d, want 0", h.counts["weir_edge_release"])
	}
}

func TestABadBundleIsRefusedWholeAndTheLastGoodStays(t *testing.T) {
	h := newHost(t)
	f := started(t, encoded(t, 3, rule.Full, newKey(t, 1)))
	good := encoded(t, 4, rule.None, newKey(t, 2))
	for i, damage := range []func([]byte) []byte{
		func(b []byte) []byte { return b[:len(b)-1] },
		func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		func([]byte) []byte { return []byte("garbage") },
	} {
		h.logs = nil
		if f.start(damage(append([]byte(nil), good...))) {
			t.Errorf("damage %d was accepted", i)
		}
		if len(h.logs) != 1 || !strings.Contains(h.logs[0], "bundle: ") {
			t.Errorf("damage %d: log %q, want one line with the reason", i, h.logs)
		}
	}
	if h.counts["weir_edge_bundle_rejected"] != 3 || h.counts["weir_edge_release"] != 3 {
		t.Errorf("metrics %v", h.counts)
	}
	if _, marked, _ := h.request(f, map[string]string{address: "192.0.2.1:1", apiKey: newKey(t, 1)}); !marked {
		t.Error("a key of the last good release is not known any more")
	}
	if !f.start(good) {
		t.Fatal("a good bundle after bad ones was refused")
	}
	if _, marked, _ := h.request(f, map[string]string{address: "192.0.2.1:1", apiKey: newKey(t, 1)}); marked {
		t.Error("a key of the release before is still known")
	}
}

func TestWorkersShareBucketsAcrossPushes(t *testing.T) {
	h := newHost(t)
	key := newKey(t, 1)
	workers := []*filter{started(t, encoded(t, 1, rule.Full, key)), started(t, encoded(t, 1, rule.Full, key))}
	admitted := 0
	for i := range 60 {
		if i == 30 {
			workers[0].start(encoded(t, 2, rule.Full, key))
			workers = append(workers, started(t, encoded(t, 2, rule.Full, key))) // a VM made anew after a trap
		}
		if _, marked, _ := h.request(workers[i%len(workers)], map[string]string{address: "192.0.2.1:1"}); marked {
			admitted++
		}
	}
	if admitted != 10 {
		t.Errorf("%d admitted by all workers at one instant, want the burst of 10", admitted)
	}
}

func TestAPanicClosesTheDoorAndIsCounted(t *testing.T) {
	h := newHost(t)
	f := started(t, encoded(t, 1, rule.Full, newKey(t, 1)))
	h.broken = true
	if action, marked, _ := h.request(f, map[string]string{address: "192.0.2.1:1"}); action != abi.Continue || marked {
		t.Errorf("action %d, marked %v: want the guard to refuse it", action, marked)
	}
	if h.counts["weir_edge_recovered"] != 1 {
		t.Errorf("counters %v", h.counts)
	}
	h.broken = false
	if _, marked, _ := h.request(f, map[string]string{address: "192.0.2.1:1"}); !marked {
		t.Error("the next request is not served")
	}
}

func TestAHostWithoutMetricsLimitsAllTheSame(t *testing.T) {
	h := newHost(t)
	h.noMetrics = true
	f := started(t, encoded(t, 1, rule.Full, newKey(t, 1)))
	for range 30 {
		h.request(f, map[string]string{address: "192.0.2.1:1"})
	}
	if h.reply == nil || h.reply.status != 429 {
		t.Errorf("got %+v", h.reply)
	}
}

// What a request costs is mostly its host calls.
func TestHostCallsPerRequest(t *testing.T) {
	key := newKey(t, 1)
	b := encodedLimits(t, 1, rule.Full, key, perSecond(1000, 1000), perSecond(1000, 1000))
	anonymous := map[string]string{address: "192.0.2.1:1"}
	for _, c := range []struct {
		name          string
		configuration []byte
		request       map[string]string
		before        int // calls of the same request in front
		want          int
	}{
		{"without a gate", nil, anonymous, 10, 4},                                                  // clock, address, counter, mark
		{"known key", b, map[string]string{address: "192.0.2.1:1", apiKey: key}, 10, 5},            // and the key header
		{"no key", b, anonymous, 10, 6},                                                            // and Authorization
		{"no key, first seen", b, anonymous, 0, 9},                                                 // and slot read, slot written, bucket counted
		{"over the limit, in memory", b, anonymous, 1100, 6},                                       // the reply for the mark
		{"unknown key", b, map[string]string{address: "192.0.2.1:1", apiKey: newKey(t, 2)}, 10, 6}, // likewise, and counted as forged
		{"two keys", b, map[string]string{address: "192.0.2.1:1", apiKey: key + "," + key}, 10, 5}, // likewise
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			f := started(t, c.configuration)
			for range c.before {
				h.request(f, c.request)
			}
			h.calls = 0
			h.request(f, c.request)
			if h.calls != c.want {
				t.Errorf("%d host calls, want %d", h.calls, c.want)
			}
		})
	}
}

func TestARequestCostsNoGarbage(t *testing.T) {
	key := newKey(t, 1)
	h := &silentHost{address: []byte("192.0.2.1:1"), key: []byte(key)}
	abi.Connect(h)
	f := started(t, encoded(t, 1, rule.Full, key))
	for f.requestHeaders(1) == abi.Continue {
	}
	refused := testing.AllocsPerRun(1000, func() { f.requestHeaders(1) })
	h.step = 2_000_000_000
	admitted := testing.AllocsPerRun(1000, func() { f.requestHeaders(1) })
	t.Logf("allocations: %v admitted, %v refused", admitted, refused)
	if admitted != 0 {
		t.Errorf("%v allocations for an admitted request", admitted)
	}
	if refused > 20 { // the fields of the reply are strings; a garbage collection costs little with so small a heap
		t.Errorf("%v allocations for a refused request", refused)
	}
}

// silentHost answers without allocating.
type silentHost struct {
	abi.Host
	address, key []byte
	slots        [1 << 16][160]byte
	now, step    int64
}

func (h *silentHost) Property(path []byte) ([]byte, abi.Status) {
	switch len(path) {
	case len(addressPath):
		return h.address, abi.OK
	case len(headersPath) + len("x-api-key"):
		return h.key, abi.OK
	}
	return nil, abi.NotFound
}
func (h *silentHost) SetProperty([]byte, []byte) abi.Status { return abi.OK }
func (h *silentHost) SharedData(key []byte) ([]byte, uint32, abi.Status) {
	slot := &h.slots[int(key[len(key)-1])<<8|int(key[len(key)-2])]
	if slot[0] == 0 {
		return nil, 0, abi.NotFound
	}
	return slot[:], 1, abi.OK
}
func (h *silentHost) SetSharedData(key, value []byte, _ uint32) abi.Status {
	copy(h.slots[int(key[len(key)-1])<<8|int(key[len(key)-2])][:], value)
	return abi.OK
}
func (h *silentHost) LocalReply(uint32, []byte, []byte, []byte, int32) abi.Status { return abi.OK }
func (h *silentHost) DefineMetric(abi.MetricKind, string) (uint32, abi.Status)    { return 0, abi.OK }
func (h *silentHost) Increment(uint32, int64) abi.Status                          { return abi.OK }
func (h *silentHost) Record(uint32, uint64) abi.Status                            { return abi.OK }
func (h *silentHost) Monotonic() int64                                            { h.now += h.step; return h.now + 1e12 }
func (h *silentHost) Wall() int64                                                 { return 0 }
func (h *silentHost) Log(abi.Level, string)                                       {}

// The SDK carries start and configure; what it hands over must reach the filter.
func TestStartsThroughTheSDK(t *testing.T) {
	h := newHost(t)
	t.Cleanup(func() { here = filter{} })
	here = filter{}
	good := encoded(t, 9, rule.Full, newKey(t, 1))
	emulator, reset := proxytest.NewHostEmulator(proxytest.NewEmulatorOption().WithVMContext(&vm{}).WithPluginConfiguration(good))
	defer reset()
	if emulator.StartVM() != types.OnVMStartStatusOK || emulator.StartPlugin() != types.OnPluginStartStatusOK {
		t.Fatal("the start failed")
	}
	if h.counts["weir_edge_release"] != 9 {
		t.Errorf("metrics %v", h.counts)
	}
	// The callback of the hot path goes past the SDK.
	h.properties = map[string]string{address: "192.0.2.1:1"}
	if abi.Registered().RequestHeaders(1) != abi.Continue || h.properties["wasm.weir_verdict"] != "1" {
		t.Error("the registered callback does not reach the filter")
	}
}

func TestABadBundleFailsTheStartThroughTheSDK(t *testing.T) {
	newHost(t)
	t.Cleanup(func() { here = filter{} })
	here = filter{}
	emulator, reset := proxytest.NewHostEmulator(proxytest.NewEmulatorOption().WithVMContext(&vm{}).WithPluginConfiguration([]byte("garbage")))
	defer reset()
	emulator.StartVM()
	if emulator.StartPlugin() != types.OnPluginStartStatusFailed {
		t.Error("a bad bundle started")
	}
}
