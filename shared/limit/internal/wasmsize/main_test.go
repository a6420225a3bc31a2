package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// What package limit may add to a module, in bytes. The edge runs token buckets and GCRA; a function that is not called is
// not linked. Go's Wasm has about 1 kB for each function of this size, a third of it tables of the runtime.
const (
	edgeBound = 60_000
	allBound  = 100_000
)

func size(t *testing.T, flags ...string) int64 {
	t.Helper()
	module := filepath.Join(t.TempDir(), "module.wasm")
	build := exec.Command("go", append(append([]string{"build", "-trimpath", "-ldflags=-s -w", "-buildmode=c-shared", "-o", module}, flags...), ".")...)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build for wasip1: %v\n%s", err, out)
	}
	at, err := os.Stat(module)
	if err != nil {
		t.Fatal(err)
	}
	return at.Size()
}

func TestTheAlgorithmsAddLittleToAModule(t *testing.T) {
	// go test's cache follows what a test reads, not what its compiler does.
	for _, pattern := range []string{"*.go", "../../*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range names {
			if _, err := os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	empty, edge, all := size(t), size(t, "-tags=edge"), size(t, "-tags=all")
	t.Logf("wasm: package limit adds %d bytes with all that the edge can use of it, %d with everything, to %d", edge-empty, all-empty, empty)
	if edge-empty < 1000 || edge-empty >= edgeBound {
		t.Errorf("what the edge uses adds %d bytes, want some and less than %d", edge-empty, edgeBound)
	}
	if all < edge || all-empty >= allBound {
		t.Errorf("everything adds %d bytes, want more than what the edge uses and less than %d", all-empty, allBound)
	}
}
