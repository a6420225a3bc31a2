package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirproject/weir/origin/internal/stand"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	demoKey = "wk_demo"
	window  = 2 * limit.Second
)

// door is a small stand-in for edge and origin: it refuses forged keys, counts the demo key by shared/limit, and lets
// the rest pass to the API.
type door struct {
	api *API

	mu       sync.Mutex
	state    limit.SlidingWindow
	commands int
	holds    bool   // false: the limit is not enforced
	called   func() // at each request of a client; nil for nothing
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/metrics" {
		d.mu.Lock()
		defer d.mu.Unlock()
		fmt.Fprintf(w, "# TYPE weir_store_commands_total counter\nweir_store_commands_total{command=\"fcall\"} %d\nweir_store_commands_total{command=\"time\"} 9e+09\n", d.commands)
		return
	}
	if d.called != nil {
		d.called()
	}
	switch r.Header.Get("x-api-key") {
	case "":
	case demoKey:
		if wait, refused := d.charge(); refused {
			refuse(w, header.Problem{Code: header.RateLimited, Rule: "per-key", Where: "origin", RetryAfter: wait})
			return
		}
	default:
		refuse(w, header.Problem{Code: header.KeyUnknown, Where: "edge"})
		return
	}
	d.api.ServeHTTP(w, r)
}

func (d *door) charge() (wait limit.Micros, refused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.commands++
	var decision limit.Decision
	d.state, decision = d.state.Take(limit.Limit{Count: 4, Window: window}, limit.Micros(time.Now().UnixMicro()), 1)
	return decision.RetryAfter, !decision.Allowed && d.holds
}

func refuse(w http.ResponseWriter, p header.Problem) {
	w.Header().Set("ratelimit-policy", `"per-key";q=4;w=2`)
	w.Header().Set("content-type", header.ProblemType)
	w.WriteHeader(p.Code.Status())
	_, _ = w.Write(p.Append(nil))
}

// system serves a door with its API until the test ends.
func system(t *testing.T, d *door) stand.Run {
	d.api = NewAPI()
	front, api := httptest.NewServer(d), httptest.NewServer(d.api)
	t.Cleanup(front.Close)
	t.Cleanup(api.Close)
	return stand.Run{Edge: front.URL, Origin: front.URL, Admin: front.URL, API: api.URL, DemoKey: demoKey}
}

func TestDemoShowsTheStormHeldAndForgedKeysCostNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the shortest demo, 4 s")
	}
	var out strings.Builder
	err := Show(t.Context(), Options{Run: system(t, &door{holds: true}), For: MinFor, Out: &out})
	t.Logf("printed:\n%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"forged keys alone: sent ",
		"  client           sent      200      401    edge: 429    origin: 429    other    API calls\n",
		"its limit, per-key, is 4 in 2s: at most ",
		"API calls 0; store commands while alone 0\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q", want)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("terminal sequences in what is no terminal")
	}
}

func TestDemoThatNothingAnswersSaysSo(t *testing.T) {
	run := system(t, &door{})
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	run.API = gone.URL
	err := Show(t.Context(), Options{Run: run, For: MinFor, Out: io.Discard})
	if err == nil || !strings.Contains(err.Error(), gone.URL) || !strings.Contains(err.Error(), "make run") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if err := Show(t.Context(), Options{Run: run, For: time.Second}); err == nil || !strings.Contains(err.Error(), "at least 4s") {
		t.Errorf("too short: %v", err)
	}
}

func TestCtrlCEndsTheDemoWithoutAJudgement(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := &door{holds: true, called: cancel}
	var out strings.Builder
	if err := Show(ctx, Options{Run: system(t, d), For: time.Hour, Out: &out}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "ended early: nothing is judged\n") {
		t.Errorf("printed:\n%s", &out)
	}
}

// judged is a demo that went well, to be spoiled.
func judged() *show {
	d := &show{polite: &client{name: namePolite}, storm: &client{name: nameStorm}, forged: &client{name: nameForged}}
	d.polite.tally.sent.Store(10)
	d.polite.tally.allowed.Store(10)
	d.storm.tally.sent.Store(100)
	d.storm.tally.allowed.Store(40)
	d.storm.tally.origin.Store(60)
	field := `"per-key";q=20;w=10`
	d.storm.policy.Store(&field)
	d.forged.tally.sent.Store(50)
	d.forged.tally.unauthorized.Store(50)
	return d
}

