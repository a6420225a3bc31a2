package main

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
)

const second = int64(1e9)

var testHashKey = keyfilter.HashKey{5}

// following is a bundle of the given keys whose changes control serves, as of seq.
func following(t *testing.T, epoch, seq uint64, keys ...string) []byte {
	t.Helper()
	content := bundle.Content{
		Release: 1,
		Gate: &bundle.Gate{KeyHeader: "x-api-key", HashKey: testHashKey, Epoch: epoch, Seq: seq,
			StaleAfter: limit.Minute, Unverified: perSecond(1, 3)},
	}
	for _, key := range keys {
		content.KeyHashes = append(content.KeyHashes, keyfilter.Hash(testHashKey, []byte(key)))
	}
	b, err := bundle.Encode(content)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// vms are the filters of one Envoy: they share what h holds.
func vms(t *testing.T, n int, configuration []byte) []*filter {
	t.Helper()
	all := make([]*filter, n)
	for i := range all {
		all[i] = started(t, configuration)
		all[i].begin(uint32(i + 1))
	}
	return all
}

// tickAll lets a second pass for all of them.
func (h *host) tickAll(all []*filter) {
	h.now += second
	for _, f := range all {
		f.tick(f.control.root)
	}
}

// answer gives control's answer to the VM that asked.
func (h *host) answer(all []*filter, status, body string) {
	h.headers, h.body = map[string]string{":status": status}, body
	for _, f := range all {
		if f.control.calling {
			f.answered(status != "", len(body))
		}
	}
}

func delta(epoch, from, to uint64, changes ...keyfilter.Change) string {
	return string(bundle.Delta{Epoch: epoch, From: from, To: to, Changes: changes}.Append(nil))
}

func change(key string, op keyfilter.Op) keyfilter.Change {
	return keyfilter.Change{Hash: keyfilter.Hash(testHashKey, []byte(key)), Op: op}
}

func (h *host) status(f *filter, key string) uint32 {
	_, _, reply := h.request(f, map[string]string{address: "192.0.2.1:1", apiKey: key})
	if reply == nil {
		return 200
	}
	return reply.status
}

func TestOneVMAsksForAll(t *testing.T) {
	h := newHost(t)
	all := vms(t, 5, following(t, 7, 40))
	if h.period != 1000 {
		t.Errorf("ticks each %d ms", h.period)
	}
	for range 10 {
		h.tickAll(all)
		h.answer(all, "204", "")
	}
	if len(h.sent) != 10 {
		t.Fatalf("%d calls in 10 seconds of 5 VMs, want one a second", len(h.sent))
	}
	first := h.sent[0]
	if first.cluster != "weir_control" || first.headers[":path"] != "/edge/v1/deltas?epoch=7&since=40" || first.headers[":method"] != "GET" || first.timeout >= 1000 {
		t.Errorf("sent %+v", first)
	}
}

func TestANodeIsNamedInTheCall(t *testing.T) {
	h := newHost(t)
	all := vms(t, 1, following(t, 7, 0))
	h.properties["xds.node.id"] = "pop 1/a&b"
	h.tickAll(all)
	if path := h.sent[0].headers[":path"]; !strings.HasSuffix(path, "&node=pop%201%2Fa%26b") {
		t.Errorf("asked %s", path)
	}
}

func TestIssuedAndRevokedKeysReachEveryVM(t *testing.T) {
	h := newHost(t)
	old, young := newKey(t, 1), newKey(t, 2)
	all := vms(t, 3, following(t, 7, 40, old))
	h.tickAll(all)
	h.answer(all, "200", delta(7, 40, 42, change(young, keyfilter.Issued), change(old, keyfilter.Revoked)))
	h.tickAll(all)
	h.answer(all, "204", "")
	for i, f := range all {
		if h.status(f, young) != 200 || h.status(f, old) != 401 {
			t.Errorf("VM %d: young %d, old %d", i, h.status(f, young), h.status(f, old))
		}
	}
	if path := h.sent[1].headers[":path"]; !strings.HasSuffix(path, "since=42") {
		t.Errorf("asked %s after a change to 42", path)
	}
	// A VM that starts later knows at once.
	late := started(t, following(t, 7, 40, old))
	if h.status(late, young) != 200 || h.status(late, old) != 401 {
		t.Error("a new VM has to wait for what the others know")
	}
	// A bundle that is newer than the list knows better: young was revoked since.
	for _, f := range all {
		if !f.start(following(t, 7, 50)) {
			t.Fatal("the start failed")
		}
		if h.status(f, young) != 401 {
			t.Error("a change from before the bundle beats it")
		}
	}
	// And one that is older than the list keeps it.
	if f := all[0]; !f.start(following(t, 7, 41, old)) || h.status(f, old) != 401 {
		t.Error("a bundle brought a revoked key back")
	}
}

func TestAnswersThatAreNoneChangeNothing(t *testing.T) {
	young := newKey(t, 2)
	for name, c := range map[string]struct {
		status, body string
		failed       uint64
	}{
		"no answer":          {"", "", 1},
		"not found":          {"404", "", 1},
		"garbage":            {"200", "garbage", 1},
		"empty":              {"200", "", 1},
		"another epoch":      {"200", delta(8, 40, 41, change(young, keyfilter.Issued)), 1},
		"not what was asked": {"200", delta(7, 39, 41, change(young, keyfilter.Issued)), 1},
		"backwards":          {"200", delta(7, 40, 39, change(young, keyfilter.Issued)), 1},
		"wait for a bundle":  {"409", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			all := vms(t, 2, following(t, 7, 40))
			h.tickAll(all)
			h.answer(all, c.status, c.body)
			h.tickAll(all)
			if h.status(all[0], young) != 401 || h.counts["weir_edge_deltas_failed"] != c.failed {
				t.Errorf("key %d, failed %d", h.status(all[0], young), h.counts["weir_edge_deltas_failed"])
			}
			if len(h.sent) != 2 || h.sent[1].headers[":path"] != h.sent[0].headers[":path"] {
				t.Errorf("sent %+v", h.sent)
			}
		})
	}
}

