package main

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/keyfilter"
)

const tryRules = `version: 1
rules:
- {name: per-address, where: origin, by: [address], limit: 2/1m}
`

// edgeTrials is a rule with two things that no process enforces.
const edgeTrials = "- {name: trial, where: edge, by: [address], limit: 10/1s, cost: 2, mode: shadow}\n"

const accessLog = `2001:db8::1 - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 1 "-" "say \"hi\""
2001:db8::2 - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 1 "-" "-"
2001:db8::1 - - [10/Oct/2026:13:55
2001:db8::3 - - [10/Oct/2026:13:55:37 +0000] "GET /a HTTP/1.1" 200 1 "-" "-"
192.0.2.1 - - [10/Oct/2026:13:55:38 +0000] "GET /a HTTP/1.1" 200 1 "-" "-"
nobody - - [10/Oct/2026:13:55:38 +0000] "GET /a HTTP/1.1" 200 1 "-" "-"
`

func tryFiles(t *testing.T) (rules, trace string) {
	t.Helper()
	dir := t.TempDir()
	rules, trace = filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "access.log")
	for name, text := range map[string]string{rules: tryRules, trace: accessLog} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return rules, trace
}

func TestReplayShowsASummaryWithItsBadLines(t *testing.T) {
	rules, trace := tryFiles(t)
	stdout, stderr, err := invoke(t, newReplayCommand(), "--rules", rules, trace)
	if err != nil {
		t.Fatal(err)
	}
	want := trace + `:3: want host ident user [time] "request" status bytes` + "\n" + trace + `:6: address "nobody": want an IP address` + "\n"
	if stderr != want {
		t.Errorf("stderr:\n%s\nwant:\n%s", stderr, want)
	}
	for _, part := range []string{"4 calls in 2s, 2026-10-10T13:55:36Z to 2026-10-10T13:55:38Z; 3 admitted, 1 refused\n2 lines could not be read\n",
		"per-address  2/1m sliding-window  4     3         1        25.00", "\nper-address\n  most refused:\n    1  address=2001:db8::/64\n"} {
		if !strings.Contains(stdout, part) {
			t.Errorf("no %q in:\n%s", part, stdout)
		}
	}
	_, stderr, _ = invoke(t, newReplayCommand(), "--rules", rules, "--show-bad", "1", trace)
	if !strings.HasSuffix(stderr, ": and 1 more line that could not be read (--show-bad -1 shows all)\n") || strings.Count(stderr, "\n") != 2 {
		t.Errorf("stderr:\n%s", stderr)
	}
	if _, stderr, _ = invoke(t, newReplayCommand(), "--rules", rules, "--show-bad", "0", trace); stderr != trace+": 2 lines could not be read (--show-bad -1 shows all)\n" {
		t.Errorf("stderr:\n%s", stderr)
	}
	if _, stderr, _ = invoke(t, newReplayCommand(), "--rules", rules, "--strict", trace); stderr != "" { // the command's error says it
		t.Errorf("strict, stderr:\n%s", stderr)
	}
	for top, want := range map[string]bool{"-1": true, "0": false} {
		if stdout, _, err = invoke(t, newReplayCommand(), "--rules", rules, "--top", top, trace); err != nil || strings.Contains(stdout, "    1  address=2001:db8::/64\n") != want {
			t.Errorf("top %s: %v\n%s", top, err, stdout)
		}
	}
}

func TestReplayWritesDecisionsAloneToStandardOutput(t *testing.T) {
	rules, trace := tryFiles(t)
	want := `{"t":1791640536000000,"rule":"per-address","allowed":true,"remaining":1,"retry_after_us":0}
{"t":1791640536000000,"rule":"per-address","allowed":true,"remaining":0,"retry_after_us":0}
{"t":1791640537000000,"rule":"per-address","allowed":false,"remaining":0,"retry_after_us":53000000}
{"t":1791640538000000,"rule":"per-address","allowed":true,"remaining":1,"retry_after_us":0}
`
	plain, _, err := invoke(t, newReplayCommand(), "--rules", rules, "--decisions", "--format", "combined", trace)
	if err != nil || plain != want {
		t.Errorf("%v, got:\n%s\nwant:\n%s", err, plain, want)
	}
	// The same from standard input, packed.
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(accessLog))
	w.Close()
	command := newReplayCommand()
	command.SetIn(&packed)
	if piped, _, err := invoke(t, command, "--rules", rules, "--decisions", "-"); err != nil || piped != plain {
		t.Errorf("%v, from a pipe:\n%s", err, piped)
	}
}

