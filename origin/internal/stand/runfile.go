package stand

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Run tells scripts where a running system is. Parts that do not run are empty, and left out of the file.
type Run struct {
	Edge       string `json:"edge,omitempty"`
	Origin     string `json:"origin"`
	Admin      string `json:"admin"`
	EnvoyAdmin string `json:"envoy_admin,omitempty"`
	API        string `json:"api"`
	Valkey     string `json:"valkey,omitempty"`
	Issuer     string `json:"issuer"`
	DemoKey    string `json:"demo_key"`
	UserToken  string `json:"user_token"` // of the demo user, for a day; the issuer makes more
}

// Door is where clients go: the edge, or the origin when it runs alone.
func (r Run) Door() string {
	if r.Edge != "" {
		return r.Edge
	}
	return r.Origin
}

// ReadRun reads the file that a running system leaves. When there is none, the error says what to do.
func ReadRun(path string) (Run, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Run{}, fmt.Errorf("nothing runs here: %s is not there; start `make run` in another terminal", path)
	}
	if err != nil {
		return Run{}, err
	}
	var r Run
	if err := json.Unmarshal(content, &r); err != nil {
		return Run{}, fmt.Errorf("read %s: %w", path, err)
	}
	if r.Origin == "" || r.Admin == "" || r.API == "" || r.Issuer == "" || r.DemoKey == "" || r.UserToken == "" {
		return Run{}, fmt.Errorf("read %s: origin, admin, api, issuer, demo_key or user_token is missing", path)
	}
	return r, nil
}

// write puts the file in place by rename. It holds a key and a token, so that only its owner reads it.
func (r Run) write(path string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	part := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
	if err := os.WriteFile(part, append(content, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}