func TestWithoutControlOldKeysWorkAndNewOnesPassAsUnverified(t *testing.T) {
	h := newHost(t)
	old, young := newKey(t, 1), newKey(t, 2)
	all := vms(t, 2, following(t, 7, 40, old))
	h.noCluster = true
	for range 60 {
		h.tickAll(all)
	}
	if h.status(all[0], young) != 401 {
		t.Fatal("unverified within the stated age")
	}
	for range 2 {
		h.tickAll(all)
	}
	if h.status(all[0], old) != 200 {
		t.Error("an old key is refused")
	}
	codes := map[uint32]int{}
	for range 5 {
		codes[h.status(all[0], young)]++
	}
	if codes[200] != 3 || codes[429] != 2 || h.counts["weir_edge_unverified"] != 3 || h.counts["weir_edge_allowed.unverified"] != 3 {
		t.Errorf("got %v and %v, want the capped bucket of 3", codes, h.counts)
	}
	if h.properties["wasm.weir_class"] != "" {
		t.Error("a refused request has a class")
	}
	h.now += 5 * second
	if h.status(all[0], young); h.properties["wasm.weir_class"] != "unverified" {
		t.Error("an unverified request is not marked so")
	}
	if age := h.counts["weir_edge_bundle_age_seconds"]; age < 60 || age > 70 || h.counts["weir_edge_deltas_failed"] == 0 {
		t.Errorf("age %d, failed %d", age, h.counts["weir_edge_deltas_failed"])
	}
	// Control is back: what it confirms is fresh again.
	h.noCluster = false
	h.tickAll(all)
	h.answer(all, "204", "")
	h.tickAll(all)
	for _, f := range all {
		if got := h.status(f, young); got != 401 {
			t.Errorf("unknown key gets %d", got)
		}
	}
}

func TestAnotherVMLeadsWhenTheLeaderIsGone(t *testing.T) {
	h := newHost(t)
	all := vms(t, 3, following(t, 7, 40))
	h.tickAll(all)
	h.answer(all, "204", "")
	rest := all[1:] // the first ticked first, so it led
	calls := len(h.sent)
	for range 4 {
		h.tickAll(rest)
		h.answer(rest, "204", "")
	}
	if got := len(h.sent) - calls; got < 1 || got > 2 {
		t.Errorf("%d calls in the 4 seconds after the leader died, want it replaced after 3", got)
	}
}

func TestALostAnswerDoesNotStopTheAsking(t *testing.T) {
	h := newHost(t)
	all := vms(t, 1, following(t, 7, 40))
	for range 4 {
		h.tickAll(all)
	}
	if len(h.sent) != 2 {
		t.Errorf("%d calls in 4 seconds of which none is answered, want 2", len(h.sent))
	}
}

