package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/scenario"
	"github.com/weirproject/weir/e2e/stand"
)

// request is one call of a step, with its names filled in.
type request struct {
	from    string
	method  string
	path    string
	headers []string
	worker  int
	alone   bool // over a connection that is closed afterwards
}

// answer is what came back.
type answer struct {
	status  int
	header  http.Header
	body    string
	details string // response code details, empty where the system does not tell them to a client
}

// system is a target that is running.
type system interface {
	send(r request) (answer, error)
	advance(d time.Duration)
	apiCalls() int // that have reached the API so far
	// push gives the edge a bundle and returns once all of it runs the release, or has refused it.
	push(t *testing.T, b pushed)
	// until asks until answer is nil; where time is virtual, it moves between the questions.
	until(t *testing.T, what string, answer func() error)
}

// player runs one scenario on a system; keys are those issued for it.
type player struct {
	s       *scenario.Scenario
	on      system
	keys    map[string]string
	keyring *stand.Keyring
	// home moves a client address to where this scenario may run.
	home func(address string) string
	// virtual: one goroutine and a clock that stands still while it sends.
	virtual bool
}

func (p *player) play(t *testing.T) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("at risk: %s", p.s.Why)
		}
	}()
	for _, step := range p.s.Steps {
		switch {
		case step.Advance > 0:
			p.on.advance(step.Advance)
		case step.Push != nil:
			p.on.push(t, pushed{*step.Push, p.keyring.File(), fmt.Sprintf("%s:%d", p.s.File, step.Line)})
		case step.Await != nil:
			p.await(t, step)
		default:
			p.step(t, step)
		}
		if t.Failed() {
			return // what follows only repeats the news
		}
	}
}

func (p *player) step(t *testing.T, step scenario.Step) {
	t.Helper()
	before := p.on.apiCalls()
	answers := make([]answer, step.Times)
	one := func(i int) {
		a, err := p.on.send(p.request(t, step, i))
		if err != nil {
			t.Errorf("%s:%d: call %d: %v", p.s.File, step.Line, i+1, err)
		}
		answers[i] = a
	}
	var all sync.WaitGroup
	for i := range answers {
		if step.Send.Parallel && !p.virtual {
			all.Go(func() { one(i) })
			continue
		}
		if one(i); t.Failed() {
			return
		}
	}
	all.Wait()
	p.check(t, step, answers)
	want := step.Expect.API
	if want == scenario.Passed {
		want = count(answers)[http.StatusOK]
	}
	if want >= 0 && p.on.apiCalls()-before != want {
		t.Errorf("%s:%d: %d calls reached the API, want %d", p.s.File, step.Line, p.on.apiCalls()-before, want)
	}
}

// await sends until step.Times answers in a row have the awaited status.
func (p *player) await(t *testing.T, step scenario.Step) {
	t.Helper()
	before, sent, passed := p.on.apiCalls(), 0, 0
	p.on.until(t, fmt.Sprintf("%s:%d: answers %d", p.s.File, step.Line, step.Await.Status), func() error {
		for range step.Times {
			a, err := p.on.send(p.request(t, step, sent))
			if err != nil {
				t.Fatalf("%s:%d: call %d: %v", p.s.File, step.Line, sent+1, err)
			}
			sent++
			if a.status == http.StatusOK {
				passed++
			}
			switch {
			case a.status == step.Await.Status:
			case slices.Contains(step.Await.Meanwhile, a.status):
				return fmt.Errorf("call %d: status %d", sent, a.status)
			default:
				t.Fatalf("%s:%d: call %d: status %d, want %d, or meanwhile %v\n%v\n%s", p.s.File, step.Line, sent,
					a.status, step.Await.Status, step.Await.Meanwhile, a.header, a.body)
			}
		}
		return nil
	})
	if calls := p.on.apiCalls() - before; calls != passed {
		t.Errorf("%s:%d: %d calls reached the API, %d were answered with 200", p.s.File, step.Line, calls, passed)
	}
}

func count(answers []answer) map[int]int {
	counts := map[int]int{}
	for _, a := range answers {
		counts[a.status]++
	}
	return counts
}

