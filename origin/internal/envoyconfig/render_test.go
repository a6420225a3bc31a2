package envoyconfig_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/envoyconfig"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

func edge() envoyconfig.Edge {
	return envoyconfig.Edge{Listen: "127.0.0.1:8080", Origin: "127.0.0.1:8081", Admin: "127.0.0.1:9901", Filter: "/etc/weir/filter.json"}
}

func TestEveryWrongFieldIsNamedWithWhatIsAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*envoyconfig.Edge)
		want  []string
	}{
		"listener without a host": {func(e *envoyconfig.Edge) { e.Listen = ":8080" }, []string{`edge: ":8080"`, "host:port"}},
		"listener by name":        {func(e *envoyconfig.Edge) { e.Listen = "localhost:8080" }, []string{`edge: "localhost:8080"`, "IP address"}},
		"port 0":                  {func(e *envoyconfig.Edge) { e.Listen = "127.0.0.1:0" }, []string{"edge", "1 to 65535"}},
		"port too large":          {func(e *envoyconfig.Edge) { e.Origin = "127.0.0.1:65536" }, []string{"origin", "1 to 65535"}},
		"origin as a URL":         {func(e *envoyconfig.Edge) { e.Origin = "http://127.0.0.1:80" }, []string{`origin: "http`, "host:port"}},
		"admin open to everybody": {func(e *envoyconfig.Edge) { e.Admin = "0.0.0.0:9901" }, []string{`admin: "0.0.0.0:9901"`, "loopback"}},
		"filter of no format":     {func(e *envoyconfig.Edge) { e.Filter = "filter" }, []string{`filter: "filter"`, ".json"}},
		"hops below 0":            {func(e *envoyconfig.Edge) { e.Hops = -1 }, []string{`hops: "-1"`, "0 to 16"}},
		"control as a URL":        {func(e *envoyconfig.Edge) { e.Control = "http://c:80" }, []string{`control: "http`, "host:port"}},
		"health by name":          {func(e *envoyconfig.Edge) { e.Health = "localhost:80" }, []string{`health: "localhost`, "IP address"}},
		"certificate itself":      {func(e *envoyconfig.Edge) { e.Certificate = "cert.pem" }, []string{`certificate: "cert.pem"`, ".json"}},
		"connections below 1":     {func(e *envoyconfig.Edge) { e.MaxConnections = -1 }, []string{`max-connections: "-1"`, "1 to 1000000"}},
		"heap too small":          {func(e *envoyconfig.Edge) { e.MaxHeap = 1 << 20 }, []string{`max-heap: "1MiB"`, "128MiB to 1024GiB"}},
		"request time too short":  {func(e *envoyconfig.Edge) { e.RequestTimeout = time.Millisecond }, []string{`request-timeout: "1ms"`, "1s to 24h"}},
		"idle time too long":      {func(e *envoyconfig.Edge) { e.StreamIdle = 25 * time.Hour }, []string{`stream-idle: "25h"`, "1s to 24h"}},
		"admin at the edge's":     {func(e *envoyconfig.Edge) { e.Admin = e.Listen }, []string{`admin: "127.0.0.1:8080": want another port`, "edge, 127.0.0.1:8080"}},
		"edge at every address":   {func(e *envoyconfig.Edge) { e.Listen = "0.0.0.0:9901" }, []string{`admin: "127.0.0.1:9901": want another port`, "edge, 0.0.0.0:9901"}},
		"edge of both families":   {func(e *envoyconfig.Edge) { e.Listen = "[::]:9901" }, []string{`admin: "127.0.0.1:9901": want another port`, "edge, [::]:9901"}},
		"health at the others'": {func(e *envoyconfig.Edge) { e.Health, e.Listen = "0.0.0.0:9901", "127.0.0.9:9901" },
			[]string{"health: \"0.0.0.0:9901\": want another port than that of edge", "want another port than that of admin"}},
		"all at once": {func(e *envoyconfig.Edge) { *e = envoyconfig.Edge{Hops: 17} },
			[]string{"edge:", "origin:", "admin:", "filter:", "hops:"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := edge()
			c.spoil(&e)
			out, err := e.Render()
			if err == nil {
				t.Fatalf("rendered:\n%s", out)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not tell %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestListenersOfTwoAddressesMayShareAPort(t *testing.T) {
	for _, c := range []envoyconfig.Edge{
		{Listen: "192.0.2.1:8080", Health: "192.0.2.2:8080"},
		{Listen: "[2001:db8::1]:8080", Health: "0.0.0.0:8080"},
		{Listen: "[::]:8080", Health: "0.0.0.0:8086"},
	} {
		e := edge()
		e.Listen, e.Health = c.Listen, c.Health
		if _, err := e.Render(); err != nil {
			t.Errorf("edge %s, health %s: %v", c.Listen, c.Health, err)
		}
	}
}

func TestTextFromOutsideStaysOneYAMLString(t *testing.T) {
	e := edge()
	e.Node = "a\": {b: c}\n- d"
	out, err := e.Render()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), `node: {id: "a\": {b: c}\n- d",`) {
		t.Errorf("the node's id broke out of its quotes:\n%s", out[:300])
	}
}

func TestTextThatIsNoUTF8IsRefusedRatherThanChanged(t *testing.T) {
	e := edge()
	e.Filter = "/run/weir/\xff.json"
	if out, err := e.Render(); err == nil || !strings.Contains(err.Error(), `\xff.json": want UTF-8`) {
		t.Errorf("rendered %d bytes, %v", len(out), err)
	}
}

// module writes the eight bytes that begin a Wasm module.
func module(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "filter.wasm")
	if err := os.WriteFile(path, []byte("\x00asm\x01\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func someBundle(t *testing.T, release uint64) []byte {
	t.Helper()
	b, err := bundle.Encode(bundle.Content{Release: release})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// resource is what Envoy's discovery reads, as far as Weir relies on it.
type resource struct {
	VersionInfo string `json:"version_info"`
	Resources   []struct {
		TypedConfig struct {
			Config struct {
				FailurePolicy string `json:"failure_policy"`
				Configuration struct{ Value string }
				VMConfig      struct {
					Code          struct{ Local struct{ Filename string } }
					Configuration *struct{ Value string }
				} `json:"vm_config"`
			}
		} `json:"typed_config"`
	}
}

func render(t *testing.T, f envoyconfig.Filter) resource {
	t.Helper()
	text, err := f.Render()
	if err != nil {
		t.Fatal(err)
	}
	var r resource
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return r
}

func TestFilterCarriesTheBundleUnchanged(t *testing.T) {
	f := envoyconfig.Filter{Bundle: someBundle(t, 7), Wasm: module(t)}
	r := render(t, f)
	config := r.Resources[0].TypedConfig.Config
	if got, err := base64.StdEncoding.DecodeString(config.Configuration.Value); err != nil || string(got) != string(f.Bundle) {
		t.Errorf("bundle came back as %q, %v", got, err)
	}
	if config.FailurePolicy != "FAIL_RELOAD" {
		t.Errorf("failure policy %q would keep a dead filter dead", config.FailurePolicy)
	}
	if config.VMConfig.Configuration != nil {
		t.Errorf("VM configuration %v, want none", config.VMConfig.Configuration)
	}
	f.VMConfig = "trap-on-path=/\"trap\""
	if got := render(t, f).Resources[0].TypedConfig.Config.VMConfig.Configuration; got == nil || got.Value != f.VMConfig {
		t.Errorf("VM configuration came back as %v", got)
	}
}

func TestFilterPathIsAbsoluteSinceEnvoyRunsElsewhere(t *testing.T) {
	path := module(t)
	t.Chdir(filepath.Dir(path))
	r := render(t, envoyconfig.Filter{Bundle: someBundle(t, 1), Wasm: "filter.wasm"})
	if got := r.Resources[0].TypedConfig.Config.VMConfig.Code.Local.Filename; got != path {
		t.Errorf("module %q, want %q", got, path)
	}
}

func TestEveryChangeIsANewVersion(t *testing.T) {
	base := envoyconfig.Filter{Bundle: someBundle(t, 1), Wasm: module(t)}
	seen := map[string]string{render(t, base).VersionInfo: "base"}
	for name, change := range map[string]func(*envoyconfig.Filter){
		"bundle": func(f *envoyconfig.Filter) { f.Bundle = someBundle(t, 2) },
		"module": func(f *envoyconfig.Filter) { f.Wasm = module(t) },
		"VM":     func(f *envoyconfig.Filter) { f.VMConfig = "x" },
	} {
		f := base
		change(&f)
		version := render(t, f).VersionInfo
		if other, taken := seen[version]; taken {
			t.Errorf("another %s has the version of %s", name, other)
		}
		seen[version] = name
	}
	if seen[render(t, base).VersionInfo] != "base" {
		t.Error("the same filter has two versions")
	}
}

func TestWhatEnvoyWouldRefuseIsNotRendered(t *testing.T) {
	damaged := someBundle(t, 1)
	damaged[len(damaged)/2] ^= 1
	text := filepath.Join(t.TempDir(), "text.wasm")
	if err := os.WriteFile(text, []byte("no"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]envoyconfig.Filter{
		"damaged bundle": {Bundle: damaged, Wasm: module(t)},
		"no bundle":      {Wasm: module(t)},
		"no module":      {Bundle: someBundle(t, 1), Wasm: filepath.Join(t.TempDir(), "absent.wasm")},
		"text as module": {Bundle: someBundle(t, 1), Wasm: text},
	} {
		if out, err := f.Render(); err == nil {
			t.Errorf("%s: rendered %d bytes", name, len(out))
		}
	}
}

func TestPushReplacesTheFileWhole(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "filter.json")
	for _, content := range []string{"first", "second"} {
		if err := envoyconfig.WriteDiscovery(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Fatalf("read %q, %v; want %q", got, err, content)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("%d files are left, want the one: %v, %v", len(entries), entries, err)
	}
	if err := envoyconfig.WriteDiscovery(filepath.Join(folder, "filter.pb"), nil); err == nil {
		t.Error("a file whose format Envoy cannot tell was written")
	}
	if err := envoyconfig.WriteFile(filepath.Join(folder, "absent", "filter.json"), nil); err == nil || strings.Contains(err.Error(), ".filter.json-") {
		t.Errorf("a folder that is not there: %v, want an error without the temporary name", err)
	}
}

func TestBundleIsBuiltFromTheFiles(t *testing.T) {
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rules := write("rules.yaml", `version: 1
rules:
- {name: flood, where: edge, by: [address], limit: 5/1s, burst: 9}
- {name: search, where: origin, by: [key], limit: 5/1s, match: {paths: [/search]}, headers: none}
edge: {exempt: [192.0.2.7], deny-file: block.txt, table-entries: 2048, stale-after: 1h, unverified: {limit: 7/1s}}
`)
	write("block.txt", "192.0.2.0/24\n2001:db8::/32\n")
	keys := write("keys.yaml", "version: 1\nprefix: ab_\nhash-key: "+strings.Repeat("0f", 16)+"\nkeys:\n- {id: one, sha256: "+
		strings.Repeat("11", 32)+", edge-hash: 00000000000000ff}\n")

	content, err := envoyconfig.BuildBundle(rules, keys, 3, time.UnixMicro(42))
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Decode(content)
	if err != nil {
		t.Fatal(err)
	}
	if b.Release != 3 || b.Built != 42 || !b.HasRule || b.Rule.Name != "flood" || b.Rule.Anonymous.Burst != 9 {
		t.Errorf("bundle %+v", b)
	}
	if !b.HasGate || b.Gate.KeyHeader != "x-api-key" || b.Gate.Format.Prefix != "ab_" || !b.Gate.Knows(0xff) || b.Gate.Filter.Len() != 1 ||
		b.Gate.Epoch != 0 || b.Gate.Foreign || b.Gate.StaleAfter != limit.Hour || b.Gate.Unverified.Count != 7 {
		t.Errorf("gate %+v", b.Gate)
	}
	if n := b.Networks; n.Find(false, 0xc0000207<<32, 0) != bundle.Exempt || n.Find(false, 0xc0000208<<32, 0) != bundle.Deny ||
		n.Find(true, 0x20010db809<<24, 0) != bundle.Deny || n.Find(false, 0xc00003<<40, 0) != bundle.NoTreatment {
		t.Errorf("networks: %d exempt, %d denied", n.Exempted(), n.Denied())
	}
	if i, ok := b.Origin.Find("search"); !ok || b.Origin.Len() != 1 || b.Origin.Headers(i) != rule.None || b.TableEntries != 2048 ||
		!b.Origin.Covers(i, &rule.Request{Path: "/x/../search"}) || b.Origin.Covers(i, &rule.Request{Path: "/"}) {
		t.Errorf("%d origin rules, search found: %v; table of %d", b.Origin.Len(), ok, b.TableEntries)
	}

	if content, err = envoyconfig.BuildBundle(rules, "", 0, time.UnixMicro(42)); err != nil {
		t.Fatal(err)
	}
	if b, err = bundle.Decode(content); err != nil || b.HasGate {
		t.Errorf("without a keys file the edge looks at keys: %+v, %v", b.Gate, err)
	}

	broken := write("broken.yaml", "version: 1\nrules:\n- {name: flood, where: egde, by: [address], limit: 5/1s}\n")
	if _, err = envoyconfig.BuildBundle(broken, keys, 0, time.UnixMicro(42)); err == nil || !strings.Contains(err.Error(), broken+":3:") {
		t.Errorf("error %v does not name file and line", err)
	}
	brokenKeys := write("word.yaml", "word\n")
	if _, err = envoyconfig.BuildBundle(broken, brokenKeys, 0, time.UnixMicro(42)); err == nil ||
		!strings.Contains(err.Error(), broken+":3:") || strings.Count(err.Error(), brokenKeys+":1:1: ") != 1 {
		t.Errorf("error %v does not tell of both files, each mistake once", err)
	}
	if _, err = envoyconfig.BuildBundle(broken, folder+"/absent", 0, time.UnixMicro(42)); err == nil ||
		!strings.Contains(err.Error(), broken+":3:") || !strings.Contains(err.Error(), "absent") {
		t.Errorf("error %v does not tell of both files", err)
	}
}