func TestSummaryFindsWhatDidNotHold(t *testing.T) {
	from := time.Unix(1000, 0) // a window begins here: 15 s touch two
	to := from.Add(15 * time.Second)
	for name, c := range map[string]struct {
		spoil func(d *show, alone, end *sight)
		want  string // in the error; empty for none
	}{
		"all well":            {func(*show, *sight, *sight) {}, ""},
		"storm over its rule": {func(d *show, _, _ *sight) { d.storm.tally.allowed.Add(1) }, "got 41 calls through where its limit admits 40"},
		"storm never refused": {func(d *show, _, _ *sight) { d.storm.policy.Store(nil) }, "never refused the storm"},
		"polite client hurt":  {func(d *show, _, _ *sight) { d.polite.tally.allowed.Add(-1) }, "polite client lost 1"},
		"forged key answered": {func(d *show, _, _ *sight) { d.forged.tally.allowed.Add(1) }, "forged keys reached the API 1"},
		"forged key passed":   {func(_ *show, _, end *sight) { end.calls[nameForged] = 2 }, "forged keys reached the API 2"},
		"forged key counted":  {func(_ *show, alone, _ *sight) { alone.commands = 3 }, "cost 3 store commands"},
		"no 401 at all":       {func(d *show, _, _ *sight) { d.forged.tally.unauthorized.Store(0) }, "no forged key was answered 401"},
		"odd answers":         {func(d *show, _, _ *sight) { d.storm.tally.other.Add(5) }, "5 requests were answered otherwise"},
	} {
		t.Run(name, func(t *testing.T) {
			d, alone, end := judged(), sight{calls: map[string]int64{}}, sight{calls: map[string]int64{}}
			c.spoil(d, &alone, &end)
			err := d.summary(io.Discard, alone, end, from, to)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestStoreCommandsLeaveOutWhatTheOriginSendsOnItsOwn(t *testing.T) {
	got, err := storeCommands(strings.NewReader("weir_store_commands_total{command=\"FCALL\"} 3\n" +
		"weir_store_commands_total{command=\"TIME\"} 7\nweir_store_commands_total{command=\"function_load\"} 1\n" +
		"weir_store_commands_total{command=\"take\"} 1e+06\nweir_store_errors_total{reason=\"x\"} 5\n"))
	if err != nil || got != 1_000_003 {
		t.Errorf("%d, %v; want 1000003", got, err)
	}
	if _, err := storeCommands(strings.NewReader("weir_store_commands_total{command=\"x\"} many\n")); err == nil {
		t.Error("no error for a sample that is no number")
	}
}

func TestAPIKeepsNoCountOfNamesThatCallersMakeUp(t *testing.T) {
	api := NewAPI()
	for _, name := range []string{"", "made up", namePolite, namePolite} {
		request := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/x", strings.NewReader("body"))
		request.Header.Set(clientHeader, name)
		api.ServeHTTP(httptest.NewRecorder(), request)
	}
	answer := httptest.NewRecorder()
	api.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, CallsPath, nil))
	if got, want := answer.Body.String(), `{"":2,"polite":2}`+"\n"; got != want {
		t.Errorf("counted %s, want %s", got, want)
	}
}

func TestTableIsDrawnOverItself(t *testing.T) {
	var out strings.Builder
	b := board{out: &out, inPlace: true, total: 20 * time.Second}
	b.draw(time.Second, "first", rows{})
	first := strings.Count(out.String(), "\n")
	b.draw(2*time.Second, "second", rows{})
	if want := fmt.Sprintf("\x1b[%dA\x1b[J 2 of 20 s, second\n", first); !strings.Contains(out.String(), want) {
		t.Errorf("want %q in %q", want, out.String())
	}
}

func TestPolicyIsReadOrNotAtAll(t *testing.T) {
	if p, ok := parsePolicy(`"per-key";q=20;w=10, "other";q=1;w=1`); !ok || p != (policy{"per-key", 20, 10 * time.Second}) {
		t.Errorf("%+v, %v", p, ok)
	}
	for _, field := range []string{"", "x", `"a"`, `"a";q=1;w=0`, `"a";q=1;w=-3`, "(1 2)", "\x00"} {
		if p, ok := parsePolicy(field); ok {
			t.Errorf("%q is %+v", field, p)
		}
	}
}