// What names in header lines stand for, beside keys.
var (
	longHeader = strings.Repeat("k", 64_000) // more than Envoy takes with its default limit of 60 KiB
	wideHeader = strings.Repeat("k", 10_000)
	entries    = strings.TrimSuffix(strings.Repeat("198.51.100.1, 2001:db8::1, ", 100), ", ")
)

func (p *player) request(t *testing.T, step scenario.Step, i int) request {
	r := request{
		from: step.From.Raw, method: step.Send.Method, path: step.Send.Paths[i%len(step.Send.Paths)], worker: step.Send.Worker,
		headers: scenario.Fill(step.Send.Headers, func(name string) (string, bool) {
			switch name {
			case "forged":
				return p.keyring.Forge(t), true
			case "long":
				return longHeader, true
			case "wide":
				return wideHeader, true
			case "entries":
				return entries, true
			}
			key, ok := p.keys[name]
			return key, ok
		}),
	}
	switch {
	case r.from == "" && p.s.Proxied:
		r.from = step.From.At(i).String()
	case r.from == "":
		r.from, r.alone = p.home(step.From.At(i).String()), step.From.Network()
	}
	if p.s.Proxied && !p.virtual {
		r.from, r.headers = p.home("127.0.0.1"), proxied(r.headers, r.from)
	}
	if step.Send.EachOne {
		r.worker = i % p.s.Workers
	}
	return r
}

// proxied is what a proxy makes of header lines: whom it was asked by stands at the end of one X-Forwarded-For.
func proxied(lines []string, from string) []string {
	var all, forwarded []string
	for _, line := range lines {
		if name, value, _ := strings.Cut(line, ":"); strings.EqualFold(name, "X-Forwarded-For") {
			forwarded = append(forwarded, strings.TrimSpace(value))
			continue
		}
		all = append(all, line)
	}
	return append(all, "X-Forwarded-For: "+strings.Join(append(forwarded, from), ", "))
}

func (p *player) check(t *testing.T, step scenario.Step, answers []answer) {
	t.Helper()
	counts := count(answers)
	last := answers[len(answers)-1]
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s:%d: "+format+"\nlast answer: %d %v\n%s", append(append([]any{p.s.File, step.Line}, args...),
			last.status, last.header, last.body)...)
	}
	for status := range counts {
		if _, expected := step.Expect.Status[status]; !expected {
			fail("answers %v, want none with status %d", counts, status)
			return
		}
	}
	for status, want := range step.Expect.Status {
		switch {
		case want == scenario.Any, want == scenario.Some && counts[status] > 0, want == counts[status]:
		default:
			fail("answers %v, want %s with status %d", counts, expected(want), status)
			return
		}
	}
	for name, want := range step.Expect.Header {
		values := last.header.Values(name)
		switch re, isRE := strings.CutPrefix(want, "~"); {
		case len(values) != 1:
			fail("header %s has the values %q, want one", name, values)
		case isRE && !regexp.MustCompile("^(?:"+re+")$").MatchString(values[0]), !isRE && want != "*" && values[0] != want:
			fail("header %s = %q, want %s", name, values[0], want)
		}
	}
	for _, name := range step.Expect.NoHeader {
		if values := last.header.Values(name); len(values) > 0 {
			fail("header %s = %q, want none", name, values)
		}
	}
	p.checkBody(step.Expect, last, fail)
	if want := step.Expect.Details; want != "" && last.details != "" && last.details != want {
		fail("details %q, want %q", last.details, want)
	}
}

func expected(count int) string {
	if count == scenario.Some {
		return "some"
	}
	return strconv.Itoa(count)
}

// checkBody reads the problem that a refusal carries, RFC 9457.
func (p *player) checkBody(e scenario.Expect, last answer, fail func(string, ...any)) {
	if e.Code == "" && e.Where == "" {
		return
	}
	var problem struct {
		Status int    `json:"status"`
		Code   string `json:"code"`
		Where  string `json:"where"`
	}
	if err := json.Unmarshal([]byte(last.body), &problem); err != nil {
		fail("the body is no problem document: %v", err)
		return
	}
	if got := last.header.Get("Content-Type"); got != "application/problem+json" {
		fail("content type %q, want application/problem+json", got)
	}
	if problem.Status != last.status || e.Code != "" && problem.Code != e.Code || e.Where != "" && problem.Where != e.Where {
		fail("problem %+v, want code %q, where %q", problem, e.Code, e.Where)
	}
}
