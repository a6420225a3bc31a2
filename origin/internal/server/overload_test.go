package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/admin"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

// modeRules have a rule of each failure mode that no test uses up.
const modeRules = `version: 1
rules:
- {name: local, where: origin, match: {paths: [/local]}, by: [address], limit: 1000000/24h, on-store-failure: local}
- {name: open, where: origin, match: {paths: [/open]}, by: [address], limit: 1000000/24h, on-store-failure: open}
- {name: closed, where: origin, match: {paths: [/closed]}, by: [address], limit: 1000000/24h, on-store-failure: closed}
- {name: exact, where: origin, match: {paths: [/exact]}, by: [address], limit: 1000000/24h, exact: true}
`

// told is what a client sees of an answer.
type told struct {
	status            int
	code, retry       string
	counted, degraded bool
}

// ask makes a call through the gateway; it may be made by any goroutine.
func (p *process) ask(path string) (a told) {
	resp, err := p.client.Get("http://" + p.server.Address("gateway") + path)
	if err != nil {
		p.t.Error(err)
		return a
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Error(err)
	}
	var problem struct{ Code string }
	if resp.StatusCode != http.StatusOK {
		if err := json.Unmarshal(body, &problem); err != nil {
			p.t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	h := resp.Header
	return told{resp.StatusCode, problem.Code, h.Get("Retry-After"), h.Get("X-Ratelimit-Limit") != "", h.Get("X-Ratelimit-Degraded") != ""}
}

// crowd are calls that wait for a store that stands still.
type crowd struct {
	sync.WaitGroup
	answered atomic.Int64 // of them
	byStore  atomic.Int64
}

// fill has n calls of the rule open wait in the process, until enough tells that they do, false if some were answered before:
// their connection to the store is given up after a second or more of silence, which a busy machine may take to make the calls.
func (p *process) fill(c *crowd, n int, enough func() bool) bool {
	for range n {
		c.Go(func() {
			switch a := p.ask("/open"); {
			case a.status != http.StatusOK:
				p.t.Errorf("of those who wait one was told %+v", a)
			case a.counted && !a.degraded:
				c.byStore.Add(1)
			}
			c.answered.Add(1)
		})
	}
	for ; !enough(); time.Sleep(5 * time.Millisecond) { // the metric has no event to wait for
		if c.answered.Load() > 0 {
			return false
		}
	}
	return true
}

// metricSum is the sum of a metric's series whose labels hold text.
func (p *process) metricSum(name, text string) (sum float64) {
	p.t.Helper()
	_, all := p.get("admin", "/metrics")
	for line := range strings.Lines(all) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if bare, labels, _ := strings.Cut(series, "{"); bare == name && strings.Contains(labels, text) {
			var n float64
			if _, err := fmt.Sscan(value, &n); err != nil {
				p.t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// overloads starts a process on a server, and has 20 calls of each path answered while the server stands still and as many
// others wait as there is room for; counted of the paths are refused for want of room. It plays anew where the others did not
// all wait to the end.
func overloads(t *testing.T, inFlight, room int, want map[string]told, counted float64) {
	valkey := valkeytest.Start(t)
	dir := settings(t, "store: {url: \"valkey://"+valkey.Addr+"\", deadline: 10s}\nsecrets: {counter: [secret]}\n")
	write(t, filepath.Join(dir, "secret"), strings.Repeat("s", 32))
	write(t, filepath.Join(dir, "weir.rules.yaml"), modeRules)
	p := startWithin(t, dir, inFlight)
	sent := func() float64 { return p.metricSum("weir_store_commands_total", `command="fcall"`) }
	// Who finds a place that became free fails by something else than want of room.
	failed := func() float64 {
		return p.metricSum("weir_store_errors_total", "") - p.metricSum("weir_store_errors_total", `reason="busy"`)
	}
	well := func() bool {
		for path := range want {
			if a := p.ask(path); a.status != http.StatusOK || !a.counted || a.degraded {
				return false
			}
		}
		return true
	}
	const rounds, each = 5, 20
	for round := 1; ; round++ {
		p.until("all is well", func(r admin.Readiness) bool { return well() && r.Store.Up && !r.Degraded })
		before, lost, overloaded := sent(), failed(), p.metricSum("weir_overloaded_total", "")
		valkey.Stop()
		var others crowd
		answers, all := map[string][]told{}, false
		if p.fill(&others, room, func() bool { return sent()-before >= float64(room) }) {
			p.alive("under overload")
			for range each {
				for path := range want {
					answers[path] = append(answers[path], p.ask(path))
				}
			}
			overloaded = p.metricSum("weir_overloaded_total", "") - overloaded
			all = others.answered.Load() == 0 && failed() == lost
			if all {
				// Overload is none of the rules' or the files'; the store is told apart, as it does not answer.
				r := p.until("the server is seen to be away", func(r admin.Readiness) bool { return !r.Store.Shards[0].Up })
				if !r.Ready || !r.Degraded || r.Store.Up || r.Rules.Error != "" {
					t.Errorf("under overload: %+v", r)
				}
			}
		}
		valkey.Continue()
		others.Wait()
		if !all {
			if round == rounds {
				t.Fatalf("in %d rounds the %d calls that were to wait did not wait until the others were answered", rounds, room)
			}
			continue
		}
		for path, of := range want {
			for _, got := range answers[path] {
				if got != of {
					t.Errorf("%s beyond the bound: %+v, want %+v", path, got, of)
				}
			}
		}
		if overloaded != counted*each {
			t.Errorf("weir_overloaded_total rose by %v, want %v", overloaded, counted*each)
		}
		t.Logf("round %d: %d calls waited, of which the store answered %d once it ran on; beyond them %d calls of %d rules were answered meanwhile", round, room, others.byStore.Load(), each, len(want))
		break
	}
	p.until("all is well again", func(r admin.Readiness) bool { return well() && r.Store.Up && !r.Degraded })
}

var (
	noRoom    = told{status: http.StatusServiceUnavailable, code: "overloaded", retry: "1"}
	degraded  = told{status: http.StatusServiceUnavailable, code: "overloaded", retry: "1", counted: true, degraded: true}
	uncounted = told{status: http.StatusOK, degraded: true}
)

// Beyond 1,000 calls that wait for the store no other waits: it is told that this process has no room, at once, and never that
// it is over its limit. A rule that fails open has nothing to wait for.
func TestCallsBeyondThoseThatWaitForTheStoreAreToldSo(t *testing.T) {
	t.Parallel()
	overloads(t, 0, 1000, map[string]told{"/local": degraded, "/closed": degraded, "/exact": degraded, "/open": uncounted}, 3)
}

// The gateway's own bound is for all calls, whatever their rules say: none was asked.
func TestCallsBeyondTheGatewaysBoundAreToldSo(t *testing.T) {
	t.Parallel()
	const bound = 50
	overloads(t, bound, bound, map[string]told{"/local": noRoom, "/closed": noRoom, "/exact": noRoom, "/open": noRoom}, 4)
}
