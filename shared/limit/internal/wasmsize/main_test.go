package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// What package limit may add to a module, in bytes. A function that is not called is not linked: a module that decides by
// all seven algorithms holds less than one with their peeks, refunds and encodings. Go's Wasm has about 1 kB for each
// function of this size, a third of it tables of the runtime.
const (
	decideBound = 60_000
	edgeBound   = 60_000 // token bucket and GCRA, with everything that they have
	allBound    = 100_000
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
	empty := size(t)
	for _, part := range []struct {
		tag   string
		bound int64
	}{{"decide", decideBound}, {"edge", edgeBound}, {"all", allBound}} {
		added := size(t, "-tags="+part.tag) - empty
		t.Logf("wasm: %s: package limit adds %d bytes to %d", part.tag, added, empty)
		if added < 1000 || added >= part.bound {
			t.Errorf("%s adds %d bytes, want some and less than %d", part.tag, added, part.bound)
		}
	}
}
