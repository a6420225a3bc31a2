package stand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// orphanPipe makes this binary a parent that waits to be killed; its part holds the named pipe open.
const orphanPipe = "WEIR_TEST_ORPHAN_PIPE"

func TestMain(m *testing.M) {
	if pipe := os.Getenv(orphanPipe); pipe != "" {
		if _, err := start("part", pipe+".log", "/bin/sh", []string{"-c", "exec sleep 100 >" + pipe}); err != nil {
			panic(err)
		}
		select {}
	}
	goleak.VerifyTestMain(m)
}

func TestPartsDieWithAParentThatIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can do this")
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), orphanPipe+"="+pipe)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(pipe) // returns once the part has the other end
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	if err := reader.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the part still holds its pipe: %v", err)
	}
}

func TestDefaultRulesSayWhatTheTableSays(t *testing.T) {
	release, err := rules.Parse("weir.rules.yaml", defaultRules)
	if err != nil {
		t.Fatal(err)
	}
	if release.Set.Edge() == nil {
		t.Error("no edge rule: the filter would refuse no flood")
	}
	said := map[string]string{"per-key": DemoLimit, "per-user": UserLimit}
	who := rule.Caller{User: "i|acme|alice", Tenant: DemoUser.Tenant, Tier: DemoUser.Tier}
	for _, m := range release.Set.Match(rule.Origin, rule.Request{Method: http.MethodGet, Path: "/hello"}, nil) {
		if m.Rule.Mode == rule.Shadow {
			continue
		}
		present := rule.Parts(0).With(rule.Key)
		if m.Rule.Tier {
			present = rule.Parts(0).With(rule.User)
		}
		chosen, _ := m.Rule.Principal(present, nil)
		l := release.Set.Grant(&m.Rule, chosen, who).Limit
		if got := fmt.Sprintf("%d calls in %d s", l.Count, l.Window/limit.Second); got != said[m.Rule.Name] {
			t.Errorf("%s: the rules say %s, the table %q", m.Rule.Name, got, said[m.Rule.Name])
		}
		delete(said, m.Rule.Name)
	}
	if len(said) > 0 {
		t.Errorf("the table tells of what no rule limits: %v", said)
	}
}

// shell starts a script as a part.
func shell(t *testing.T, script string) *process {
	t.Helper()
	p, err := start("part", filepath.Join(t.TempDir(), "part.log"), "/bin/sh", []string{"-c", script})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
}

func TestShellsOverridesDoNotReachTheParts(t *testing.T) {
	t.Setenv("WEIR_STORE_URL", "valkey://elsewhere")
	p := shell(t, "env | grep WEIR_; exit 1")
	<-p.done
	if got := tail(p.log); got != nil {
		t.Errorf("the part sees %s", got)
	}
}

func never(context.Context) error { return errors.New("not yet") }

func TestPartThatDiesWhileStartingIsToldWithItsReason(t *testing.T) {
	p := shell(t, "seq 100; echo cannot bind >&2; exit 3")
	err := await(t.Context(), p, never)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"part ended (exit status 3)", p.log, "\n  100\n  cannot bind"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in:\n%v", want, err)
		}
	}
	if lines := strings.Count(err.Error(), "\n"); lines != tailLines {
		t.Errorf("%d lines of log, want %d", lines, tailLines)
	}
}

func TestHugeLogLineDoesNotFloodTheTerminal(t *testing.T) {
	p := shell(t, "head -c 10000000 /dev/zero | tr '\\0' x; exit 1")
	<-p.done
	if n := len(p.death().Error()); n > 2*tailBytes {
		t.Errorf("error of %d bytes", n)
	}
}

func TestPartThatIgnoresTheRequestToEndIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the whole grace")
	}
	p := shell(t, "trap '' TERM; echo up; exec sleep 100")
	up := func(context.Context) error {
		if content, err := os.ReadFile(p.log); err != nil || string(content) != "up\n" {
			return fmt.Errorf("log %q, %v", content, err)
		}
		return nil
	}
	if err := await(t.Context(), p, up); err != nil {
		t.Fatal(err)
	}
	p.stop()
	if p.err == nil || !strings.Contains(p.err.Error(), "killed") {
		t.Errorf("ended by %v, want killed", p.err)
	}
}

func TestCtrlCWhileStartingIsNoFault(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := await(ctx, shell(t, "exec sleep 100"), never); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want canceled", err)
	}
}

func TestTakenPortIsExchangedAndSaid(t *testing.T) {
	listener, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	taken := listener.Addr().(*net.TCPAddr).Port
	said := ""
	p := ports{given: map[int]bool{}, moved: func(name string, from, to int) { said = fmt.Sprint(name, " ", from, " ", to) }}
	got, err := p.take("the edge", taken)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(got)
	if port == strconv.Itoa(taken) || said != fmt.Sprint("the edge ", taken, " ", port) {
		t.Errorf("got %s, said %q", got, said)
	}
	// One port is not given to two parts, though nothing listens on it yet.
	first, _ := strconv.Atoi(port)
	if again, err := p.take("the origin", first); err != nil || again == got {
		t.Errorf("given twice: %s, %v", again, err)
	}
}

