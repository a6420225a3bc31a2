package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/origin/internal/certificate/certificatetest"
)

// folder holds files for a command, by name.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	goodRules = "version: 1\nrules:\n- {name: r, where: origin, by: [address], limit: 3/1h}\n"
	goodKeys  = "version: 1\nhash-key: 000102030405060708090a0b0c0d0e0f\nkeys: []\n"
)

// exitCode is what main would exit with.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[exitError](err); ok {
		return exit.code
	}
	return 1
}

func TestCheckConfigReadsTheGatewaysCertificate(t *testing.T) {
	pair := certificatetest.New(t).Issue(t, "localhost")
	dir := folder(t, map[string]string{
		"weir.yaml":       "upstream: http://127.0.0.1:9000\ntls: {gateway: {cert: c.pem, key: k.pem}}\n",
		"weir.rules.yaml": goodRules, "c.pem": string(pair.Cert), "k.pem": string(pair.Key),
	})
	file := filepath.Join(dir, "weir.yaml")
	if _, _, err := invoke(t, newCheckConfigCommand(), file); err != nil {
		t.Errorf("a good pair: %v", err)
	}
	for name, content := range map[string]string{"c.pem": "garbage", "k.pem": string(certificatetest.New(t).Issue(t).Key)} {
		good, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, spoil := range []func() error{
			func() error { return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600) },
			func() error { return os.Remove(filepath.Join(dir, name)) },
		} {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			if _, _, err := invoke(t, newCheckConfigCommand(), file); exitCode(err) != 2 || !strings.Contains(err.Error(), "tls.gateway") || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: exit code %d, %v", name, exitCode(err), err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckConfigListsTheMistakesOfAllFilesAtOnce(t *testing.T) {
	dir := folder(t, map[string]string{
		"weir.yaml":       "upstream: nowhere\nkeys: weir.keys.yaml\ncolour: red\n",
		"weir.rules.yaml": "version: 1\nrules:\n- {name: A, where: origin, by: [address], limit: 3}\n",
		"weir.keys.yaml":  "version: 1\nhash-key: 00\nkeys: [{id: a}]\n",
	})
	out, _, err := invoke(t, newCheckConfigCommand(), filepath.Join(dir, "weir.yaml"))
	if exitCode(err) != 2 || out != "" {
		t.Fatalf("exit code %d, printed %q", exitCode(err), out)
	}
	for _, want := range []string{
		"weir.yaml:1:11: upstream: ", "weir.yaml:3:1: colour: ", "weir.rules.yaml:3:10: rules[0].name: ", "weir.rules.yaml:3:",
		"weir.keys.yaml:2:11: hash-key: ", "weir.keys.yaml:3:", "keys[0].sha256: ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %s:\n%v", want, err)
		}
	}
	for line := range strings.Lines(err.Error()) {
		if !strings.Contains(line, dir) && !strings.Contains(line, "faults in the configuration") {
			t.Errorf("a line without a place: %q", line)
		}
	}
}

func TestCheckConfigNamesFilesThatAreNotThere(t *testing.T) {
	dir := folder(t, map[string]string{"weir.yaml": "upstream: nowhere\nrules: r.yaml\nkeys: k.yaml\n", "short.yaml": "upstream: http://h\nrules: .\n"})
	for file, wants := range map[string][]string{
		"weir.yaml":   {"upstream: ", "rules: \"" + filepath.Join(dir, "r.yaml") + "\": cannot be read: no such file", "keys: \"" + filepath.Join(dir, "k.yaml") + "\": cannot be read"},
		"short.yaml":  {"rules: \"" + dir + "\": cannot be read: is not a regular file"},
		"absent.yaml": {"absent.yaml: no such file"},
	} {
		_, _, err := invoke(t, newCheckConfigCommand(), filepath.Join(dir, file))
		if exitCode(err) != 2 {
			t.Fatalf("%s: exit code %d", file, exitCode(err))
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s lacks %s:\n%v", file, want, err)
			}
		}
	}
}

