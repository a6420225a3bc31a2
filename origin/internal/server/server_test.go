package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirproject/weir/origin/internal/admin"
	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/server"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for an event.
const patience = 20 * time.Second

// process is a server that a test runs, with its log as a stream of lines.
type process struct {
	t      *testing.T
	dir    string
	server *server.Server
	lines  chan string
	client *http.Client
	stop   context.CancelFunc
	ended  chan error
}

// lineWriter sends each write, which slog makes one line, to a channel.
type lineWriter chan string

func (w lineWriter) Write(b []byte) (int, error) {
	select {
	case w <- string(b):
	default: // a test that reads no log
	}
	return len(b), nil
}

const goodRules = "version: 1\nrules:\n- {name: per-address, where: origin, by: [address], limit: 3/1h}\n"

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace puts content in a file's place by rename, as deploy tools do: in one step, where a write shows an empty file
// first, which would be one more content that is refused.
func replace(t *testing.T, path, content string) {
	t.Helper()
	next := path + ".next"
	write(t, next, content)
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// settings is a folder with a weir.yaml and the files that it names.
func settings(t *testing.T, more string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }))
	t.Cleanup(api.Close)
	write(t, filepath.Join(dir, "weir.rules.yaml"), goodRules)
	write(t, filepath.Join(dir, "weir.yaml"), "upstream: "+api.URL+"\nlisten: {gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\n"+more)
	return dir
}

func load(t *testing.T, dir string) config.Config {
	t.Helper()
	c, err := config.Load(filepath.Join(dir, "weir.yaml"), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func start(t *testing.T, dir string) *process {
	t.Helper()
	return startWithin(t, dir, 0)
}

// startWithin starts a server whose gateway has so many requests in flight at most; 0: its default.
func startWithin(t *testing.T, dir string, inFlight int) *process {
	t.Helper()
	lines := make(lineWriter, 1000)
	s, err := server.OpenWithin(load(t, dir), slog.New(slog.NewJSONHandler(lines, nil)), inFlight)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &process{t: t, dir: dir, server: s, lines: lines, client: &http.Client{Transport: &http.Transport{}}, stop: stop, ended: make(chan error, 1)}
	go func() { p.ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err, ok := <-p.ended; ok && err != nil {
			t.Errorf("Run: %v", err)
		}
		p.client.CloseIdleConnections()
	})
	return p
}

// logged waits for a log line that holds text.
func (p *process) logged(text string) string {
	p.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case line := <-p.lines:
			if strings.Contains(line, text) {
				return line
			}
		case <-limit:
			p.t.Fatalf("no line with %q was logged", text)
		}
	}
}

