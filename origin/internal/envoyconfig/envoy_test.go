package envoyconfig_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/envoyconfig"
	"github.com/weirproject/weir/origin/internal/stand"
)

const root = "../../.."

// envoyBinary is the Envoy to test with; without one the test is skipped, which CI does not take.
func envoyBinary(t *testing.T) string {
	t.Helper()
	path, err := stand.Envoy.Find(root)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("NOT TESTED on Envoy: %v", err)
	}
	return path
}

// An RBAC filter in the filter's place, which the bootstrap allows for its default. It lets everything pass that has
// no x-weir-class, so that its counters tell whether a client's header got to the first filter.
const standIn = `{"version_info": "1", "resources": [{
  "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", "name": "weir",
  "typed_config": {
    "@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC", "rules_stat_prefix": "stand_in.",
    "rules": {"action": "ALLOW", "policies": {"unmarked": {
      "permissions": [{"any": true}],
      "principals": [{"not_id": {"header": {"name": "x-weir-class", "present_match": true}}}]}}}}}]}`

func writeStandIn(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "filter.json")
	if err := envoyconfig.WriteDiscovery(path, []byte(standIn)); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeBootstrap(t *testing.T, e envoyconfig.Edge, edits ...func(string) string) string {
	t.Helper()
	rendered, err := e.Render()
	if err != nil {
		t.Fatal(err)
	}
	text := string(rendered)
	for _, edit := range edits {
		edited := edit(text)
		if edited == text {
			t.Fatal("an edit of the bootstrap found nothing to change")
		}
		text = edited
	}
	path := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEnvoyTakesTheBootstrap(t *testing.T) {
	envoy := envoyBinary(t)
	validate := func(t *testing.T, e envoyconfig.Edge) {
		t.Helper()
		out, err := exec.Command(envoy, "--mode", "validate", "--log-level", "error", "-c", writeBootstrap(t, e)).CombinedOutput()
		if err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
	}
	// What the template has blocks for, in every combination.
	certificate, filter := writeCertificate(t), writeStandIn(t)
	for _, control := range []string{"", "127.0.0.1:8084", "control.internal:8084"} {
		for _, health := range []string{"", "[::1]:8086"} {
			for _, certificate := range []string{"", certificate} {
				for _, heap := range []int64{0, 1 << 30} {
					e := edge()
					e.Filter, e.Control, e.Health, e.Certificate, e.MaxHeap = filter, control, health, certificate, heap
					t.Run(fmt.Sprintf("control %q health %q tls %v heap %d", control, health, certificate != "", heap), func(t *testing.T) { validate(t, e) })
				}
			}
		}
	}
	for name, change := range map[string]func(*envoyconfig.Edge){
		"v6, behind two proxies": func(e *envoyconfig.Edge) { e.Listen, e.Admin, e.Hops = "[::1]:8080", "[::1]:9901", 2 },
		"both families":          func(e *envoyconfig.Edge) { e.Listen, e.Health = "[::]:8080", "[::]:8086" },
		"origin by name":         func(e *envoyconfig.Edge) { e.Origin = "origin.internal:8081" },
		"odd texts":              func(e *envoyconfig.Edge) { e.Node, e.AccessLog = `a "b": {c}`, "/dev/null" },
		"least": func(e *envoyconfig.Edge) {
			e.MaxConnections, e.MaxHeap, e.RequestTimeout, e.StreamIdle = 1, 128<<20, time.Second, time.Second
		},
		"most": func(e *envoyconfig.Edge) {
			e.MaxConnections, e.MaxHeap, e.RequestTimeout, e.StreamIdle, e.Hops = 1_000_000, 1<<40, 24*time.Hour, 24*time.Hour, 16
		},
		"parts of a second": func(e *envoyconfig.Edge) { e.StreamIdle = 1500*time.Millisecond + time.Microsecond },
	} {
		t.Run(name, func(t *testing.T) {
			e := edge()
			e.Filter = writeStandIn(t)
			change(&e)
			validate(t, e)
		})
	}
}

// freeAddress is a loopback address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// startEnvoy runs Envoy on the bootstrap until the test ends, returning once it answers.
func startEnvoy(t *testing.T, e envoyconfig.Edge, edits ...func(string) string) {
	t.Helper()
	var output bytes.Buffer
	cmd := exec.Command(envoyBinary(t), "-c", writeBootstrap(t, e, edits...), "--concurrency", "1", "--disable-hot-restart", "--log-level", "error")
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		if t.Failed() {
			t.Logf("envoy said:\n%s", output.Bytes())
		}
	})
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(60 * time.Second)
	for {
		if response, err := http.Get("http://" + e.Admin + "/ready"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-done:
			t.Fatal("envoy ended")
		case <-deadline:
			t.Fatal("envoy is not ready after 60 s")
		}
	}
}

func get(t *testing.T, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header[headers[i]] = []string{headers[i+1]}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func wantProblem(t *testing.T, response *http.Response, body string, status int, code string) {
	t.Helper()
	var problem struct {
		Status int
		Code   string
	}
	err := json.Unmarshal([]byte(body), &problem)
	if err != nil || problem.Status != status || problem.Code != code || response.StatusCode != status {
		t.Errorf("answered %s, %q, %v; want %d %s", response.Status, body, err, status, code)
	}
	if got := response.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q", got)
	}
}

func TestNothingPassesAnEnvoyWithoutTheFilter(t *testing.T) {
	var called atomic.Int64
	origin := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Add(1) })}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = origin.Serve(listener) }()
	defer origin.Close()

	e := envoyconfig.Edge{Listen: freeAddress(t), Admin: freeAddress(t), Origin: listener.Addr().String(), Filter: writeStandIn(t), AccessLog: "/dev/null"}
	startEnvoy(t, e)
	url := "http://" + e.Listen + "/"

	response, body := get(t, url)
	wantProblem(t, response, body, http.StatusServiceUnavailable, "limiter_unavailable")
	if got := response.Header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After %q, want 1", got)
	}

	// A mark or class that a client sends is no mark, however it is spelled.
	for _, name := range []string{"X-Weir-Class", "x-weir-class", "X-WEIR-CLASS", "X-Weir-Verdict"} {
		response, body := get(t, url, name, "valid")
		wantProblem(t, response, body, http.StatusServiceUnavailable, "limiter_unavailable")
	}
	_, stats := get(t, "http://"+e.Admin+"/stats?filter=rbac")
	for _, want := range []string{"rbac.stand_in.allowed: 5\n", "rbac.stand_in.denied: 0\n", "rbac.weir_guard.denied: 5\n", "rbac.weir_guard.allowed: 0\n"} {
		if !strings.Contains(stats, want) {
			t.Errorf("want %q: the first filter saw a client's x-weir-*, or the guard was passed:\n%s", want, stats)
		}
	}

	response, body = get(t, url, "x_weir_class", "valid")
	wantProblem(t, response, body, http.StatusBadRequest, "bad_request")
	response, body = get(t, url, "Connection", "upgrade", "Upgrade", "other")
	wantProblem(t, response, body, http.StatusBadRequest, "bad_request")
	response, body = get(t, url, "Connection", "upgrade", "Upgrade", "websocket")
	wantProblem(t, response, body, http.StatusServiceUnavailable, "limiter_unavailable")
	if n := called.Load(); n != 0 {
		t.Errorf("the origin was called %d times", n)
	}
}
