package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/admin"
)

const (
	processesKey = "w1:{live}:processes"
	hintChannel  = "w1:forget"
)

// hostile are values that others write where an origin keeps its own, by the command that does; was is what the origin kept.
func hostile(strategy, garbage string) map[string]func(was string) []string {
	all := map[string]func(string) []string{}
	for kind, words := range map[string][]string{
		"text": {"SET", "50 apples"}, "nothing": {"SET", ""}, "a list": {"LPUSH", "x"}, "a hash": {"HSET", "a", "b"}, "1 MB": {"SET", garbage},
	} {
		all[kind] = func(string) []string { return words }
	}
	if strategy == "function" { // of a number what is left is a number
		all["cut off"] = func(was string) []string { return []string{"SET", was[:len(was)-1]} }
	}
	return all
}

// put puts a hostile value in a key's place.
func (w *world) put(key string, value func(was string) []string) {
	w.t.Helper()
	was, _ := w.servers[0].Do("GET", key).ToString() // "" of what is no string
	words := value(was)
	w.do(w.servers[0], "DEL", key)
	w.do(w.servers[0], append([]string{words[0], key}, words[1:]...)...)
}

// counters are the keys that the server holds, but for the processes'.
func (w *world) counters() []string {
	w.t.Helper()
	return slices.DeleteFunc(w.servers[0].Keys(), func(key string) bool { return key == processesKey })
}

// readiness is what /readyz tells, which is to be 200.
func (o *origin) readiness() (r admin.Readiness) {
	o.t.Helper()
	resp, err := o.client.Get("http://" + o.admin + "/readyz")
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil || resp.StatusCode != http.StatusOK {
		o.t.Fatalf("/readyz: %d, %v", resp.StatusCode, err)
	}
	return r
}

// Somebody else writes into the store, under the names of counters and of the processes, and talks on the hints' channel. Rules
// answer by their modes for those whose counters it was, and for nobody else; the origins stand well, and know how many they are.
func TestWhatOthersWriteIntoTheStoreStopsNobody(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"function", "commands"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			bytes := make([]byte, 1<<20)
			for i := range bytes {
				bytes[i] = byte(random.Uint32())
			}
			h := newHostileWorld(t, strategy, string(bytes))
			h.spoilCounters()
			h.spoilProcesses()
			h.talk()
			h.standsWell()
			h.r.checkOnce()
		})
	}
}

// hostileWorld has two origins, the second of which nobody calls.
type hostileWorld struct {
	t       *testing.T
	r       *run
	kinds   map[string]func(string) []string
	garbage string
	home    *caller
	foreign int // calls that met a foreign value
	memory  float64
}

func newHostileWorld(t *testing.T, strategy, garbage string) *hostileWorld {
	r := &run{T: t, w: newWorld(t, "one"), api: startTally(t)}
	for range 2 {
		r.origins = append(r.origins, startOrigin(t, settings{store: r.w.store(strategy, 10*time.Second), upstream: r.api.url, rules: originRules}))
	}
	h := &hostileWorld{t: t, r: r, kinds: hostile(strategy, garbage), garbage: garbage, home: newCaller(t, r.origins[0], home, &r.number)}
	awaitTrue(t, "two processes are counted", func() bool {
		return r.origins[0].metric("weir_live_processes") == 2 && r.origins[1].metric("weir_live_processes") == 2
	})
	h.calls("before", h.home, nil)
	_, h.memory = r.uses()
	return h
}

// calls calls each mode's rule once: those whose paths are spoilt are answered by their mode, the others by the store.
func (h *hostileWorld) calls(when string, c *caller, spoilt []string) {
	h.t.Helper()
	for _, path := range modePaths {
		a, want := c.call(path), byStore
		h.r.all = append(h.r.all, a)
		if slices.Contains(spoilt, path) {
			want = byMode
			h.foreign++
		}
		if a.how() != want {
			h.t.Errorf("%s: answered %q, want %s: %v", when, a.how(), want, a)
		}
	}
}

// spoilCounters spoils one counter after the other, of an address for each kind.
func (h *hostileWorld) spoilCounters() {
	for i, kind := range slices.Sorted(maps.Keys(h.kinds)) {
		c := newCaller(h.t, h.r.origins[0], fmt.Sprintf("127.0.1.%d", i+1), &h.r.number)
		counter := map[string]string{}
		for _, path := range modePaths {
			before := h.r.w.counters()
			a := c.call(path)
			h.r.all = append(h.r.all, a)
			for _, key := range h.r.w.counters() {
				if !slices.Contains(before, key) {
					counter[path] = key
				}
			}
			if a.how() != byStore || counter[path] == "" {
				h.t.Fatalf("%v, made %q", a, counter[path])
			}
		}
		for n, path := range modePaths {
			h.r.w.put(counter[path], h.kinds[kind])
			h.calls(kind+" for "+path, c, modePaths[:n+1])
			h.calls("beside "+kind, h.home, nil)
		}
	}
}

// spoilProcesses puts something else in the place of what the processes are counted by.
func (h *hostileWorld) spoilProcesses() {
	server := h.r.w.servers[0]
	for _, kind := range []string{"a hash", "1 MB"} {
		h.r.w.put(processesKey, h.kinds[kind])
		awaitTrue(h.t, "the processes are counted again after "+kind, func() bool {
			n, err := server.Do("ZCARD", processesKey).AsInt64()
			return err == nil && n == 2
		})
		for _, o := range h.r.origins { // one that could not count beats every 2 s
			awaitTrue(h.t, "each origin has counted them after "+kind, func() bool { return o.readiness().Store.Uncounted == "" })
		}
		h.standsWell()
	}
}

// talk says on the hints' channel what no origin says.
func (h *hostileWorld) talk() {
	for _, message := range []string{"", "x", h.garbage, h.garbage[:43], h.garbage[:100*43], h.garbage[:100*43+1], strings.Repeat("\x00", 43)} {
		h.r.w.do(h.r.w.servers[0], "PUBLISH", hintChannel, message)
	}
	h.calls("after the talk", h.home, nil)
}

// standsWell checks what each origin tells of itself.
func (h *hostileWorld) standsWell() {
	h.t.Helper()
	for i, o := range h.r.origins {
		r := o.readiness()
		if !r.Ready || r.Degraded || !r.Store.Up || r.Store.Shards[0].Breaker != "closed" || r.Store.Processes != 2 || o.metric("weir_live_processes") != 2 {
			h.t.Errorf("origin %d: %+v, %v processes", i+1, r, o.metric("weir_live_processes"))
		}
	}
	if got := h.r.origins[0].metric("weir_store_errors_total", `reason="foreign"`); got != float64(h.foreign) || h.r.tried() != got {
		h.t.Errorf("%v foreign values are counted, %v errors, want %d", got, h.r.tried(), h.foreign)
	}
	if _, now := h.r.uses(); now > h.memory+2*mostMemory {
		h.t.Errorf("%.0f MB of memory, %.0f before", now/1e6, h.memory/1e6)
	}
	log := h.r.origins[0].logged()
	if told := strings.Count(log, "a value that is no counter"); told == 0 || told > 3 || strings.Contains(log, "127.0.1.") {
		h.t.Errorf("of foreign values the log tells %d times:\n%s", told, log)
	}
}
