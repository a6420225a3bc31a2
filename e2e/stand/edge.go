package stand

import (
	"encoding/base64"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// EdgeSettings is what a test chooses of an Envoy.
type EdgeSettings struct {
	Origin  string // host:port behind it
	Rules   string // text of weir.rules.yaml
	Keys    string // text of weir.keys.yaml, empty: keys are not looked at
	Workers int    // 2 if zero
	Hops    int    // trusted proxies in front of it
	Module  Part   // [Wasm] if empty
	// Certificate makes the listener speak TLS.
	Certificate *Certificate
	// Flags go to "weir envoy config" beside those that every test needs.
	Flags []string
	// VM is vm_config.configuration: the faults of the fault build.
	VM string
	// Bootstrap changes the rendered bootstrap; nil leaves it.
	Bootstrap func(text string) string
	// Broken starts Envoy without waiting for its listener.
	Broken bool
	// Contained runs it from its image, on the host's network, with that image's own module and without a certificate. Its
	// access log goes to its log then.
	Contained bool
}

// Edge is a running Envoy with Weir's filter.
type Edge struct {
	*Process
	URL    string // of the listener
	Admin  string // URL of Envoy's admin
	folder string
	weir   string
	module string
	vm     string
	inside bool // a container
}

// StartEdge renders the configuration as an operator would, with the weir binary, and waits until Envoy is ready.
func StartEdge(t testing.TB, s EdgeSettings) *Edge {
	t.Helper()
	if s.Workers == 0 {
		s.Workers = 2
	}
	if s.Module == "" {
		s.Module = Wasm
	}
	listen, admin := Loopback(t), Loopback(t)
	e := &Edge{
		URL: "http://" + listen, Admin: "http://" + admin, folder: t.TempDir(),
		weir: Path(t, Weir), vm: s.VM, inside: s.Contained,
	}
	accessLog := e.file("access.log")
	if s.Contained {
		if s.Certificate != nil || s.Module != Wasm {
			t.Fatal("a contained edge has its image's module and no certificate")
		}
		e.module, accessLog = "/opt/weir/weir-edge.wasm", "/dev/stdout"
		open(t, e.folder)
	} else {
		e.module = Path(t, s.Module)
	}
	e.Push(t, BuildBundle(t, s.Rules, s.Keys, 1))
	bootstrap := filepath.Join(e.folder, "envoy.yaml")
	if c := s.Certificate; c != nil {
		e.URL = "https://" + listen
		e.run(t, nil, "envoy", "certificate", "--cert", filepath.Join(c.Folder, certificateFile), "--key", filepath.Join(c.Folder, keyFile),
			"-o", e.file("certificate.json"))
		s.Flags = append([]string{"--certificate", e.file("certificate.json")}, s.Flags...)
	}
	e.run(t, nil, append([]string{"envoy", "config", "--edge", listen, "--origin", s.Origin, "--admin", admin,
		"--hops", strconv.Itoa(s.Hops), "--filter", e.file("filter.json"), "--access-log", accessLog, "-o", bootstrap}, s.Flags...)...)
	if s.Bootstrap != nil {
		text, err := os.ReadFile(bootstrap)
		if err != nil {
			t.Fatal(err)
		}
		changed := s.Bootstrap(string(text))
		if changed == string(text) {
			t.Fatal("the change to the bootstrap found nothing to change")
		}
		writeFile(t, bootstrap, []byte(changed))
	}
	args := []string{
		"-c", bootstrap, "--concurrency", strconv.Itoa(s.Workers), "--log-level", "warning",
		"--component-log-level", "wasm:info,config:info", "--file-flush-interval-msec", "100",
	}
	if s.Contained {
		e.Process = StartContainer(t, e.folder, Container{
			Name: "envoy", Image: EdgeImage, Mounts: []string{e.folder + ":" + e.folder}, Args: append(args, "--disable-hot-restart"),
		})
	} else {
		e.Process = Start(t, e.folder, "envoy", Path(t, Envoy), append(args, "--use-dynamic-base-id"), nil)
	}
	if !s.Broken {
		e.Until(t, "is ready", func() error {
			if err := status(e.Admin+"/ready", http.StatusOK); err != nil {
				return err
			}
			return nil
		})
	}
	return e
}

func (e *Edge) file(name string) string { return filepath.Join(e.folder, name) }

// run runs the weir binary: in a container, where it sees the module and the edge's folder at the paths that Envoy sees,
// and what else is mounted; or right here.
func (e *Edge) run(t testing.TB, mounts []string, args ...string) {
	t.Helper()
	command := exec.Command(e.weir, args...)
	if e.inside {
		command = Container{
			Name: "render", Image: EdgeImage, Program: "/usr/local/bin/weir",
			Mounts: append(mounts, e.folder+":"+e.folder), Args: args,
		}.command(t)
	}
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("weir %s: %v\n%s", strings.Join(args[:2], " "), err, out)
	}
}

