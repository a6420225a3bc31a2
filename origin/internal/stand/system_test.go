package stand

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/issuer"
)

// checkout lays the built parts and the tools into a folder of the test's own, so that it disturbs no `make run`. A
// missing part skips the test, which CI does not take.
func checkout(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts the whole system, some seconds")
	}
	const real = "../../.."
	root := t.TempDir()
	var missing []string
	for _, tool := range []Tool{Envoy, Valkey} {
		path, err := tool.Find(real)
		if err != nil {
			missing = append(missing, err.Error())
		}
		t.Setenv(tool.env, path)
	}
	for _, built := range []string{"build/weir-edge.wasm", "build/weir"} {
		path, err := filepath.Abs(filepath.Join(real, built))
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			missing = append(missing, built+" is missing: run `make build`")
			continue
		}
		if err := os.MkdirAll(filepath.Join(root, "build"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(root, built)); err != nil {
			t.Fatal(err)
		}
	}
	if len(missing) == 0 {
		return root
	}
	text := strings.Join(missing, "; ")
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip("NOT TESTED: " + text)
	return ""
}

func status(t *testing.T, url, key string) int { return answer(t, url, "x-api-key", key) }

func answer(t *testing.T, url, field, value string) int {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	if value != "" {
		request.Header.Set(field, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func TestWholeSystemStartsAndNothingOfItSurvivesADeadPart(t *testing.T) {
	root := checkout(t)
	// Somebody else has the edge's port, or this does.
	if listener, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(portEdge))); err == nil {
		defer listener.Close()
	}
	var progress strings.Builder
	calls := make(chan string, 100)
	system, err := Start(t.Context(), Options{
		Root: root, Weir: filepath.Join(root, "build", "weir"), Progress: &progress,
		API: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { calls <- r.URL.Path }),
	})
	if err != nil {
		t.Fatalf("%v, after:\n%s", err, &progress)
	}
	stopped := false
	stop := func() {
		if !stopped {
			system.Stop()
		}
		stopped = true
	}
	defer stop()

	if want := "port 8080 is taken: the edge goes to "; !strings.Contains(progress.String(), want) {
		t.Errorf("want %q in:\n%s", want, &progress)
	}
	runFile := filepath.Join(root, "build", "run.json")
	run, err := ReadRun(runFile)
	if err != nil || run != system.Run {
		t.Errorf("run.json tells %+v, %v; want %+v", run, err, system.Run)
	}
	if len(calls) != 0 {
		t.Errorf("the API was called %d times before anybody asked", len(calls))
	}
	if got := status(t, run.Edge+"/hello", run.DemoKey); got != http.StatusOK {
		t.Errorf("the demo key is answered %d", got)
	}
	if got := status(t, run.Edge+"/hello", "wk_forged"); got != http.StatusUnauthorized {
		t.Errorf("a forged key is answered %d", got)
	}
	if len(calls) != 1 {
		t.Errorf("the API was called %d times, want once", len(calls))
	}
	bob, err := issuer.Ask(t.Context(), run.Issuer, issuer.Who{User: "bob", Tier: "paid"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	passed := map[string]int{}
	for range 15 {
		for who, token := range map[string]string{"alice": run.UserToken, "bob": bob} {
			if got := answer(t, run.Edge+"/hello", "Authorization", "Bearer "+token); got == http.StatusOK {
				passed[who]++
			} else if got != http.StatusTooManyRequests {
				t.Errorf("%s is answered %d", who, got)
			}
		}
	}
	if passed["alice"] < 10 || passed["bob"] < 10 || passed["alice"]+passed["bob"] == 30 {
		t.Errorf("%v calls passed of 15 each, want %s each", passed, UserLimit)
	}
	if got := answer(t, run.Edge+"/hello", "Authorization", "Bearer "+bob[:len(bob)-2]+"AA"); got != http.StatusUnauthorized {
		t.Errorf("a changed token is answered %d", got)
	}

	valkey := system.parts[0]
	if err := valkey.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := system.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "valkey ended (signal: killed), its log is ") {
		t.Errorf("a part died: %v", err)
	}
	stop()
	for _, part := range system.parts {
		select {
		case <-part.done:
		default:
			t.Errorf("%s still runs", part.name)
		}
	}
	if _, err := os.Stat(runFile); err == nil {
		t.Error("run.json is left")
	}
}