func TestCheckConfigSumsUpWhatIsGood(t *testing.T) {
	dir := folder(t, map[string]string{
		"weir.yaml":       "upstream: http://127.0.0.1:1\nkeys: weir.keys.yaml\nstore: {url: \"valkey://u:hunter2@h:1\"}\nsecrets: {counter: [secret]}\n",
		"weir.rules.yaml": goodRules, "weir.keys.yaml": goodKeys, "secret": strings.Repeat("s", 32),
	})
	out, _, err := invoke(t, newCheckConfigCommand(), filepath.Join(dir, "weir.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "is good: 1 rule (") || !strings.Contains(out, "0 keys, store valkey://h:1\n") || strings.Contains(out, "hunter2") {
		t.Errorf("printed %q", out)
	}
}

func TestCheckConfigChecksARulesFileAlone(t *testing.T) {
	dir := folder(t, map[string]string{
		"good.yaml": goodRules, "open.yaml": strings.Replace(goodRules, "[address]", "[key]", 1), "bad.yaml": strings.Replace(goodRules, "3/1h", "3", 1),
		"weir.yaml": "upstream: http://127.0.0.1:1\nrules: good.yaml\n", "version.yaml": "version: 1\n", "within.yaml": "upstream: http://127.0.0.1:1\nrules: [{name: r}]\n",
	})
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		args                []string
		code                int
		stdout, stderr, err string
	}{
		{[]string{"--rules", in("good.yaml")}, 0, in("good.yaml") + " is good: 1 rule (content ", "", ""},
		{[]string{"--rules", in("open.yaml")}, 0, " is good: 1 rule (content ", "warning: " + in("open.yaml") + ":3:3: rules[0].match: ", ""},
		{[]string{"--rules", in("bad.yaml")}, 2, "", "", in("bad.yaml") + `:3:50: rules[0].limit: "3": want <calls>/<time>`},
		{[]string{"--rules", in("absent.yaml")}, 2, "", "", "absent.yaml: no such file"},
		{[]string{"--rules", in("good.yaml"), in("weir.yaml")}, 1, "", "", "weir.yaml\" beside --rules: want one of the two"},
		{[]string{in("good.yaml")}, 2, "", "", in("good.yaml") + " is a rules file, not a weir.yaml: `weir check-config --rules " + in("good.yaml") + "` checks it"},
		{[]string{in("bad.yaml")}, 2, "", "", in("bad.yaml") + " is a rules file, not a weir.yaml"},
		{[]string{in("weir.yaml")}, 0, in("weir.yaml") + " is good: 1 rule (content ", "", ""},
		{[]string{in("within.yaml")}, 2, "", "", "within.yaml:2:8: rules: want a single value"},
		{[]string{in("version.yaml")}, 2, "", "", "version: is unknown: want one of roles"},
	} {
		stdout, stderr, err := invoke(t, newCheckConfigCommand(), c.args...)
		if err == nil {
			err = errors.New("")
		} else if got := exitCode(err); got != c.code {
			t.Errorf("%v: exit code %d, want %d", c.args, got, c.code)
		}
		if !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) || !strings.Contains(err.Error(), c.err) || (err.Error() == "") != (c.code == 0) {
			t.Errorf("%v:\n%s%s%v\nwant\n%s%s%s", c.args, stdout, stderr, err, c.stdout, c.stderr, c.err)
		}
	}
}