func TestReplayTellsWhatItCannotDo(t *testing.T) {
	rules, trace := tryFiles(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(broken, []byte(strings.Replace(tryRules, "2/1m", "2/1w", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"strict":       {[]string{"--rules", rules, "--strict", trace}, "replay: " + trace + `:3: want host ident user [time] "request" status bytes`},
		"format":       {[]string{"--rules", rules, "--format", "apache", trace}, `replay: format "apache": want one of jsonl, common, combined, envoy`},
		"wrong format": {[]string{"--rules", rules, "--format", "jsonl", trace}, "replay: " + trace + ": no line of it could be read as jsonl"},
		"guessed":      {[]string{"--rules", rules, rules}, "replay: " + rules + ": no line of it could be read as common, which its first line was taken for: --format names another"},
		"empty":        {[]string{"--rules", rules, empty}, "replay: " + empty + ": no line of it could be read as a trace: it is empty"},
		"absent":       {[]string{"--rules", rules, trace + "x"}, "replay: open " + trace + "x: no such file or directory"},
		"folder":       {[]string{"--rules", rules, filepath.Dir(trace)}, "replay: " + filepath.Dir(trace) + " is a folder"},
		"broken rules": {[]string{"--rules", broken, trace}, "replay: " + broken + `:3:60: rules[0].limit: "2/1w": want <calls>/<time> with time in ms, s, m, h or d, as 100/1m`},
		"memory":       {[]string{"--rules", rules, "--memory", "0", trace}, "replay: memory 0: want 1 to 1048576 MiB"},
	} {
		if _, _, err := invoke(t, newReplayCommand(), c.args...); err == nil || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", name, err, c.want)
		}
	}
}

func TestExplainAnswersOnTheCommandLine(t *testing.T) {
	rules, trace := tryFiles(t)
	stdout, stderr, err := invoke(t, newExplainCommand(), "--rules", rules, "--address", "2001:db8::1", "--header", "Host: h", "get", "/a")
	if err != nil || stderr != "" {
		t.Fatal(err, stderr)
	}
	if !strings.Contains(stdout, "request  GET /a\nhost     h\n") || !strings.Contains(stdout, "per-address  3     origin  address=2001:db8::/64  GET *     2/1m sliding-window  the rule") {
		t.Errorf("got:\n%s", stdout)
	}
	key, err := keyfilter.Format{}.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"explain: --key-id is a key itself: want its id, as `weir key new --id` was given": {"--key-id", key, "GET", "/"},
		`explain: --user "bob": want issuer|tenant|subject, the tenant may be empty`:       {"--user", "bob", "GET", "/"},
		`explain: method "/a": want an HTTP method, as GET`:                                {"/a", "/b"},
		`explain: --address "x": want an IP address, as 192.0.2.7 or 2001:db8::1`:          {"--address", "x", "GET", "/"},
		`explain: target "a": want a path that begins with /, or a URL with http or https`: {"GET", "a"},
		"explain: open " + rules + "x: no such file or directory":                          {"--rules", rules + "x", "GET", "/"},
	} {
		args = append([]string{"--rules", rules}, args...)
		if _, _, err := invoke(t, newExplainCommand(), args...); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	model := filepath.Join(t.TempDir(), "model.yaml")
	if err := os.WriteFile(model, []byte(tryRules+edgeTrials), 0o600); err != nil {
		t.Fatal(err)
	}
	wantModel := "warning: " + model + ": this version would refuse 2 things in it, which it does not enforce: `weir check-config --rules " + model + "` tells what\n"
	for name, try := range map[string]func() (string, string, error){
		"explain": func() (string, string, error) {
			return invoke(t, newExplainCommand(), "--rules", model, "--address", "192.0.2.1", "GET", "/")
		},
		"replay": func() (string, string, error) {
			return invoke(t, newReplayCommand(), "--rules", model, "--show-bad", "0", "--decisions", trace)
		},
	} {
		if _, stderr, err := try(); err != nil || !strings.HasPrefix(stderr, wantModel) {
			t.Errorf("%s: %v, %s, want %s", name, err, stderr, wantModel)
		}
	}
	open := filepath.Join(t.TempDir(), "open.yaml")
	if err := os.WriteFile(open, []byte(strings.Replace(tryRules, "[address]", "[key]", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, err := invoke(t, newExplainCommand(), "--rules", open, "GET", "/"); err != nil || !strings.HasPrefix(stderr, "warning: "+open+":3:3: rules[0].match: ") {
		t.Errorf("%v, %s", err, stderr)
	}
}
