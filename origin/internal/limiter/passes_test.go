package limiter_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/shared/limit"
)

// At an opening one call has leave to ask the store. However it ends, it must give that back: else nobody asks any more, and
// whoever is limited by that counter stays refused.
func TestWhateverBecomesOfACallTheNextOneMayAsk(t *testing.T) {
	const other = "\n- {name: other, where: origin, by: [tenant], match: {paths: [/both]}, limit: 1/30d}"
	a := key("a", "t")
	for name, c := range map[string]struct {
		mode string // of the rule that has opened
		rest string // other rules
		path string
		do   func(*world) // what the call meets
		more func(*limiter.Options)
	}{
		"open":            {mode: "on-store-failure: open", do: failing},
		"closed":          {mode: "on-store-failure: closed", do: failing},
		"local":           {mode: "on-store-failure: local", do: failing},
		"shadow, failing": {mode: "mode: shadow", do: failing},
		"shadow, failing, in another slot": {mode: "mode: shadow", do: failing, more: apart(),
			rest: "\n- {name: real, where: origin, by: [tenant], limit: 100/1m}"},
		"foreign": {mode: "on-store-failure: open", do: func(w *world) { w.store.Spoil(w.counters(a, "/")[0]) }},
		"another rule is remembered to refuse": {rest: other, path: "/both", do: func(w *world) {
			w.get(key("b", "t"), "/both")
		}},
		"another rule refuses at the store": {rest: other, path: "/both", do: func(w *world) {
			w.get(key("b", "t"), "/both")
			for _, c := range w.counters(key("b", "t"), "/both") {
				w.limiter.Forget(c)
			}
			w.now += 3 * limit.Hour // the rule by key has room
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.mode == "" {
				c.mode = "mode: enforce"
			}
			if c.path == "" {
				c.path = "/"
			}
			w := newWorld(t, fmt.Sprintf("version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 1/1h, %s}%s\n", c.mode, c.rest), func(o *limiter.Options) {
				if c.more != nil {
					c.more(o)
				}
			})
			get := func(path string) {
				w.get(a, path)
				w.limiter.Close() // what runs beside the call is over
			}
			for range 3 {
				get("/")
			}
			w.now += 30 * limit.Second // which is when it is asked again
			c.do(w)
			get(c.path)
			w.store.Heal()
			w.store.Asked()
			get("/")
			if n := w.askedPer(limit.Hour); n != 1 {
				t.Errorf("the next call asked the store %d times, want once", n)
			}
		})
	}
}

func failing(w *world) { w.store.Inject(fault.Fault{Reason: "busy", On: fault.Take}) }

// askedPer is how often the store was asked since it was looked at last for a charge of a rule of this window.
func (w *world) askedPer(window limit.Micros) (n int) {
	for _, r := range w.store.Asked() {
		if slices.ContainsFunc(r.Call.Charges, func(c limiter.Charge) bool { return c.Limit.Window == window && c.Cost > 0 }) {
			n++
		}
	}
	return n
}

// A caller that had a counter of its own, and exhausted it, comes back when there is no room for a new one.
func TestACallThatIsWidenedLeavesItsOwnCountersPlace(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [address], algorithm: fixed-window, limit: 1/100s}\n")
	w.hang = memory.New(1_000_000, nil)
	late := from("192.0.2.1")
	w.now -= w.now % (100 * limit.Second)
	if w.admitted(3, late, "/") != 1 {
		t.Fatal("the limit is not 1")
	}
	w.now += 200 * limit.Second // its counter is over
	for i := range 3_000 {
		w.get(from(fmt.Sprintf("10.%d.%d.1", i/250, i%250)), "/")
	}
	w.get(late, "/") // by its network's
	w.now += limit.Second
	calls := w.calls
	if v := w.get(late, "/"); w.calls == calls || !v.Allowed {
		t.Errorf("once there is room again it is refused by %+v without asking", v.Views)
	}
}
