package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/stand"
)

const (
	// composed is how many containers the compose file makes, those that end before Envoy starts among them.
	composed = 7
	// healthyWithin bounds how long a system of containers may take to be healthy.
	healthyWithin = 180 * time.Second
)

// compose runs the compose file as one project.
type compose struct {
	t       *testing.T
	project string
	command []string
	env     []string
}

func (c compose) try(args ...string) (string, error) {
	cmd := exec.Command(c.command[0], append(slices.Clone(c.command[1:]), args...)...)
	cmd.Env = append(os.Environ(), c.env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("compose %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return string(out), nil
}

func (c compose) run(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// described is what the engine says of a container.
type described struct {
	Name  string
	State struct {
		Status   string
		ExitCode int
		Health   *struct{ Status string }
	}
	Config     struct{ User string }
	HostConfig struct {
		Privileged     bool
		ReadonlyRootfs bool
		CapAdd         []string
		CapDrop        []string
		SecurityOpt    []string
		NetworkMode    string
		PortBindings   map[string][]struct{ HostIp string }
	}
}

func (c compose) containers() []described {
	c.t.Helper()
	// From the engine itself: compose takes seconds to start.
	ids, err := exec.Command("docker", "ps", "--all", "--quiet", "--filter", "label=com.docker.compose.project="+c.project).Output()
	if err != nil {
		c.t.Fatalf("docker ps: %v", err)
	}
	out, err := exec.Command("docker", append([]string{"inspect"}, strings.Fields(string(ids))...)...).Output()
	if err != nil {
		c.t.Fatalf("docker inspect: %v", err)
	}
	var found []described
	if err := json.Unmarshal(out, &found); err != nil {
		c.t.Fatal(err)
	}
	return found
}

// until asks until answer is nil: an engine has no event for what a program inside is ready for.
func until(t *testing.T, what string, answer func() error) {
	t.Helper()
	deadline := time.Now().Add(healthyWithin)
	for {
		err := answer()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, healthyWithin, err)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// TestContainersComposed runs envoy/compose.yaml as its readers do: what it starts is healthy and holds no right that it
// does not need, forged keys stop at the edge, and a new key is pushed without a restart.
func TestContainersComposed(t *testing.T) {
	stand.Need(t, stand.Engine, stand.Compose, stand.WeirImage, stand.EdgeImage, stand.ValkeyImage, stand.Weir)
	folder := t.TempDir()
	if out, err := exec.Command(filepath.Join(stand.Root(), "envoy/compose/prepare"), folder).CombinedOutput(); err != nil {
		t.Fatalf("prepare: %v\n%s", err, out)
	}
	key := read(t, filepath.Join(folder, "key"))
	for _, image := range []stand.Part{stand.WeirImage, stand.EdgeImage, stand.ValkeyImage} {
		stand.Load(t, image)
	}
	port := stand.FreePort(t)
	files := filepath.Join(folder, "files")
	project := fmt.Sprintf("weir-test-%d", os.Getpid())
	c := compose{
		t: t, project: project,
		command: append(stand.ComposeCommand(t), "-p", project, "-f", filepath.Join(stand.Root(), "envoy/compose.yaml")),
		env: []string{
			"WEIR_FILES=" + files, fmt.Sprintf("WEIR_PORT=%d", port),
			fmt.Sprintf("WEIR_EDGES=10.254.%d.0/29", os.Getpid()%250), // beside a system that somebody runs from the file
		},
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := c.try("logs", "--no-color", "--tail", "20")
			t.Logf("the containers' logs end:\n%s", logs)
		}
		if _, err := c.try("down", "--volumes", "--timeout", "5"); err != nil {
			t.Error(err)
		}
	})
	c.run("up", "--detach")
	until(t, "all containers are healthy", func() error {
		for _, d := range c.containers() {
			switch h := d.State.Health; {
			case h != nil && h.Status != "healthy", h == nil && (d.State.Status != "exited" || d.State.ExitCode != 0):
				return fmt.Errorf("%s is %+v, health %+v", d.Name, d.State, h)
			}
		}
		return nil
	})
	c.checkRights(port)

	url := fmt.Sprintf("http://127.0.0.1:%d/hello", port)
	client := stand.NewClient(t, "")
	if r := client.Get(t, url, "X-Api-Key: "+key); r.Status != http.StatusOK || r.Header.Get("Ratelimit") == "" {
		t.Errorf("a known key: %d %v %s, want 200 with what is left", r.Status, r.Header, r.Body)
	}
	other := stand.NewKeyring(t)
	for range 5 {
		if r := client.Get(t, url, "X-Api-Key: "+other.Forge(t)); r.Status != http.StatusUnauthorized {
			t.Errorf("a forged key: %d %s, want 401", r.Status, r.Body)
		}
	}
	if calls := c.run("exec", "-T", "api", "weir", "probe", "http://127.0.0.1:8090/demo/calls"); strings.TrimSpace(calls) != `{"":1}` {
		t.Errorf("calls that reached the API: %s, want one", calls)
	}
	if keys := c.run("exec", "-T", "store", "valkey-cli", "dbsize"); strings.TrimSpace(keys) == "0" {
		t.Error("no counter in the store")
	}

	issue := exec.Command(stand.Path(t, stand.Weir), "key", "new", "--id", "second", "--keys", filepath.Join(files, "weir.keys.yaml"))
	second, err := issue.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(files, "weir.keys.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	newKey := "X-Api-Key: " + strings.TrimSpace(string(second))
	if r := client.Get(t, url, newKey); r.Status != http.StatusUnauthorized {
		t.Errorf("a key before its push: %d, want 401", r.Status)
	}
	c.run("run", "--rm", "bundle")
	c.run("run", "--rm", "--no-deps", "filter")
	until(t, "the new key is known", func() error {
		if r := client.Get(t, url, newKey); r.Status != http.StatusOK {
			return fmt.Errorf("status %d", r.Status)
		}
		return nil
	})
}

// checkRights holds every container against what the images need: nothing.
func (c compose) checkRights(port int) {
	c.t.Helper()
	found := c.containers()
	if len(found) != composed {
		c.t.Errorf("%d containers, want %d", len(found), composed)
	}
	published := 0
	for _, d := range found {
		h := d.HostConfig
		if h.Privileged || !h.ReadonlyRootfs || len(h.CapAdd) > 0 || !slices.Contains(h.CapDrop, "ALL") ||
			!slices.Contains(h.SecurityOpt, "no-new-privileges:true") || h.NetworkMode == "host" || d.Config.User != "65532:65532" {
			c.t.Errorf("%s has rights that it does not need: user %s, %+v", d.Name, d.Config.User, h)
		}
		for _, bindings := range h.PortBindings {
			for _, b := range bindings {
				published++
				if b.HostIp != "127.0.0.1" {
					c.t.Errorf("%s publishes a port on %q, want loopback alone", d.Name, b.HostIp)
				}
			}
		}
	}
	if published != 1 {
		c.t.Errorf("%d ports are published, want the edge's alone, %d", published, port)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
