package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/stand"
	"github.com/weirproject/weir/e2e/wasmhost"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
)

const (
	deltaEpoch = 7
	staleAfter = time.Minute
	// perChange is the most that one change may cost on the way to an Envoy.
	perChange = 4 << 10
)

// control stands in for the control plane: it serves the changes of keys, and counts who asks.
type control struct {
	mu      sync.Mutex
	changes []keyfilter.Change // the n-th is sequence number n
	asked   []string
	sent    int // bytes of answers that held changes
}

var controlKey = keyfilter.HashKey{3}

func edgeHash(key string) uint64 { return keyfilter.Hash(controlKey, []byte(key)) }

func (c *control) change(key string, op keyfilter.Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, keyfilter.Change{Hash: edgeHash(key), Op: op})
}

// calls counts the questions so far.
func (c *control) calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked)
}

func (c *control) answer(target string) (status int, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, target)
	at, err := url.Parse(target)
	if err != nil || at.Path != "/edge/v1/deltas" {
		return http.StatusNotFound, nil
	}
	since, err := strconv.Atoi(at.Query().Get("since"))
	switch {
	case err != nil:
		return http.StatusBadRequest, nil
	case at.Query().Get("epoch") != strconv.Itoa(deltaEpoch) || since > len(c.changes):
		return http.StatusConflict, nil
	case since == len(c.changes):
		return http.StatusNoContent, nil
	}
	d := bundle.Delta{Epoch: deltaEpoch, From: uint64(since), To: uint64(len(c.changes)), Changes: c.changes[since:]}
	body = d.Append(nil)
	c.sent += len(body)
	return http.StatusOK, body
}

