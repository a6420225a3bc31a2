package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/keyfilter"
)

// invoke runs one command as main would, apart from this process's own output.
func invoke(t *testing.T, command *cobra.Command, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	command.SetArgs(args)
	command.SetOut(&out)
	command.SetErr(&errs)
	command.SilenceErrors, command.SilenceUsage = true, true
	err = command.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestKeyIsShownOnceAndKeptNowhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.keys.yaml")
	out, note, err := invoke(t, newKeyCommand(), "new", "--id", "acme-prod", "--tenant", "acme", "--tier", "paid", "--keys", file)
	if err != nil {
		t.Fatal(err)
	}
	key := strings.TrimSuffix(out, "\n")
	if !(keyfilter.Format{}).Check([]byte(key)) {
		t.Errorf("standard output is no key: %q", out)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), key) || strings.Contains(note, key) {
		t.Errorf("the key is kept:\n%s%s", content, note)
	}
	for _, want := range []string{"acme-prod", "acme", "paid"} {
		if !strings.Contains(string(content), want) {
			t.Errorf("want %q in:\n%s", want, content)
		}
	}
	if stat, err := os.Stat(file); err != nil || stat.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", stat.Mode(), err)
	}
}

func TestKeyThatCannotBeAddedIsNotShown(t *testing.T) {
	folder := t.TempDir()
	file, broken := filepath.Join(folder, "weir.keys.yaml"), filepath.Join(folder, "broken.yaml")
	if err := os.WriteFile(broken, []byte("version: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := invoke(t, newKeyCommand(), "new", "--id", "a", "--keys", file); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"id taken":    {[]string{"--id", "a", "--keys", file}, `id "a" is taken`},
		"odd id":      {[]string{"--id", "a b", "--keys", file}, `id "a b"`},
		"broken file": {[]string{"--id", "b", "--keys", broken}, broken + ":1:"},
		"no folder":   {[]string{"--id", "b", "--keys", filepath.Join(folder, "x", "y")}, "no such file"},
		"no id":       {[]string{"--keys", file}, `--id is missing`},
	} {
		out, _, err := invoke(t, newKeyCommand(), append([]string{"new"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%s: printed %q, error %v; want %q", name, out, err, c.want)
		}
	}
}

func TestBundleGoesFromFilesToEnvoy(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	write := func(name, content string) {
		if err := os.WriteFile(at(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(command *cobra.Command, args ...string) string {
		t.Helper()
		out, _, err := invoke(t, command, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	write("rules.yaml", `version: 1
rules:
- {name: flood, where: edge, by: [address], limit: 50/1s, burst: 200}
- {name: per-key, where: origin, by: [key], limit: 5/1s}
edge: {exempt: [10.0.0.0/8], deny-file: deny.txt, stale-after: 90m, unverified: {limit: 7/1s}}
`)
	write("deny.txt", "192.0.2.0/24 # a test network\n2001:db8::/32\n")
	write("filter.wasm", "\x00asm\x01\x00\x00\x00")
	must(newKeyCommand(), "new", "--id", "a", "--keys", at("keys.yaml"))
	must(newBundleCommand(), "build", "--rules", at("rules.yaml"), "--keys", at("keys.yaml"), "--release", "7", "-o", at("bundle.bin"))
	out := must(newBundleCommand(), "inspect", at("bundle.bin"))
	for _, want := range []string{"release                  7\n", "keys                     1, begin with \"wk_\"", "flood, token-bucket per address", "50 per 1s, burst 200",
		"once the bundle is 1h30m old, 7 per 1s, burst 7 pass unverified", "none: a keys file has no numbered changes", "0 issued, 0 revoked", "1 exempt, 2 denied",
		"origin rules             1, which hints may name\n", "table                    65536 addresses\n", "key filter (kind 4)    44 bytes, 44.00 a key\n", "networks (kind 7) "} {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in:\n%s", want, out)
		}
	}
	if out := must(newBundleCommand(), "verify", at("bundle.bin")); !strings.HasPrefix(out, at("bundle.bin")+" is good: release 7, ") {
		t.Errorf("verify says %q", out)
	}
	must(newEnvoyCommand(), "filter", "--bundle", at("bundle.bin"), "--wasm", at("filter.wasm"), "-o", at("filter.json"))
	if out := must(newEnvoyCommand(), "config", "--filter", at("filter.json")); !strings.Contains(out, at("filter.json")) {
		t.Errorf("the bootstrap does not name the filter's file:\n%s", out)
	}

	for name, c := range map[string]struct {
		command *cobra.Command
		args    []string
		want    string
	}{
		"inspect what is no bundle": {newBundleCommand(), []string{"inspect", at("rules.yaml")}, at("rules.yaml")},
		"no rules":                  {newBundleCommand(), []string{"build", "--rules", at("absent"), "-o", at("x")}, at("absent")},
		"damaged bundle":            {newEnvoyCommand(), []string{"filter", "--bundle", at("keys.yaml"), "--wasm", at("filter.wasm"), "-o", at("x.json")}, at("keys.yaml") + ": bundle: does not begin"},
		"bad address":               {newEnvoyCommand(), []string{"config", "--filter", at("filter.json"), "--edge", "x"}, `edge: "x"`},
	} {
		if _, _, err := invoke(t, c.command, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	for _, name := range []string{"x", "x.json"} {
		if _, err := os.Stat(at(name)); err == nil {
			t.Errorf("%s was written though its source is wrong", name)
		}
	}
}

func TestBundleBuildTellsAMistakeFromAFileThatIsNotThere(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("version: 1\nrules: [{name: a, where: edge, by: [key], limit: 1/1s}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := rules + ".bin"
	for file, want := range map[string]int{rules: 2, rules + ".absent": 1} {
		if _, _, err := invoke(t, newBundleCommand(), "build", "--rules", file, "-o", out); err == nil || exitCode(err) != want || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: exit code %d, %v; want %d", file, exitCode(err), err, want)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a bundle was written")
	}
}

// A deploy script goes by the exit code: what an edge would refuse is told apart from a file that is not there.
func TestVerifyTellsWhyAnEdgeWouldRefuseABundle(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	good, err := bundle.Encode(bundle.Content{Release: 3})
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(good)
	damaged[20]++
	for name, c := range map[string]struct {
		content []byte
		code    int
		want    string
	}{
		"good":    {good, 0, ""},
		"damaged": {damaged, 2, "checksum does not match"},
		"longer":  {append(bytes.Clone(good), 0), 2, "length differs"},
		"empty":   {[]byte{}, 2, "shorter than its head"},
		"other":   {bytes.Repeat([]byte("no bundle "), 9), 2, "does not begin with WEIRBNDL"},
		"absent":  {nil, 1, "no such file"},
	} {
		if c.content != nil {
			if err := os.WriteFile(at(name), c.content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, _, err := invoke(t, newBundleCommand(), "verify", at(name))
		if exitCode(err) != c.code || c.code != 0 && (!strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), at(name)) != 1 || out != "") {
			t.Errorf("%s: exit code %d with %q, %v; want %d with %q", name, exitCode(err), out, err, c.code, c.want)
		}
	}
}

func TestErrorsNameAFileOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(file, []byte("word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := invoke(t, newKeyCommand(), "new", "--id", "a", "--keys", file); err == nil || strings.Count(err.Error(), file) != 1 {
		t.Errorf("%v", err)
	}
}

// What a file leaves open is said, although nothing in it is wrong.
func TestRulesThatLimitNobodyAreToldOnStandardError(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	for name, content := range map[string]string{
		"weir.rules.yaml": "version: 1\nrules:\n- {name: a, where: origin, by: [key], limit: 1/1s}\n",
		"weir.yaml":       "upstream: http://127.0.0.1:8090\n",
	} {
		if err := os.WriteFile(at(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, note, err := invoke(t, newCheckConfigCommand(), at("weir.yaml"))
	if err != nil || strings.Contains(out, "warning") || !strings.Contains(note, at("weir.rules.yaml")+":3: rules[0].by: \"key\": needs keys") {
		t.Errorf("check-config: %v\n%s%s", err, out, note)
	}
	_, note, err = invoke(t, newBundleCommand(), "build", "--rules", at("weir.rules.yaml"), "-o", at("bundle.bin"))
	if err != nil || strings.Count(note, "\n") != 1 || !strings.Contains(note, "limits nothing") {
		t.Errorf("bundle build: %v\n%s", err, note)
	}
}
