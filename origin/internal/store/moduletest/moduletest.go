// Package moduletest finds the files of the module that a test is in.
package moduletest

import (
	"os"
	"path/filepath"
	"testing"
)

// Root is the folder of go.mod, above the test's package.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	t.Fatalf("no go.mod above the test's folder: %v", err)
	return ""
}
