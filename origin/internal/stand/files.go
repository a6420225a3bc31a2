package stand

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"text/template"
	"time"

	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/envoyconfig"
	"github.com/weirproject/weir/origin/internal/issuer"
	"github.com/weirproject/weir/origin/internal/keys"
)

var (
	//go:embed defaults/weir.rules.yaml
	defaultRules []byte
	//go:embed defaults/weir.yaml.tmpl
	originConfigText string
	originConfig     = template.Must(template.New("weir.yaml").Option("missingkey=error").Parse(originConfigText))
)

// DemoLimit says what the rules let the demo key do.
const DemoLimit = "20 calls in 10 s"

// DemoKeyID names the demo key in logs, metrics and `weir counters`.
const DemoKeyID = "demo"

// DemoUser is whose token build/run.json holds, and UserLimit what the rules let that user do.
var DemoUser = issuer.Who{User: "alice", Tenant: "acme", Tier: "paid"}

const UserLimit = "10 calls in 10 s"

// folder holds the files of one stand: configuration, keys, logs.
type folder struct {
	path string
	lock *os.File
}

// openFolder makes the folder, empties it of what an earlier run left, and keeps a second stand out of it.
func openFolder(path string) (folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return folder{}, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return folder{}, err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return folder{}, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return folder{}, fmt.Errorf("another `weir run` is using %s: end it first", path)
	}
	entries, err := os.ReadDir(path)
	for _, entry := range entries {
		if err == nil {
			err = os.RemoveAll(filepath.Join(path, entry.Name()))
		}
	}
	if err != nil {
		lock.Close()
		return folder{}, err
	}
	return folder{path, lock}, nil
}

// close lets another stand in.
func (f folder) close() { f.lock.Close() }

func (f folder) file(name string) string { return filepath.Join(f.path, name) }

// writeOrigin writes what `weir serve` reads, returning the text of the demo key.
func (f folder) writeOrigin(a addresses) (demoKey string, err error) {
	var text bytes.Buffer
	if err := originConfig.Execute(&text, struct {
		addresses
		Audience string
	}{a, issuer.Audience}); err != nil {
		return "", fmt.Errorf("render weir.yaml: %w", err)
	}
	var secret [config.MinSecret]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return "", fmt.Errorf("make a secret: %w", err)
	}
	for _, w := range []struct {
		name    string
		content []byte
	}{{"weir.yaml", text.Bytes()}, {"weir.rules.yaml", defaultRules}, {"weir.secret", secret[:]}} {
		if err := os.WriteFile(f.file(w.name), w.content, 0o600); err != nil {
			return "", err
		}
	}
	err = keys.Update(f.file("weir.keys.yaml"), rand.Reader, func(file *keys.File) (err error) {
		demoKey, err = file.Issue(rand.Reader, keys.Key{ID: DemoKeyID}, time.Now())
		return err
	})
	return demoKey, err
}

// writeEnvoy writes what Envoy reads: its bootstrap, and the filter with its bundle.
func (f folder) writeEnvoy(a addresses, wasm string) error {
	bundle, err := envoyconfig.BuildBundle(f.file("weir.rules.yaml"), f.file("weir.keys.yaml"), 0, time.Now())
	if err != nil {
		return err
	}
	filter, err := envoyconfig.Filter{Bundle: bundle, Wasm: wasm}.Render()
	if err != nil {
		return err
	}
	if err := envoyconfig.WriteDiscovery(f.file("filter.json"), filter); err != nil {
		return err
	}
	bootstrap, err := envoyconfig.Edge{
		Listen:    a.Edge,
		Origin:    a.Gateway,
		Admin:     a.EnvoyAdmin,
		Filter:    f.file("filter.json"),
		AccessLog: f.file("access.log"),
	}.Render()
	if err != nil {
		return err
	}
	return os.WriteFile(f.file("envoy.yaml"), bootstrap, 0o600)
}
