package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
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
}

// player runs one scenario on a system; keys are those issued for it.
type player struct {
	s       *scenario.Scenario
	on      system
	keys    map[string]string
	keyring *stand.Keyring
	// home moves a client address to where this scenario may run.
	home func(address string) string
}

func (p *player) play(t *testing.T) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("at risk: %s", p.s.Why)
		}
	}()
	for _, step := range p.s.Steps {
		if step.Advance > 0 {
			p.on.advance(step.Advance)
			continue
		}
		p.step(t, step)
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
		if step.Send.Parallel {
			all.Go(func() { one(i) })
			continue
		}
		if one(i); t.Failed() {
			return
		}
	}
	all.Wait()
	p.check(t, step, answers)
	if want := step.Expect.API; want >= 0 && p.on.apiCalls()-before != want {
		t.Errorf("%s:%d: %d calls reached the API, want %d", p.s.File, step.Line, p.on.apiCalls()-before, want)
	}
}

// longHeader is what $long stands for: more than Envoy takes with its default limit of 60 KiB.
var longHeader = strings.Repeat("k", 64_000)

func (p *player) request(t *testing.T, step scenario.Step, i int) request {
	r := request{
		from: step.From.Raw, method: step.Send.Method, path: step.Send.Path, worker: step.Send.Worker,
		headers: scenario.Fill(step.Send.Headers, func(name string) (string, bool) {
			switch name {
			case "forged":
				return p.keyring.Forge(t), true
			case "long":
				return longHeader, true
			}
			key, ok := p.keys[name]
			return key, ok
		}),
	}
	if r.from == "" {
		r.from = p.home(step.From.At(i).String())
	}
	if step.Send.EachOne {
		r.worker = i % p.s.Workers
	}
	return r
}

func (p *player) check(t *testing.T, step scenario.Step, answers []answer) {
	t.Helper()
	counts := map[int]int{}
	for _, a := range answers {
		counts[a.status]++
	}
	last := answers[len(answers)-1]
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s:%d: "+format+"\nlast answer: %d %v\n%s", append(append([]any{p.s.File, step.Line}, args...),
			last.status, last.header, last.body)...)
	}
	for status, want := range step.Expect.Status {
		if counts[status] != want {
			fail("answers %v, want %v", counts, step.Expect.Status)
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