func (p *process) get(door, path string) (status int, body string) {
	p.t.Helper()
	resp, err := p.client.Get("http://" + p.server.Address(door) + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func (p *process) readiness() (status int, r admin.Readiness) {
	p.t.Helper()
	status, body := p.get("admin", "/readyz")
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		p.t.Fatalf("%s: %v", body, err)
	}
	return status, r
}

// passes counts the calls of n that the gateway lets through.
func (p *process) passes(n int) (passed int) {
	for range n {
		if status, _ := p.get("gateway", "/"); status == 200 {
			passed++
		}
	}
	return passed
}

func TestTheDoorsAnswer(t *testing.T) {
	p := start(t, settings(t, ""))
	if n := p.passes(5); n != 3 {
		t.Errorf("%d of 5 calls passed at 3/h", n)
	}
	if status, body := p.get("admin", "/healthz"); status != 200 || body == "" {
		t.Errorf("/healthz: %d %q", status, body)
	}
	status, r := p.readiness()
	if status != 200 || !r.Ready || r.Degraded || r.Store.Kind != "memory" || !r.Store.Up || r.Rules.Count != 1 || r.Rules.Content == "" {
		t.Errorf("/readyz: %d %+v", status, r)
	}
	_, metrics := p.get("admin", "/metrics")
	for _, want := range []string{
		`weir_decisions_total{outcome="allow",rule="per-address",source="store"} 3`,
		`weir_deny_cache_total{result="hit"} 2`,
		`weir_release_info{content="` + r.Rules.Content + `",release="0"} 1`,
		`weir_store_up 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// Case 25: whatever happens to the rules file, the last good rules stay in force, and everybody is told.
func TestABrokenRulesFileLeavesTheLastGoodInForce(t *testing.T) {
	p := start(t, settings(t, ""))
	file := filepath.Join(p.dir, "weir.rules.yaml")
	for name, content := range map[string]string{
		"empty":          "",
		"no rules":       "version: 1\nrules: []\n",
		"half written":   goodRules[:len(goodRules)-12],
		"unknown field":  strings.Replace(goodRules, "limit", "limits", 1),
		"not YAML":       "{{{",
		"duplicate name": goodRules + "- {name: per-address, where: origin, by: [global], limit: 1/1h}\n",
	} {
		replace(t, file, content)
		line := p.logged("refused")
		if !strings.Contains(line, "weir.rules.yaml") {
			t.Errorf("%s: the log does not name the place: %s", name, line)
		}
		status, r := p.readiness()
		if status != 200 || !r.Degraded || !strings.Contains(r.Rules.Error, "weir.rules.yaml") || r.Rules.Count != 1 {
			t.Errorf("%s: /readyz %d %+v", name, status, r)
		}
	}
	if n := p.passes(5); n != 3 {
		t.Errorf("%d of 5 calls passed under the last good rules", n)
	}
	_, metrics := p.get("admin", "/metrics")
	if !strings.Contains(metrics, `weir_file_refused_total{file="rules"} 6`) || !strings.Contains(metrics, `weir_file_stale{file="rules"} 1`) {
		t.Error("refusals are not counted")
	}

	replace(t, file, strings.Replace(goodRules, "3/1h", "5/1h", 1))
	p.logged("in force")
	if n := p.passes(5); n != 2 {
		t.Errorf("%d more calls passed after raising 3 to 5", n)
	}
	if _, r := p.readiness(); r.Degraded || r.Rules.Error != "" {
		t.Errorf("after a good file: %+v", r)
	}
}

// A rule that leaves callers without a limit is legal, and seen by nobody who does not run check-config.
func TestRulesThatAreHardlyMeantAreLogged(t *testing.T) {
	dir := settings(t, "")
	open := strings.Replace(goodRules, "by: [address]", "by: [key]", 1)
	write(t, filepath.Join(dir, "weir.rules.yaml"), open)
	p := start(t, dir)
	for range 2 {
		line := p.logged("hardly all meant")
		if !strings.Contains(line, `"level":"WARN"`) || !strings.Contains(line, `"warnings":1`) || !strings.Contains(line, "no rule applies there to a request without key") {
			t.Errorf("logged: %s", line)
		}
		replace(t, filepath.Join(dir, "weir.rules.yaml"), open+"# the same\n")
	}
}

// As Kubernetes swaps a mounted ConfigMap.
func TestASymlinkSwapIsSeen(t *testing.T) {
	dir := settings(t, "")
	for name, limit := range map[string]string{"v1": "3/1h", "v2": "6/1h"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "weir.rules.yaml"), strings.Replace(goodRules, "3/1h", limit, 1))
	}
	os.Remove(filepath.Join(dir, "weir.rules.yaml"))
	for _, link := range [][2]string{{"v1", "data"}, {"data/weir.rules.yaml", "weir.rules.yaml"}} {
		if err := os.Symlink(link[0], filepath.Join(dir, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, dir)
	p.passes(3)
	if err := os.Symlink("v2", filepath.Join(dir, "data.new")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "data.new"), filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	p.logged("in force")
	if n := p.passes(5); n != 3 {
		t.Errorf("%d more calls passed after raising 3 to 6", n)
	}
}

func TestWithoutItsStoreAProcessStartsDegradedAndRecovers(t *testing.T) {
	valkey := valkeytest.Start(t)
	valkey.Kill()
	dir := settings(t, "store: {url: \"valkey://"+valkey.Addr+"\", deadline: 5s}\nsecrets: {counter: [secret]}\n")
	write(t, filepath.Join(dir, "secret"), strings.Repeat("s", 32))
	p := start(t, dir)
	if line := p.logged("does not answer"); !strings.Contains(line, valkey.Addr) {
		t.Errorf("log: %s", line)
	}
	status, r := p.readiness()
	if status != 200 || !r.Ready || !r.Degraded || r.Store.Up || r.Store.Kind != "valkey" {
		t.Errorf("without a store: %d %+v", status, r)
	}
	if n := p.passes(5); n != 3 {
		t.Errorf("counting here, %d of 5 calls passed at 3/h", n)
	}
	valkey.Run()
	p.logged("answers again")
	if _, r := p.readiness(); r.Degraded || !r.Store.Up {
		t.Errorf("with its store: %+v", r)
	}
	if n := p.passes(5); n != 3 {
		t.Errorf("by the store, %d of 5 calls passed at 3/h", n)
	}
}

func TestWhatCannotStartSaysWhyAndLeavesNothingOpen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		spoil func(dir string)
		want  string
	}{
		"port in use": {func(dir string) {
			write(t, filepath.Join(dir, "weir.yaml"), "upstream: http://127.0.0.1:1\nlisten: {gateway: \"127.0.0.1:0\", admin: \""+taken.Addr().String()+"\"}\n")
		}, "listen.admin: listen tcp " + taken.Addr().String() + ": bind: address already in use"},
		"no rules file": {func(dir string) { os.Remove(filepath.Join(dir, "weir.rules.yaml")) }, "rules: open "},
		"broken rules":  {func(dir string) { write(t, filepath.Join(dir, "weir.rules.yaml"), "version: 2\n") }, "weir.rules.yaml:1:10: version"},
		"no keys file": {func(dir string) {
			write(t, filepath.Join(dir, "weir.yaml"), "upstream: http://127.0.0.1:1\nkeys: nowhere.yaml\n")
		}, "keys: open "},
	} {
		dir := settings(t, "")
		c.spoil(dir)
		_, err := server.Open(load(t, dir), slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestRequestsInFlightFinishWhenTheProcessEnds(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		fmt.Fprint(w, "late")
	}))
	defer api.Close()
	dir := settings(t, "")
	write(t, filepath.Join(dir, "weir.yaml"), "upstream: "+api.URL+"\nlisten: {gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\n")
	p := start(t, dir)
	conn, err := net.Dial("tcp", p.server.Address("gateway"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	<-entered
	p.stop()
	p.logged("draining")
	if r := p.server.Readiness(); r.Ready || !r.Draining {
		t.Errorf("while draining: %+v", r)
	}
	if status, r := p.readiness(); status != 503 || !r.Draining {
		t.Errorf("/readyz while draining: %d %+v", status, r)
	}
	if status, _ := p.get("admin", "/healthz"); status != 200 {
		t.Errorf("/healthz while draining: %d", status)
	}
	close(leave)
	if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 200") {
		t.Errorf("the request in flight got %q, %v", line, err)
	}
	if err := <-p.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	close(p.ended)
}
