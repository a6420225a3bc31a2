package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/counters"
	"github.com/weirproject/weir/origin/internal/server"
)

// originWith runs an origin with a key of id acme-prod until the test ends, and tells its ports.
func originWith(t *testing.T, rules string) (gateway, admin, key string) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(api.Close)
	dir := folder(t, map[string]string{"weir.rules.yaml": rules,
		"weir.yaml": "upstream: " + api.URL + "\nlisten: {gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\nkeys: weir.keys.yaml\n"})
	key, _, err := invoke(t, newRootCommand(), "key", "new", "--id", "acme-prod", "--tenant", "acme", "--keys", filepath.Join(dir, "weir.keys.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(filepath.Join(dir, "weir.yaml"), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.Open(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + s.Address("gateway"), "http://" + s.Address("admin"), strings.TrimSpace(key)
}

const countersRules = `version: 1
rules:
- {name: per-key, where: origin, by: [key], algorithm: fixed-window, limit: 3/1d}
- {name: search, where: origin, match: {paths: ["/search/**"], methods: [POST]}, by: [key, endpoint], limit: 10/1h}
- {name: per-user, where: origin, by: [user], limit: 60/1h}
`

func TestCountersShowsWhatHoldsACallerAndResetsIt(t *testing.T) {
	gateway, admin, key := originWith(t, countersRules)
	call := func() int {
		r, err := http.NewRequest("GET", gateway+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("x-api-key", key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	for range 5 {
		call()
	}
	out, _, err := invoke(t, newRootCommand(), "counters", "show", "--admin", admin, "--key-id", "acme-prod")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"caller   key acme-prod, tenant acme\n",
		"RULE     PRINCIPAL      ENDPOINT  LIMIT              FROM  USED  LEFT  STATUS   FREES",
		"per-key  key=acme-prod  -         3/1d fixed-window  rule  3     0     refused  in ", "  deny cache\n",
		"\n1 more by endpoint were never used: --all shows them.\nRule per-user counts by user, which was not given.\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	out, _, err = invoke(t, newRootCommand(), "counters", "show", "--admin", admin, "--key-id", "acme-prod", "--path", "/search/x", "--method", "POST", "--all", "--json")
	var report counters.Report
	if err != nil || json.Unmarshal([]byte(out), &report) != nil || len(report.Counters) != 2 || report.Counters[1].Pattern != "/search/**" {
		t.Errorf("%s, %v", out, err)
	}
	out, _, err = invoke(t, newRootCommand(), "counters", "reset", "--admin", admin, "--rule", "per-key", "--key-id", "acme-prod", "--by", "alice", "--reason", "a job ran twice")
	if want := "reset: rule per-key, key=acme-prod, which was refused, 3 of 3 used\n"; err != nil || out != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
	if status := call(); status != 200 {
		t.Errorf("after the reset: %d", status)
	}
	for line, want := range map[string]string{
		"show --key-id " + key:                "counters show: --key-id is a key itself: want its id",
		"show --key-id=":                      "counters show: --key-id is empty",
		"show --key-id nobody":                "counters show: key-id nobody: no key of this id is in force",
		"show --key-id acme-prod --user a||b": "counters show: key-id, user, tenant are several principals",
		"show --admin 127.0.0.1:8084":         "want a URL, as http://127.0.0.1:8084",
		"show --admin " + gateway:             "is no origin",
		"show now":                            `counters show: "now" is one too many`,
		"reset --rule per-key":                "counters reset: --reason and --by are missing",
		"reset --rule x --reason r --by b":    `counters reset: rule "x": there is no such rule at this origin: want one of per-key, search, per-user`,
		"reset --rule search --key-id acme-prod --reason r --by b": "want the method and the pattern of one, as POST /search/**",
		"": "counters: want show or reset",
	} {
		args := append([]string{"counters"}, strings.Fields(line)...)
		if len(args) > 1 && !strings.Contains(line, "--admin") {
			args = append(args, "--admin", admin)
		}
		_, _, err := invoke(t, newRootCommand(), args...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
		if err != nil && strings.Contains(err.Error(), key) {
			t.Errorf("%s: the error tells the key", line)
		}
	}
}

func TestCountersWithoutAnOriginSaysHowToStartOne(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin := "http://" + free.Addr().String()
	free.Close()
	_, _, err = invoke(t, newRootCommand(), "counters", "show", "--tenant", "acme", "--admin", admin)
	if want := "counters show: no origin answers at " + admin + " (dial tcp"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "`weir serve weir.yaml` starts one") {
		t.Errorf("%v, want %s", err, want)
	}
}
