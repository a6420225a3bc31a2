package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/server"
)

// serveVariable makes the test's binary an origin with that weir.yaml, so that its goroutines and its memory are those of
// a process that does nothing else.
const serveVariable = "WEIR_FAULTS_SERVE"

func TestMain(m *testing.M) {
	if file := os.Getenv(serveVariable); file != "" {
		if err := serve(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Scenarios wait for most of their time, whatever the processors.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func serve(file string) error {
	c, err := config.Load(file, func(string) (string, bool) { return "", false })
	if err != nil {
		return err
	}
	s, err := server.Open(c, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return s.Run(ctx)
}

// patience bounds every wait for an event.
const patience = 30 * time.Second

// originRules have a rule of each failure mode that the load never uses up, and two that are soon used up. No call comes
// near the end of their windows.
const originRules = `version: 1
rules:
- {name: local, where: origin, match: {paths: [/local]}, by: [address], limit: 1000000/24h, on-store-failure: local}
- {name: open, where: origin, match: {paths: [/open]}, by: [address], limit: 1000000/24h, on-store-failure: open}
- {name: closed, where: origin, match: {paths: [/closed]}, by: [address], limit: 1000000/24h, on-store-failure: closed}
- {name: tight, where: origin, match: {paths: [/tight]}, by: [address], limit: 5/24h, on-store-failure: local}
- {name: tally, where: origin, match: {paths: [/tally]}, by: [address], limit: 200/24h, on-store-failure: local}
`

// soonRule is one that frees quickly, for what keeps an algorithm other than windows.
const soonRule = "- {name: soon, where: origin, match: {paths: [/soon]}, by: [address], algorithm: gcra, limit: 1/2s, burst: 1, on-store-failure: local}\n"

// origin is an origin in a process of its own. It ends with its test.
type origin struct {
	t              testing.TB
	gateway, admin string // host:port
	client         *http.Client
	mu             sync.Mutex
	log            []string
}

// settings are those of an origin.
type settings struct {
	store    string // the text of store: {…}
	upstream string // URL
	rules    string
}

func startOrigin(t testing.TB, s settings) *origin {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"weir.rules.yaml": s.rules,
		"secret":          strings.Repeat("secret of a test ", 4),
		"weir.yaml": "upstream: " + s.upstream + "\nlisten: {gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\nrules: weir.rules.yaml\n" +
			"store: " + s.store + "\nsecrets: {counter: [secret]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := &origin{t: t, client: &http.Client{Timeout: patience, Transport: &http.Transport{}}}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveVariable+"="+filepath.Join(dir, "weir.yaml"))
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening, read := make(chan bool, 2), make(chan struct{})
	go o.read(out, listening, read)
	t.Cleanup(func() {
		o.client.CloseIdleConnections()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("the origin ended with %v", err)
		}
		if t.Failed() {
			t.Logf("the origin's log ends:\n%s", strings.Join(o.log[max(0, len(o.log)-20):], ""))
		}
	})
	for range 2 {
		select {
		case <-listening:
		case <-read:
			t.Fatalf("the origin ended:\n%s", strings.Join(o.log, ""))
		case <-time.After(patience):
			t.Fatal("the origin does not listen")
		}
	}
	return o
}

// read keeps the log, and learns from it where the origin listens.
func (o *origin) read(out io.Reader, listening chan<- bool, done chan<- struct{}) {
	defer close(done)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var line struct{ Msg, Role, Address string }
		_ = json.Unmarshal(lines.Bytes(), &line) // a line of the race detector's, or a panic, is none
		o.mu.Lock()
		o.log = append(o.log, lines.Text()+"\n")
		o.mu.Unlock()
		if line.Msg != "listening" {
			continue
		}
		if line.Role == "gateway" {
			o.gateway = line.Address
		} else {
			o.admin = line.Address
		}
		listening <- true
	}
}

// logged is the log so far.
func (o *origin) logged() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.log, "")
}

// metric is the sum of a metric's series that have all labels, each written name="value".
func (o *origin) metric(name string, labels ...string) float64 {
	o.t.Helper()
	resp, err := o.client.Get("http://" + o.admin + "/metrics")
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	sum := 0.0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		bare, set, _ := strings.Cut(series, "{")
		all := bare == name
		for _, l := range labels {
			all = all && strings.Contains(set, l)
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil && all {
			sum += v
		}
	}
	return sum
}

// reset makes an address's counter of a rule a fresh one, as an operator does at this origin.
func (o *origin) reset(rule, address string) {
	o.t.Helper()
	body := fmt.Sprintf(`{"rule":%q,"address":%q,"by":"test","reason":"test"}`, rule, address)
	resp, err := o.client.Post("http://"+o.admin+"/counters/reset", "application/json", strings.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		o.t.Fatalf("reset: %d %s", resp.StatusCode, text)
	}
}