func (c *control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, body := c.answer(r.URL.RequestURI())
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// followed is a bundle whose keys have changes that control serves.
func followed(t *testing.T, release, seq uint64, keys ...string) []byte {
	t.Helper()
	content := bundle.Content{
		Release: release, Built: limit.Micros(time.Now().UnixMicro()),
		Gate: &bundle.Gate{
			KeyHeader: "x-api-key", HashKey: controlKey, Epoch: deltaEpoch, Seq: seq,
			StaleAfter: limit.Micros(staleAfter.Microseconds()), Unverified: limit.Limit{Count: 3, Window: limit.Hour},
		},
	}
	for _, key := range keys {
		content.KeyHashes = append(content.KeyHashes, edgeHash(key))
	}
	b, err := bundle.Encode(content)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// controlled is the filter on W workers with a control plane that can be away.
func controlled(t *testing.T, workers int, c *control, away *bool, plugin []byte) *wasmhost.Host {
	t.Helper()
	return newHostWith(t, stand.Wasm, wasmhost.Options{Workers: workers, Clusters: map[string]wasmhost.Cluster{
		"weir_control": func(call wasmhost.Call) wasmhost.Outcome {
			if *away {
				return wasmhost.Outcome{Fault: wasmhost.Refused}
			}
			status, body := c.answer(call.Path())
			return wasmhost.Outcome{Answer: wasmhost.Answer{Status: status, Body: string(body)}, After: 20 * time.Millisecond}
		},
	}}, wasmhost.Config{Plugin: plugin})
}

// statusOn is what each worker answers a key with.
func statusOn(h *wasmhost.Host, key string) []int {
	var all []int
	for w := range h.Workers() {
		all = append(all, h.Send(w, from(fmt.Sprintf("192.0.2.%d", w+1), "x-api-key: "+key)).Status)
	}
	return all
}

func TestAChangedKeyReachesEveryWorkerWithinTwoTicks(t *testing.T) {
	stand.Need(t, stand.Wasm)
	keyring := stand.NewKeyring(t)
	old, young := keyring.Forge(t), keyring.Forge(t)
	away := false
	c := &control{}
	h := controlled(t, 4, c, &away, followed(t, 1, 0, old))
	h.Advance(time.Second)
	if calls := c.calls(); calls != 1 {
		t.Fatalf("%d calls of 4 workers and the main thread in the first second, want 1", calls)
	}
	c.change(young, keyfilter.Issued)
	c.change(old, keyfilter.Revoked)
	h.Advance(2 * time.Second)
	if got := fmt.Sprint(statusOn(h, young), statusOn(h, old)); got != "[200 200 200 200] [401 401 401 401]" {
		t.Errorf("two ticks after the change: young and old %s", got)
	}
	if c.sent > 2*perChange {
		t.Errorf("%d bytes for 2 changes, want less than %d each", c.sent, perChange)
	}
	t.Logf("2 changes took %d bytes", c.sent)
	h.Advance(30 * time.Second)
	if calls := c.calls(); calls > 33 {
		t.Errorf("%d calls in 33 seconds, want one a second at most", calls)
	}
	// A push of the same epoch keeps what was learnt; one of an older state does too.
	if err := h.Push(wasmhost.Config{Plugin: followed(t, 2, 0, old), Env: goEnv}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(statusOn(h, young), statusOn(h, old)); got != "[200 200 200 200] [401 401 401 401]" {
		t.Errorf("after a push: young and old %s", got)
	}
}

// Case 30: control is away for an hour while keys are issued. Old keys go on, new ones pass as unverified, up to a cap, and
// the filter says so.
func TestWithControlAwayNobodyIsLockedOut(t *testing.T) {
	stand.Need(t, stand.Wasm)
	keyring := stand.NewKeyring(t)
	old, young := keyring.Forge(t), keyring.Forge(t)
	away := false
	c := &control{}
	h := controlled(t, 2, c, &away, followed(t, 1, 0, old))
	h.Advance(5 * time.Second)
	away = true
	c.change(young, keyfilter.Issued)
	h.Advance(staleAfter - 10*time.Second)
	if got := fmt.Sprint(statusOn(h, young)); got != "[401 401]" {
		t.Errorf("within the stated age: %s", got)
	}
	h.Advance(time.Hour)
	counts := map[int]int{}
	for range 5 {
		for _, status := range statusOn(h, young) {
			counts[status]++
		}
	}
	if got := fmt.Sprint(statusOn(h, old)); got != "[200 200]" {
		t.Errorf("an old key: %s", got)
	}
	if counts[200] < 3 || counts[200] > 3+2 || counts[429] != 10-counts[200] {
		t.Errorf("an unknown key: %v, want the capped bucket of 3, at most a lease a worker more", counts)
	}
	failed, _ := h.Counter("weir_edge_deltas_failed")
	age, _ := h.Gauge("weir_edge_bundle_age_seconds")
	passed, _ := h.Counter("weir_edge_unverified")
	if failed < 3000 || age < 3600 || passed != uint64(counts[200]) {
		t.Errorf("failed %d, age %d s, unverified %d: want them told", failed, age, passed)
	}
	away = false
	h.Advance(3 * time.Second)
	if got := fmt.Sprint(statusOn(h, young), statusOn(h, keyring.Forge(t))); got != "[200 200] [401 401]" {
		t.Errorf("control is back: young and forged %s", got)
	}
}

// What a stand-in answers that is none must not be believed, and must not stop the asking.
func TestBadAnswersOfControlChangeNothing(t *testing.T) {
	stand.Need(t, stand.Wasm)
	keyring := stand.NewKeyring(t)
	old := keyring.Forge(t)
	good := bundle.Delta{Epoch: deltaEpoch, To: 1, Changes: []keyfilter.Change{{Hash: edgeHash(old), Op: keyfilter.Revoked}}}.Append(nil)
	damaged := append([]byte(nil), good...)
	damaged[len(damaged)/2] ^= 1
	answers := []wasmhost.Outcome{
		{Fault: wasmhost.NoHosts}, {Fault: wasmhost.Mute}, {Fault: wasmhost.Refused}, {Fault: wasmhost.Closed}, {Fault: wasmhost.Reset},
		{Answer: wasmhost.Answer{Status: 500}}, {Answer: wasmhost.Answer{Status: 200}},
		{Answer: wasmhost.Answer{Status: 200, Body: string(damaged)}},
		{Answer: wasmhost.Answer{Status: 200, Body: string(make([]byte, 1<<20))}},
		{Answer: wasmhost.Answer{Status: 200, Body: string(good)}, After: 5 * time.Second},
		{Answer: wasmhost.Answer{Status: 302}},
	}
	n := 0
	h := newHostWith(t, stand.Wasm, wasmhost.Options{Workers: 1, Clusters: map[string]wasmhost.Cluster{
		"weir_control": func(wasmhost.Call) wasmhost.Outcome { n++; return answers[n%len(answers)] },
	}}, wasmhost.Config{Plugin: followed(t, 1, 0, old)})
	h.Advance(time.Minute)
	if got := fmt.Sprint(statusOn(h, old)); got != "[200]" {
		t.Errorf("a known key: %s\n%s", got, h.LogText())
	}
	recovered, _ := h.Counter("weir_edge_recovered")
	if n < 50 || recovered != 0 {
		t.Errorf("asked %d times in a minute, recovered %d times", n, recovered)
	}
}

// The same on a real Envoy: how it ticks, calls out and shares is its own.
func TestEnvoyFollowsChangesOfKeys(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	c := &control{}
	server := httptest.NewServer(c)
	defer server.Close()
	keyring := stand.NewKeyring(t)
	old, young := keyring.Forge(t), keyring.Forge(t)
	e, api := behind(t, stand.EdgeSettings{Workers: 4, Flags: []string{"--control", strings.TrimPrefix(server.URL, "http://"), "--node", "pop 1"}})
	admin := stand.NewClient(t, "")
	folder := t.TempDir()
	push := func(release uint64, keys ...string) {
		t.Helper()
		path := filepath.Join(folder, "bundle")
		if err := os.WriteFile(path, followed(t, release, 0, keys...), 0o600); err != nil {
			t.Fatal(err)
		}
		e.Push(t, path)
		e.Until(t, "runs the release on all workers", func() error {
			low, workers := e.Stat(t, admin, "wasmcustom.weir_edge_release_min"), e.Stat(t, admin, "wasmcustom.weir_edge_workers")
			return unless(low == int(release) && workers >= 5, "release_min %d on %d VMs", low, workers)
		})
	}
	// everywhere asks over enough connections to reach each worker, each from an address of its own: refused again and again,
	// one would soon be told to come back later instead.
	callers, asked := stand.NewCallers(), 0
	everywhere := func(key string) map[int]int {
		counts := map[int]int{}
		for range 32 {
			asked++
			r, err := callers.Do(fmt.Sprintf("127.31.%d.%d", asked>>8&255, asked&255), http.MethodGet, e.URL+"/", "X-Api-Key: "+key)
			if err != nil {
				t.Fatal(err)
			}
			counts[r.Status]++
		}
		return counts
	}
	push(2, old)
	if got := fmt.Sprint(everywhere(old), everywhere(young)); got != "map[200:32] map[401:32]" {
		t.Fatalf("before the change: old and young %s", got)
	}
	begin, calls := time.Now(), c.calls()
	c.change(young, keyfilter.Issued)
	c.change(old, keyfilter.Revoked)
	e.Until(t, "knows the changes on all workers", func() error {
		got := fmt.Sprint(everywhere(old), everywhere(young))
		return unless(got == "map[401:32] map[200:32]", "old and young %s", got)
	})
	// Ticks are a second apart, and a tick late on a busy machine is late for all of them.
	if took, asked := time.Since(begin), c.calls()-calls; float64(asked) > took.Seconds()+2 {
		t.Errorf("%d calls in %v of 4 workers and the main thread, want one a second", asked, took)
	}
	c.mu.Lock()
	last := c.asked[len(c.asked)-1]
	c.mu.Unlock()
	if !strings.HasSuffix(last, "&node=pop%201") {
		t.Errorf("asked %s, want the node named", last)
	}
	// Shared data outlives the VMs: a push in which all start anew knows at once.
	push(3, old)
	if got := fmt.Sprint(everywhere(old), everywhere(young)); got != "map[401:32] map[200:32]" {
		t.Errorf("after a push: old and young %s", got)
	}
	if api.Calls() == 0 {
		t.Error("nothing reached the API")
	}
	t.Logf("changes were in force on 4 workers after %v", time.Since(begin).Round(10*time.Millisecond))
}

// A request that passed as unverified says so to the origin, and no client can say it.
func TestTheOriginIsToldWhatIsUnverified(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	keyring := stand.NewKeyring(t)
	old := keyring.Forge(t)
	e, api := behind(t, stand.EdgeSettings{Workers: 1})
	admin := stand.NewClient(t, "")
	content := bundle.Content{
		Release: 2, Built: limit.Micros(time.Now().Add(-2 * staleAfter).UnixMicro()), // old when it comes
		Gate: &bundle.Gate{KeyHeader: "x-api-key", HashKey: controlKey,
			StaleAfter: limit.Micros(staleAfter.Microseconds()), Unverified: limit.Limit{Count: 3, Window: limit.Hour}},
		KeyHashes: []uint64{edgeHash(old)},
	}
	encoded, err := bundle.Encode(content)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(path, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	e.Push(t, path)
	e.Until(t, "runs release 2", func() error {
		got := e.Stat(t, admin, releaseGauge)
		return unless(got == 2, "%s = %d", releaseGauge, got)
	})
	c := stand.NewClient(t, "127.0.0.32")
	counts := map[int]int{}
	for range 5 {
		counts[c.Get(t, e.URL+"/", "X-Api-Key: "+keyring.Forge(t), "X-Weir-Class: valid").Status]++
	}
	if got := api.Last().Get("X-Weir-Class"); got != "unverified" || counts[200] != 3 || counts[429] != 2 {
		t.Errorf("class %q, answers %v: want unverified, and the cap of 3", got, counts)
	}
	if r := c.Get(t, e.URL+"/", "X-Api-Key: "+old, "X-Weir-Class: unverified"); r.Status != 200 || api.Last().Get("X-Weir-Class") != "" {
		t.Errorf("a known key: %d, class %q", r.Status, api.Last().Get("X-Weir-Class"))
	}
}