// Envoy heeds no SIGTERM while it compiles: the grace would be 5 s of silence.
func TestCtrlCKillsAPartThatIsNotReady(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &System{folder: folder{path: t.TempDir()}, died: make(chan error, 1)}
	var progress strings.Builder
	err := s.launch(ctx, &progress, part{name: "part", program: "/bin/sh", args: []string{"-c", "trap '' TERM; echo up; exec sleep 100"},
		ready: func(context.Context) error {
			if content, _ := os.ReadFile(s.folder.file("part.log")); len(content) > 0 { // the trap is set
				cancel()
			}
			return errors.New("not yet")
		}})
	if !errors.Is(err, context.Canceled) || progress.String() != "starting part ... stopping …\n" {
		t.Errorf("error %v, progress %q", err, &progress)
	}
	select {
	case <-s.parts[0].done:
	default:
		t.Error("the part still runs")
		s.parts[0].kill()
	}
}

func TestSecondStandIsKeptOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	f, err := openFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.file("left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openFolder(path); err == nil || !strings.Contains(err.Error(), "another `weir run`") {
		t.Fatalf("second stand: %v", err)
	}
	if _, err := os.Stat(f.file("left")); err != nil {
		t.Errorf("the second stand emptied the first one's folder: %v", err)
	}
	f.close()
	again, err := openFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	if _, err := os.Stat(f.file("left")); err == nil {
		t.Error("an earlier run's file is left")
	}
}

func TestRunFileIsReadBackOrSaysWhatToDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	if _, err := ReadRun(path); err == nil || !strings.Contains(err.Error(), "make run") {
		t.Errorf("no file: %v", err)
	}
	want := Run{Origin: "http://o", Admin: "http://a", API: "http://p", Issuer: "http://i", DemoKey: "wk_x", UserToken: "a.b.c"}
	if err := want.write(path); err != nil {
		t.Fatal(err)
	}
	got, err := ReadRun(path)
	if err != nil || got != want || got.Door() != want.Origin {
		t.Errorf("read %+v, %v", got, err)
	}
	content, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(content), "edge") || strings.Contains(string(content), "valkey") {
		t.Errorf("parts that do not run stand in the file: %s, %v", content, err)
	}
	for _, broken := range []string{"", "{", `{"origin": "http://o"}`} {
		if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRun(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", broken, err)
		}
	}
}

func TestOwnToolWinsAndAMissingOneSaysHowToGetIt(t *testing.T) {
	root := t.TempDir()
	t.Setenv("WEIR_ENVOY", "")
	if _, err := Envoy.Find(root); err == nil || !strings.Contains(err.Error(), "make tools") || !strings.Contains(err.Error(), "WEIR_ENVOY") {
		t.Errorf("missing: %v", err)
	}
	pinned := filepath.Join(root, ".tools", "bin", "envoy")
	if err := os.MkdirAll(filepath.Dir(pinned), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pinned, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Envoy.Find(root); err != nil || got != pinned {
		t.Errorf("found %q, %v; want %q", got, err, pinned)
	}
	t.Setenv("WEIR_ENVOY", "/bin/sh")
	if got, err := Envoy.Find(root); err != nil || got != "/bin/sh" {
		t.Errorf("found %q, %v; want one's own", got, err)
	}
	t.Setenv("WEIR_ENVOY", root)
	if _, err := Envoy.Find(root); err == nil || !strings.Contains(err.Error(), "WEIR_ENVOY="+root) {
		t.Errorf("a folder as a tool: %v", err)
	}
}

func TestMissingToolIsToldBeforeAnythingStarts(t *testing.T) {
	t.Setenv("WEIR_ENVOY", "")
	t.Setenv("WEIR_VALKEY", "")
	root := t.TempDir()
	_, err := Start(t.Context(), Options{Root: root, Weir: "/bin/false", API: http.NotFoundHandler(), Progress: io.Discard, NoEnvoy: true})
	if err == nil || !strings.Contains(err.Error(), "valkey-server is missing") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "build")); err == nil {
		t.Error("a folder was made though nothing can run")
	}
}

func TestFailedStartLeavesNothingRunning(t *testing.T) {
	root := t.TempDir()
	var progress strings.Builder
	_, err := Start(t.Context(), Options{Root: root, Weir: "/bin/false", API: http.NotFoundHandler(), Progress: &progress, NoEnvoy: true, Memory: true})
	if err == nil || !strings.Contains(err.Error(), "origin ended (exit status 1)") {
		t.Errorf("error %v", err)
	}
	if got := progress.String(); !strings.HasSuffix(got, "starting origin ... failed\n") {
		t.Errorf("progress %q", got)
	}
	again, err := openFolder(filepath.Join(root, "build", "run")) // the lock is free, and goleak sees the rest
	if err != nil {
		t.Fatal(err)
	}
	again.close()
}

func TestReadinessIsTheFiltersAnswerNotTheGuards(t *testing.T) {
	status := http.StatusServiceUnavailable
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	if filterAnswers(server.URL)(t.Context()) == nil {
		t.Error("the guard's 503 counts as ready")
	}
	status = http.StatusUnauthorized
	if err := filterAnswers(server.URL)(t.Context()); err != nil {
		t.Errorf("the filter's 401: %v", err)
	}
}