func TestOldPluginContextsDoNotTick(t *testing.T) {
	h := newHost(t)
	f := started(t, following(t, 7, 40))
	f.begin(1)
	f.begin(9)
	h.now += second
	f.tick(1)
	if len(h.sent) != 0 {
		t.Error("a context that a push replaced asks")
	}
	f.tick(9)
	if len(h.sent) != 1 {
		t.Error("the newest context does not ask")
	}
}

func TestOneVMTellsForAll(t *testing.T) {
	h := newHost(t)
	all := []*filter{}
	for release := range uint64(3) {
		b, err := bundle.Encode(bundle.Content{Release: 5 + release})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, vms(t, 1, b)...)
	}
	h.tickAll(all)
	h.tickAll(all)
	want := map[string]uint64{"weir_edge_workers": 3, "weir_edge_release_min": 5, "weir_edge_release_max": 7,
		"weir_edge_over_admission": 3 * uint64(all[0].engine.LargestLease())}
	for name, value := range want {
		if h.counts[name] != value {
			t.Errorf("%s is %d, want %d", name, h.counts[name], value)
		}
	}
	if len(h.sent) != 0 {
		t.Error("asks for changes of keys that nobody serves")
	}
	// A VM that is gone is counted no longer, and its place is taken by the next.
	for range 6 {
		h.tickAll(all[1:])
	}
	if h.counts["weir_edge_workers"] != 2 || h.counts["weir_edge_release_min"] != 6 {
		t.Errorf("after one is gone: %v", h.counts)
	}
	all = append(all[1:], vms(t, 1, nil)...)
	h.tickAll(all)
	h.tickAll(all)
	places := 0
	for name := range h.shared {
		if strings.HasPrefix(name, "weir.vm1.") {
			places++
		}
	}
	if places != 3 || h.counts["weir_edge_workers"] != 3 {
		t.Errorf("%d places for 3 VMs, counted %d", places, h.counts["weir_edge_workers"])
	}
}

func TestTheListBeginsAnewWhenABundleHoldsIt(t *testing.T) {
	h := newHost(t)
	young := newKey(t, 2)
	all := vms(t, 2, following(t, 7, 0))
	many := make([]keyfilter.Change, compactAt)
	for i := range many {
		many[i] = keyfilter.Change{Hash: uint64(i + 1), Op: keyfilter.Issued}
	}
	h.tickAll(all)
	h.answer(all, "200", delta(7, 0, compactAt, many...))
	h.tickAll(all)
	h.answer(all, "204", "")
	for _, f := range all {
		if f.engine.Changes().Len() != compactAt || !f.start(following(t, 7, compactAt-1)) {
			t.Fatalf("%d changes", f.engine.Changes().Len())
		}
	}
	h.tickAll(all)
	if path := h.sent[len(h.sent)-1].headers[":path"]; !strings.HasSuffix(path, "since=4095") {
		t.Fatalf("asked %s, want what came after the bundle", path)
	}
	if all[0].engine.Changes().Len() != compactAt {
		t.Error("the old list goes before the new one has come")
	}
	h.answer(all, "200", delta(7, compactAt-1, compactAt+1, change(young, keyfilter.Issued)))
	h.tickAll(all)
	for _, f := range all {
		if f.engine.Changes().Len() != 1 || h.status(f, young) != 200 {
			t.Errorf("%d changes", f.engine.Changes().Len())
		}
	}
}

// many are so many changes of keys that nobody has, from number on.
func many(from, n int) []keyfilter.Change {
	changes := make([]keyfilter.Change, n)
	for i := range changes {
		changes[i] = keyfilter.Change{Hash: uint64(from + i + 1), Op: keyfilter.Issued}
	}
	return changes
}

// A list that begins anew ends where the old one did or later, or a key that was revoked would come back meanwhile.
func TestAListThatBeginsAnewForgetsNothing(t *testing.T) {
	h := newHost(t)
	old := newKey(t, 1)
	all := vms(t, 2, following(t, 7, 0, old))
	const half = bundle.MaxDeltaChanges
	h.tickAll(all)
	h.answer(all, "200", delta(7, 0, half, many(0, half)...))
	h.tickAll(all)
	h.answer(all, "200", delta(7, half, 2*half, append(many(half, half-1), change(old, keyfilter.Revoked))...))
	h.tickAll(all)
	h.answer(all, "204", "")
	for _, f := range all {
		if !f.start(following(t, 7, 10, old)) {
			t.Fatal("the start failed")
		}
	}
	for i := range 4 {
		h.tickAll(all)
		since := 2 * half // what goes on from the list has no more to say
		if path := h.sent[len(h.sent)-1].headers[":path"]; strings.HasSuffix(path, "since=10") {
			since = 10
			h.answer(all, "200", delta(7, 10, 10+half, many(10, half)...))
		} else {
			h.answer(all, "204", "")
		}
		h.now += second / 2
		for j, f := range all {
			f.catchUp()
			if got := h.status(f, old); got != 401 {
				t.Fatalf("second %d, asked since %d: VM %d answers a revoked key with %d", i, since, j, got)
			}
		}
	}
	if path := h.sent[len(h.sent)-1].headers[":path"]; !strings.HasSuffix(path, "since=8192") {
		t.Errorf("asks %s for ever", path)
	}
}

