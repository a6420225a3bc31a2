package config_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/certificate/certificatetest"
	"github.com/weirproject/weir/origin/internal/config"
)

var update = flag.Bool("update", false, "write the messages that the broken fixtures give now")

func none(string) (string, bool) { return "", false }

// Each broken/*.yaml has its messages beside it.
func TestABrokenFileTellsEveryFaultWithItsPlace(t *testing.T) {
	files, _ := filepath.Glob("testdata/broken/*.yaml")
	if len(files) == 0 {
		t.Fatal("no broken fixtures found")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := config.Load(file, none)
			if err == nil {
				t.Fatal("loaded")
			}
			got := strings.ReplaceAll(err.Error(), filepath.Dir(file)+string(filepath.Separator), "") + "\n"
			if strings.Contains(got, "hunter2") {
				t.Error("a password stands in a message")
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".want"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%swant:\n%s", got, want)
			}
		})
	}
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAShortFileGetsUsefulDefaults(t *testing.T) {
	file := write(t, "weir.yaml", "upstream: http://127.0.0.1:9000\n")
	c, err := config.Load(file, none)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Roles.Gateway || !c.Roles.Admin || c.Listen.Gateway != "127.0.0.1:8081" || c.Listen.Admin != "127.0.0.1:8084" || c.Store.Valkey != nil ||
		c.Store.Deadline != 10*time.Millisecond || c.Gateway != (config.Gateway{UpstreamTimeout: time.Minute}) || c.TLS != nil || c.Rules != filepath.Join(filepath.Dir(file), "weir.rules.yaml") || c.Keys != "" || c.Upstream.Host != "127.0.0.1:9000" {
		t.Errorf("%+v", c)
	}
	if c.Trust.Believes(netip.MustParseAddr("127.0.0.1")) {
		t.Error("somebody is believed by default")
	}
}

func TestAWholeFileIsReadAsItStands(t *testing.T) {
	file := write(t, "weir.yaml", `
roles: [gateway]
listen: {gateway: "[::]:80"}
upstream: https://api.internal/base
store: {url: "valkey://user:pass%40word@store:7000/3", strategy: function, deadline: 25ms}
trust: {edges: [10.0.0.0/8, "2001:db8::/32", 192.0.2.7]}
rules: r.yaml
keys: /etc/weir/k.yaml
secrets: {counter: [secret]}
`)
	secret := filepath.Join(filepath.Dir(file), "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("s", 31)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file, none)
	if err != nil {
		t.Fatal(err)
	}
	if c.Roles.Admin || c.Store.Valkey.Shown() != "valkey://store:7000/3" || c.Store.Valkey.Strategy != "function" ||
		c.Store.Deadline != 25*time.Millisecond || c.Keys != "/etc/weir/k.yaml" || len(c.Secrets.Counter) != 32 || c.Secrets.Former != nil {
		t.Errorf("%+v %+v", c, c.Store.Valkey)
	}
	if user, password, err := c.Store.Valkey.Credentials(); user != "user" || password != "pass@word" || err != nil {
		t.Errorf("%q, %q, %v", user, password, err)
	}
	for address, want := range map[string]bool{"10.9.9.9": true, "11.0.0.1": false, "2001:db8:1::1": true, "192.0.2.7": true, "192.0.2.8": false} {
		if c.Trust.Believes(netip.MustParseAddr(address)) != want {
			t.Errorf("%s: believed %v", address, !want)
		}
	}
}

func TestTheEnvironmentOverridesTheFile(t *testing.T) {
	file := write(t, "weir.yaml", "upstream: http://127.0.0.1:9000\n")
	env := map[string]string{
		"WEIR_UPSTREAM": "http://127.0.0.1:9001", "WEIR_LISTEN_GATEWAY": "127.0.0.1:0", "WEIR_STORE_DEADLINE": "1s",
		"WEIR_TRUST_EDGES": "10.0.0.0/8, 192.0.2.1", "WEIR_RULES": "here.yaml", "WEIR_ROLES": "gateway",
	}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	c, err := config.Load(file, lookup)
	if err != nil {
		t.Fatal(err)
	}
	if c.Upstream.Port() != "9001" || c.Listen.Gateway != "127.0.0.1:0" || c.Store.Deadline != time.Second || len(c.Trust.Edges) != 2 || c.Rules != "here.yaml" || c.Roles.Admin {
		t.Errorf("%+v", c)
	}
	env["WEIR_STORE_DEADLINE"] = "soon"
	if _, err := config.Load(file, lookup); err == nil || !strings.Contains(err.Error(), "environment WEIR_STORE_DEADLINE") {
		t.Errorf("a wrong variable is told as: %v", err)
	}
}

func TestAShortSecretIsRefused(t *testing.T) {
	file := write(t, "weir.yaml", "upstream: http://127.0.0.1:9000\nstore: {url: valkey://h}\nsecrets: {counter: [s]}\n")
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "s"), []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(file, none); err == nil || !strings.Contains(err.Error(), "at least 32") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
}

func TestAClusterBehindTLSIsRead(t *testing.T) {
	file := write(t, "weir.yaml", `
upstream: http://127.0.0.1:9000
store:
  url: valkeys://h1,h2:7001,[2001:db8::1]:7002
  cluster: true
  strategy: commands
  username: weir
  password-file: password
  tls: {ca: cert.pem, cert: cert.pem, key: key.pem, server-name: valkey.internal}
secrets: {counter: [new, old], switch-at: 2027-01-31T12:00:00+01:00}
`)
	dir := filepath.Dir(file)
	pair := certificatetest.New(t).Issue(t)
	for name, content := range map[string][]byte{"cert.pem": pair.Cert, "key.pem": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"password": "first\n", "new": strings.Repeat("n", 32), "old": strings.Repeat("o", 40)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(file, none)
	if err != nil {
		t.Fatal(err)
	}
	v := c.Store.Valkey
	if v.Shown() != "valkeys://h1:6379,h2:7001,[2001:db8::1]:7002 (cluster)" || !v.Cluster || v.Strategy != "commands" || v.TLS.ServerName != "valkey.internal" || v.TLS.RootCAs == nil {
		t.Errorf("%+v", v)
	}
	if pair, err := v.TLS.GetClientCertificate(nil); err != nil || len(pair.Certificate) != 1 {
		t.Errorf("client certificate: %v", err)
	}
	if string(c.Secrets.Counter) != strings.Repeat("n", 32) || string(c.Secrets.Former) != strings.Repeat("o", 40) || !c.Secrets.SwitchAt.Equal(time.Date(2027, 1, 31, 11, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", c.Secrets)
	}
	for _, want := range []string{"first", "second"} { // a password that changes needs no restart
		if user, password, err := v.Credentials(); user != "weir" || password != want || err != nil {
			t.Errorf("%q, %q, %v; want %q", user, password, err, want)
		}
		if err := os.WriteFile(filepath.Join(dir, "password"), []byte("second"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