// BuildBundle compiles rules and keys with the weir binary and returns the bundle's path. Without keys, edges do not
// look at any.
func BuildBundle(t testing.TB, rules, keys string, release int) string {
	t.Helper()
	folder := t.TempDir()
	out := filepath.Join(folder, "bundle")
	writeFile(t, filepath.Join(folder, "weir.rules.yaml"), []byte(rules))
	args := []string{"bundle", "build", "--rules", filepath.Join(folder, "weir.rules.yaml"),
		"--release", strconv.Itoa(release), "-o", out}
	if keys != "" {
		writeFile(t, filepath.Join(folder, "weir.keys.yaml"), []byte(keys))
		args = append(args, "--keys", filepath.Join(folder, "weir.keys.yaml"))
	}
	if text, err := exec.Command(Path(t, Weir), args...).CombinedOutput(); err != nil {
		t.Fatalf("weir bundle build: %v\n%s", err, text)
	}
	return out
}

// Push puts a bundle's file into the filter's resource, renamed into place.
func (e *Edge) Push(t testing.TB, bundle string) {
	t.Helper()
	args := []string{"envoy", "filter", "--bundle", bundle, "--wasm", e.module, "-o", e.file("filter.json")}
	if e.vm != "" {
		args = append(args, "--vm-config", e.vm)
	}
	folder := filepath.Dir(bundle)
	e.run(t, []string{folder + ":" + folder + ":ro"}, args...)
}

// bundleValue is where the filter's resource holds the bundle.
var bundleValue = regexp.MustCompile(`"value": "[A-Za-z0-9+/=]{40,}"`)

// PushBytes puts any bytes in the bundle's place in the filter's resource.
func (e *Edge) PushBytes(t testing.TB, bundle []byte) {
	t.Helper()
	e.Replace(t, func(text string) string {
		if n := len(bundleValue.FindAllString(text, -1)); n != 1 {
			t.Fatalf("the filter's resource holds %d bundles, want 1", n)
		}
		return bundleValue.ReplaceAllString(text, `"value": "`+base64.StdEncoding.EncodeToString(bundle)+`"`)
	})
}

// Replace edits the filter's resource as text and renames the result into place: for what weir itself refuses to write.
func (e *Edge) Replace(t testing.TB, edit func(text string) string) {
	t.Helper()
	text, err := os.ReadFile(e.file("filter.json"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, e.file("filter.json"), []byte(edit(string(text))))
}

// Access is the access log so far.
func (e *Edge) Access(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(e.file("access.log"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

// Stat is one of Envoy's counters or gauges by its full name; 0 if Envoy has none of that name.
func (e *Edge) Stat(t testing.TB, c *Client, name string) int {
	t.Helper()
	page := c.Get(t, e.Admin+"/stats?usedonly&filter=^"+name+"$")
	for line := range strings.Lines(page.Body) {
		label, value, found := strings.Cut(strings.TrimSpace(line), ": ")
		if found && label == name {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatalf("stat %s: %v", line, err)
			}
			return n
		}
	}
	return 0
}

// Listener is the prefix of the listener's stats.
func (e *Edge) Listener() string {
	_, address, _ := strings.Cut(e.URL, "://")
	return "listener." + strings.ReplaceAll(address, ":", "_")
}

// Updates counts the filter resources that Envoy has taken and those that it has refused.
func (e *Edge) Updates(t testing.TB, c *Client) (taken, refused int) {
	t.Helper()
	const prefix = "extension_config_discovery.http_filter.weir.update_"
	return e.Stat(t, c, prefix+"success"), e.Stat(t, c, prefix+"rejected")
}
