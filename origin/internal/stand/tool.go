package stand

import (
	"fmt"
	"os"
	"path/filepath"
)

// Tool is a program of somebody else's that a stand needs.
type Tool struct {
	name string // as `make tools` links it under .tools/bin
	env  string // variable that brings another binary
}

// The tools, which `make tools` fetches.
var (
	Envoy  = Tool{"envoy", "WEIR_ENVOY"}
	Valkey = Tool{"valkey-server", "WEIR_VALKEY"}
)

// Find is the path of the tool: what its variable names, else the pinned one under root, the checkout's folder.
func (t Tool) Find(root string) (string, error) {
	if own := os.Getenv(t.env); own != "" {
		if !isProgram(own) {
			return "", fmt.Errorf("%s=%s is not an executable file", t.env, own)
		}
		return filepath.Abs(own)
	}
	pinned := filepath.Join(root, ".tools", "bin", t.name)
	if !isProgram(pinned) {
		return "", fmt.Errorf("%s is missing: run `make tools`, or set %s to a binary of your own", t.name, t.env)
	}
	return filepath.Abs(pinned)
}

func isProgram(path string) bool {
	stat, err := os.Stat(path)
	return err == nil && stat.Mode().IsRegular() && stat.Mode().Perm()&0o111 != 0
}