// A VM that was stopped for so long that another one leads takes its answer when it goes on.
func TestALateAnswerTakesNothingBack(t *testing.T) {
	h := newHost(t)
	old := newKey(t, 1)
	all := vms(t, 3, following(t, 7, 40, old))
	late, rest := all[:1], all[1:]
	h.tickAll(late)
	for range 4 {
		h.tickAll(rest)
	}
	h.answer(rest, "200", delta(7, 40, 60, change(old, keyfilter.Revoked)))
	h.answer(late, "200", delta(7, 40, 50, many(0, 1)...))
	for i, f := range all {
		f.catchUp()
		if got := h.status(f, old); got != 401 {
			t.Errorf("VM %d answers a revoked key with %d", i, got)
		}
	}
	if got := h.status(started(t, following(t, 7, 40, old)), old); got != 401 {
		t.Errorf("a new VM answers a revoked key with %d", got)
	}
}

// Until all that was missed has come, a key that is unknown may be one of those.
func TestAFullAnswerConfirmsNothing(t *testing.T) {
	h := newHost(t)
	young := newKey(t, 2)
	all := vms(t, 2, following(t, 7, 0))
	h.noCluster = true
	for range 70 {
		h.tickAll(all)
	}
	h.noCluster = false
	const full = bundle.MaxDeltaChanges
	h.tickAll(all)
	h.answer(all, "200", delta(7, 0, full, many(0, full)...))
	h.tickAll(all)
	for i, f := range all {
		if got := h.status(f, young); got != 200 {
			t.Errorf("VM %d answers a key of the next answer with %d, want it unverified", i, got)
		}
	}
	h.answer(all, "200", delta(7, full, full+1, change(young, keyfilter.Issued)))
	h.tickAll(all)
	for i, f := range all {
		if got, other := h.status(f, young), h.status(f, newKey(t, 3)); got != 200 || other != 401 {
			t.Errorf("VM %d answers an issued key with %d, an unknown one with %d", i, got, other)
		}
	}
}

func TestTooManyChangesWaitForABundle(t *testing.T) {
	h := newHost(t)
	all := vms(t, 1, following(t, 7, 0))
	seq := uint64(0)
	for range maxChanges/bundle.MaxDeltaChanges + 1 {
		many := make([]keyfilter.Change, bundle.MaxDeltaChanges)
		for i := range many {
			many[i] = keyfilter.Change{Hash: seq*bundle.MaxDeltaChanges + uint64(i+1), Op: keyfilter.Issued}
		}
		h.tickAll(all)
		h.answer(all, "200", delta(7, seq, seq+1, many...))
		seq++
	}
	if all[0].engine.Changes().Len() != maxChanges || h.counts["weir_edge_deltas_failed"] != 1 {
		t.Errorf("%d changes taken, %d answers refused", all[0].engine.Changes().Len(), h.counts["weir_edge_deltas_failed"])
	}
}

// Shared data outlives the module, so that it may hold anything.
func TestForeignSharedDataIsNotBelieved(t *testing.T) {
	for _, value := range []string{"", "x", strings.Repeat("\xff", 16), strings.Repeat("\xff", 24), strings.Repeat("\xff", 32), strings.Repeat("\x07", 1000)} {
		h := newHost(t)
		for _, name := range []string{"weir.leader1", "weir.keys1", "weir.list1", "weir.vm1.00", "weir.vm1.01"} {
			h.SetSharedData([]byte(name), []byte(value), 0)
		}
		old := newKey(t, 1)
		all := vms(t, 2, following(t, 7, 40, old))
		for range 3 {
			h.tickAll(all)
			h.answer(all, "204", "")
		}
		if h.status(all[0], old) != 200 || h.counts["weir_edge_recovered"] != 0 {
			t.Errorf("%q: key %d, recovered %d", value, h.status(all[0], old), h.counts["weir_edge_recovered"])
		}
	}
}
