package outage_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/outage"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
)

func TestTheReadmeHoldsTheTable(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := outage.Write(&table); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "\n"+table.String()+"\n") {
		t.Errorf("origin/README.md does not hold what `weir store states` prints:\n%s", &table)
	}
}

// world is one of two processes, of which the store can be broken.
type world struct {
	limiter *limiter.Limiter
	store   *fault.Store
	behind  *forgetful
	now     limit.Micros
}

// forgetful is a store that another one can be put in the place of.
type forgetful struct{ limiter.Store }

func newForgetful() *forgetful { return &forgetful{memory.New(100, nil)} }

// lose loses all data, as a server that is restarted does.
func (f *forgetful) lose() { *f = *newForgetful() }

const (
	count     = 4 // of the limit, by the hour
	processes = 2
)

func newWorld(t *testing.T, mode string) *world {
	t.Helper()
	r, err := rules.Parse("rules", fmt.Appendf(nil, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: %d/1h, %s}\n", count, mode))
	if err != nil {
		t.Fatal(err)
	}
	behind := newForgetful()
	w := &world{store: fault.New(behind), behind: behind, now: 1000 * limit.Hour}
	w.limiter = limiter.New(limiter.Options{
		Store: w.store, Fallback: memory.New(100, nil), Secret: []byte(strings.Repeat("s", 32)), Now: func() limit.Micros { return w.now },
		Processes: func() int64 { return processes }, Metrics: telemetry.New(), Log: slog.New(slog.DiscardHandler),
	}, r)
	t.Cleanup(w.limiter.Close)
	return w
}

func (w *world) check(t *testing.T) limiter.Verdict {
	t.Helper()
	v, err := w.limiter.Check(context.Background(), limiter.Request{
		Caller: identity.Caller{Key: &keys.Key{ID: "a"}, Address: netip.MustParseAddr("192.0.2.1")}, Method: "GET", Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// answer is what ten calls tell of how their rule answers.
func (w *world) answer(t *testing.T) outage.Answer {
	t.Helper()
	passed := 0
	var last limiter.Verdict
	for range 10 {
		if last = w.check(t); last.Allowed {
			passed++
		}
	}
	switch {
	case passed == 10 && last.Degraded:
		return outage.Uncounted
	case passed == count && !last.Degraded && last.Code == header.RateLimited:
		return outage.Shared
	case passed == count/processes && last.Degraded && last.Code == header.RateLimited:
		return outage.Share
	case passed == 0 && last.Code == header.RateLimited:
		return outage.Remembered
	case passed == 0 && last.Degraded && last.Code == header.LimiterUnavailable:
		return outage.Refused
	case passed == 0 && last.Degraded && last.Code == header.Overloaded:
		return outage.NoRoom
	}
	t.Fatalf("%d of 10 passed, the last one: %+v", passed, last)
	return 0
}

// fails has all requests to the store fail for a reason.
func fails(reason string) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) { w.store.Inject(fault.Fault{Reason: reason}) }
}

// spend makes n calls that the store admits.
func (w *world) spend(t *testing.T, n int) {
	t.Helper()
	for range n {
		if v := w.check(t); !v.Allowed || v.Degraded {
			t.Fatalf("%+v", v)
		}
	}
}

// made are how a store gets into each state, by the reasons that it fails for, or by its name of one that is no failure.
var made = map[string]func(*testing.T, *world){
	"answers": func(*testing.T, *world) {},
	"any, while the deny cache holds a refusal of the counter": func(t *testing.T, w *world) {
		w.spend(t, count)
		fails("unreachable")(t, w)
	},
	"deadline": fails("deadline"), "stale": fails("stale"), "open": fails("open"), "unreachable": fails("unreachable"), "answer": fails("answer"),
	limiter.Busy: fails(limiter.Busy),
	"foreign": func(t *testing.T, w *world) {
		w.spend(t, 1)
		for _, asked := range w.store.Asked() {
			w.store.Spoil(asked.Call.Charges[0].Counter)
		}
	},
	// Not all of the limit: the deny cache would know.
	"lost its last writes or all data (failover, restart)": func(t *testing.T, w *world) {
		w.spend(t, count-1)
		w.behind.lose()
	},
}

// A state that nobody makes fails, and so does one that is made and that no row tells of.
func TestEachStateIsAnsweredAsTheTableSays(t *testing.T) {
	told := map[string]bool{}
	for _, s := range outage.States {
		kinds := s.Reasons
		if len(kinds) == 0 {
			kinds = []string{s.Store}
		}
		for _, kind := range kinds {
			told[kind] = true
			enter, known := made[kind]
			if !known {
				t.Errorf("%s (%s): nobody makes it", s.Store, kind)
				continue
			}
			for mode, want := range map[string]outage.Answer{"on-store-failure: local": s.Local, "on-store-failure: open": s.Open, "on-store-failure: closed": s.Closed, "exact: true": s.Closed} {
				w := newWorld(t, mode)
				enter(t, w)
				if got := w.answer(t); got != want {
					t.Errorf("%s (%s), %s: %v, want %v", s.Store, kind, mode, got, want)
				}
			}
		}
	}
	for kind := range made {
		if !told[kind] {
			t.Errorf("no state is told for %s", kind)
		}
	}
}