func TestServeTellsConfigurationFromTheRestByItsExitCode(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := folder(t, map[string]string{
		"weir.rules.yaml": goodRules, "broken.rules.yaml": "version: 2\nrules: 3\n",
		"two faults":   "upstream: nowhere\ncolour: red\n",
		"broken rules": "upstream: http://127.0.0.1:1\nrules: broken.rules.yaml\nlisten: {gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\n",
		"no keys":      "upstream: http://127.0.0.1:1\nkeys: absent\nlisten: {gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\n",
		"port in use":  "upstream: http://127.0.0.1:1\nlisten: {gateway: \"" + taken.Addr().String() + "\", admin: \"127.0.0.1:0\"}\n",
		"no such host": "upstream: http://127.0.0.1:1\nlisten: {gateway: \"192.0.2.1:1\", admin: \"127.0.0.1:0\"}\n",
	})
	for file, c := range map[string]struct {
		code, lines int
		want        string
	}{
		"absent":       {2, 1, "no such file"},
		"two faults":   {2, 3, ":2:1: colour"},
		"broken rules": {2, 3, "broken.rules.yaml:1:10: version"},
		"no keys":      {2, 1, "keys: open"},
		"port in use":  {1, 1, "listen.gateway: listen tcp " + taken.Addr().String() + ": bind: address already in use"},
		"no such host": {1, 1, "listen.gateway: listen tcp 192.0.2.1:1: bind: cannot assign"},
	} {
		out, log, err := invoke(t, newServeCommand(), "--config", filepath.Join(dir, file))
		if exitCode(err) != c.code || err == nil || !strings.Contains(err.Error(), c.want) || len(strings.Split(err.Error(), "\n")) != c.lines {
			t.Errorf("%s: exit code %d, want %d with %s in %d lines:\n%v", file, exitCode(err), c.code, c.want, c.lines, err)
		}
		if out != "" || log != "" {
			t.Errorf("%s: printed %q %q", file, out, log)
		}
	}
}

// startError must not take a refused port for a refused file.
func TestAPortThatNeedsRootIsNoConfiguration(t *testing.T) {
	err := fmt.Errorf("listen.gateway: %w", &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", os.ErrPermission)})
	if code := exitCode(startError(err)); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

func TestServeEndsWellWhenItIsToldTo(t *testing.T) {
	dir := folder(t, map[string]string{"weir.rules.yaml": goodRules, "weir.yaml": "upstream: http://127.0.0.1:1\nroles: [admin]\nlisten: {admin: \"127.0.0.1:0\"}\n"})
	ctx, stop := context.WithCancel(t.Context())
	lines, log := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		command := newServeCommand()
		command.SetArgs([]string{"--config", filepath.Join(dir, "weir.yaml")})
		command.SetErr(log)
		ended <- command.ExecuteContext(ctx)
		log.Close()
	}()
	listening := make(chan string, 1)
	var told []string // valid once read is closed
	read := make(chan struct{})
	go func() { // reads on to the end, or the command would wait for its reader
		defer close(read)
		for entries := json.NewDecoder(lines); ; {
			var entry struct {
				Msg, Address, Store string
				Rules               int
			}
			if entries.Decode(&entry) != nil {
				return
			}
			told = append(told, fmt.Sprintf("%s %s %d", entry.Msg, entry.Store, entry.Rules))
			if entry.Msg == "listening" {
				listening <- entry.Address
			}
		}
	}()
	var address string
	select {
	case address = <-listening:
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(20 * time.Second):
		t.Fatal("no port was told")
	}
	resp, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != 200 {
		t.Errorf("/readyz: %d", resp.StatusCode)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	<-read
	if told[0] != "started memory 1" || !strings.HasPrefix(told[len(told)-1], "stopped") {
		t.Errorf("logged %q", told)
	}
}

func TestVersionNamesTheBuild(t *testing.T) {
	out, _, err := invoke(t, newVersionCommand())
	if err != nil || !strings.HasPrefix(out, "weir "+version+" (") || !strings.Contains(out, runtime.Version()) {
		t.Errorf("%q, %v", out, err)
	}
	build := func(settings ...string) *debug.BuildInfo {
		b := &debug.BuildInfo{}
		for i := 0; i < len(settings); i += 2 {
			b.Settings = append(b.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return b
	}
	for want, b := range map[string]*debug.BuildInfo{
		"":                          build("GOOS", "linux"),
		", commit abc":              build("vcs", "git", "vcs.revision", "abc", "vcs.modified", "false"),
		", commit abc with changes": build("vcs.revision", "abc", "vcs.modified", "true"),
	} {
		if got := revision(b); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := revision(nil); got != "" {
		t.Errorf("%q of no build", got)
	}
}

func TestCommandsTakeTheArgumentsTheyName(t *testing.T) {
	for name, command := range map[string]*cobra.Command{"serve x y": newServeCommand(), "check-config x y": newCheckConfigCommand(), "version x": newVersionCommand()} {
		if _, _, err := invoke(t, command, strings.Fields(name)[1:]...); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
