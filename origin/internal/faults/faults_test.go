package faults

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// rate of the load at each origin: over the breaker's minimum sample, far below what the machine carries.
	rate = 90
	// mostGoroutines and mostMemory are what an origin may have beyond what it had before the fault: as many goroutines as
	// calls come in during the longest wait for a server, with what each holds, which the race detector makes more.
	mostGoroutines = 4 * rate
	mostMemory     = 128 << 20
	// steady is how long calls must be answered by the store in a row for it to count as recovered.
	steady = 300 * time.Millisecond
)

// run is a scenario that is being played.
type run struct {
	*testing.T
	s       Scenario
	w       *world
	api     *tally
	origins []*origin
	load    []*caller
	spends  map[string]*caller
	number  atomic.Int64
	all     []answer

	quiet      time.Duration // median wait before the first fault
	worst      time.Duration // the largest p99 of a step with a fault
	repaired   time.Time     // the last fault command
	recovery   time.Duration
	goroutines float64 // before the first fault, in all origins
	memory     float64
}

func TestScenarios(t *testing.T) {
	all, err := readScenarios("scenarios")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			play(t, s)
		})
	}
	t.Cleanup(func() { fmt.Printf("faults: %d scenarios\n", len(all)) })
}

func play(t *testing.T, s Scenario) {
	r := &run{T: t, s: s, w: newWorld(t, s.Servers), api: startTally(t), spends: map[string]*caller{}}
	for _, f := range s.Before {
		faultCommands[f].run(r.w)
	}
	rules := originRules
	if s.Strategy != "commands" {
		rules += soonRule
	}
	for range s.Origins {
		o := startOrigin(t, settings{store: r.w.store(s.Strategy, s.Deadline), upstream: r.api.url, rules: rules})
		r.origins = append(r.origins, o)
		r.load = append(r.load, newCaller(t, o, home, &r.number))
	}
	if len(s.Before) == 0 {
		r.recover()
		r.w.locate()
		r.recovery = 0
	}
	r.idle()
	r.goroutines, r.memory = r.uses()
	for i, step := range s.Steps {
		r.step(i+1, step)
		if r.Failed() {
			return
		}
	}
	r.checkOnce()
	r.checkGoroutinesEnd()
	for _, o := range r.origins {
		if log := o.logged(); strings.Contains(log, password) || strings.Contains(log, otherPassword) {
			r.Errorf("the log tells a password:\n%s", log)
		}
	}
	fmt.Printf("fault %-24s calls %5d  median before %6.2f ms  p99 added %7.2f ms  recovered after %5.2f s\n",
		s.Name, len(r.all), ms(r.quiet), ms(max(0, r.worst-r.quiet)), r.recovery.Seconds())
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func (r *run) step(number int, step Step) {
	r.Helper()
	switch {
	case step.Fault != "":
		faultCommands[step.Fault].run(r.w)
		r.repaired = time.Now()
	case step.Calls != 0:
		r.calls(number, step)
	case step.Spend != "":
		r.spend(number, step)
	case step.Reset != "":
		r.origins[max(0, step.Origin-1)].reset(step.Rule, step.Reset)
	case step.Recover:
		r.recover()
	}
	goroutines, memory := r.uses()
	if goroutines > r.goroutines+float64(mostGoroutines*len(r.origins)) || memory > r.memory+float64(mostMemory*len(r.origins)) {
		r.Errorf("step %d: %v goroutines of %v before, %.0f MB of %.0f", number, goroutines, r.goroutines, memory/1e6, r.memory/1e6)
	}
}

// calls plays a step of load and checks how each call was answered.
func (r *run) calls(number int, step Step) {
	r.Helper()
	loads := 0
	if step.Loads != nil {
		loads = r.w.loads()
	}
	tried := r.tried()
	if step.Asked != nil {
		r.w.count(r.s.Strategy)
	}
	end := time.Now().Add(step.Calls)
	all := pace(r.load, modePaths, rate*float64(len(r.origins)), end.Before)
	r.all = append(r.all, all...)
	r.told(number, all, step.Answered)
	if r.repaired.IsZero() {
		r.quiet = quantile(all, 0.5)
	} else {
		r.worst = max(r.worst, quantile(all, 0.99))
	}
	if tried = r.tried() - tried; step.Asked != nil && (r.w.asked() > *step.Asked || int(tried) > *step.Asked) {
		r.Errorf("step %d: the store was asked %d times in %v, %v calls tried, want at most %d", number, r.w.asked(), step.Calls, tried, *step.Asked)
	}
	if step.Loads != nil && r.w.loads()-loads != *step.Loads {
		r.Errorf("step %d: the function was loaded %d times, want %d", number, r.w.loads()-loads, *step.Loads)
	}
}

// tried is how many calls failed that an open breaker did not keep from the store, whether anything of them reached the
// server or not: valkey-go gives up a connection that is silent for a second, and sends nothing until it has a new one.
func (r *run) tried() (all float64) {
	for _, o := range r.origins {
		all += o.metric("weir_store_errors_total") - o.metric("weir_store_errors_total", `reason="open"`)
	}
	return all
}

// told checks answers, showing a few of the wrong ones.
func (r *run) told(number int, all []answer, want string) {
	r.Helper()
	wrong := 0
	for _, a := range all {
		if how := a.how(); how == "" || want != either && how != want {
			if wrong++; wrong <= 5 {
				r.Errorf("step %d: answered %q, want %s: %v", number, how, want, a)
			}
		}
	}
	if wrong > 5 {
		r.Errorf("step %d: %d of %d answers were wrong", number, wrong, len(all))
	}
}

// spend calls a rule that is soon used up, one call after the other, and checks how many pass.
func (r *run) spend(number int, step Step) {
	r.Helper()
	at := max(0, step.Origin-1)
	name := fmt.Sprint(at, " ", step.Spend)
	if r.spends[name] == nil {
		r.spends[name] = newCaller(r, r.origins[at], step.Spend, &r.number)
	}
	rule := step.Rule
	if rule == "" {
		rule = "tight"
	}
	passed := 0
	for began := time.Now(); ; {
		passed = 0
		for range step.Times {
			a := r.spends[name].call("/" + rule)
			r.all = append(r.all, a)
			switch {
			case a.err == nil && a.status == 200:
				passed++
			case a.err != nil || a.status != 429:
				r.Errorf("step %d: %v", number, a)
			}
		}
		if passed >= *step.Pass || time.Since(began) >= step.Within {
			break
		}
		time.Sleep(20 * time.Millisecond) // another process: there is no event to wait for
	}
	if passed != *step.Pass {
		r.Errorf("step %d: %d of %d calls to %s from %s passed, want %d", number, passed, step.Times, rule, step.Spend, *step.Pass)
	}
}

// recover calls until all modes have been answered by the store for a while, and notes since when after the last fault
// command. Until then each call must be answered by the store or by its mode.
func (r *run) recover() {
	r.Helper()
	began := r.repaired
	if began.IsZero() {
		began = time.Now()
	}
	deadline := time.Now().Add(patience)
	var since time.Time
	for {
		first := time.Now()
		all := pace(r.load, modePaths, rate*float64(len(r.origins)), first.Add(steady/3).Before)
		r.all = append(r.all, all...)
		r.told(0, all, either)
		good := true
		for _, a := range all {
			if a.how() != byStore {
				good, since = false, time.Time{}
			} else if since.IsZero() {
				since = a.sent
			}
		}
		if good && time.Since(since) >= steady {
			r.recovery = max(r.recovery, since.Sub(began))
			return
		}
		if r.Failed() || time.Now().After(deadline) {
			r.Fatalf("not recovered %v after the last fault", time.Since(began))
		}
	}
}

// checkOnce checks that each call was answered, and reached the API once if that was with 200, else never.
func (r *run) checkOnce() {
	r.Helper()
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	passed := 0
	for _, a := range r.all {
		want := 0
		if a.status == 200 {
			want, passed = 1, passed+1
		}
		if got := r.api.seen[a.number]; got != want || a.err != nil {
			r.Errorf("%v: reached the API %d times, want %d", a, got, want)
		}
	}
	if len(r.api.seen) != passed {
		r.Errorf("%d calls reached the API, %d passed", len(r.api.seen), passed)
	}
}

// uses is what all origins have of goroutines and memory.
func (r *run) uses() (goroutines, memory float64) {
	for _, o := range r.origins {
		goroutines += o.metric("go_goroutines")
		memory += o.metric("process_resident_memory_bytes")
	}
	return goroutines, memory
}

// idle ends all connections on which nothing moves, so that goroutines that are left are left by something else.
func (r *run) idle() {
	for _, c := range r.load {
		c.client.CloseIdleConnections()
	}
	for _, c := range r.spends {
		c.client.CloseIdleConnections()
	}
	r.api.server.CloseClientConnections()
}

// checkGoroutinesEnd waits until no goroutine is left of those that the fault made.
func (r *run) checkGoroutinesEnd() {
	r.Helper()
	r.idle()
	const some = 16 // of connections to servers that were not there at the start
	awaitTrue(r, fmt.Sprintf("goroutines are %v again", r.goroutines), func() bool {
		now, _ := r.uses()
		return now <= r.goroutines+float64(some*len(r.origins))
	})
}

// The README names every fault, so that who writes a scenario finds it.
func TestTheReadmeNamesEveryFault(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range faultNames() {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("README.md lacks `%s`", name)
		}
	}
}

func TestAScenarioWithAFaultIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"name: x\nwhy: y\nsteps: [{recover: true}]\nfoo: 1\n":                                             "foo",
		"name: x\nsteps: [{recover: true}]\n":                                                             "why",
		"name: x\nwhy: y\nsteps: []\n":                                                                    "steps",
		"name: x\nwhy: y\nservers: two\nsteps: [{recover: true}]\n":                                       "servers",
		"name: x\nwhy: y\nsteps: [{fault: explode}]\n":                                                    "explode",
		"name: x\nwhy: y\nsteps: [{fault: begin-move}]\n":                                                 "begin-move needs servers",
		"name: x\nwhy: y\nsteps: [{calls: 1s, answered: maybe}]\n":                                        "maybe",
		"name: x\nwhy: y\nsteps: [{spend: 127.0.0.3, times: 1, pass: 2}]\n":                               "pass",
		"name: x\nwhy: y\nsteps: [{fault: stop, recover: true}]\n":                                        "one of",
		"name: x\nwhy: y\nsteps: [{spend: 1.1.1.1, times: 1, pass: 1, origin: 2}]\n":                      "origin",
		"name: x\nwhy: y\nstrategy: commands\nsteps: [{spend: 1.1.1.1, times: 1, pass: 1, rule: soon}]\n": "no window",
	} {
		if _, err := parseScenario([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
