// Package stand starts the real parts of Weir for tests and ends them again.
package stand

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Part is something that a test needs to be there before it starts: a tool or a built artefact.
type Part string

// The parts.
const (
	Envoy     Part = "envoy"
	Valkey    Part = "valkey-server"
	Weir      Part = "weir"
	Wasm      Part = "weir-edge.wasm"
	FaultWasm Part = "weir-edge-fault.wasm"
	EmptyWasm Part = "empty.wasm"
	// Engine is a container engine on this machine that the docker client reaches, Compose a client of it that reads
	// compose files. Neither is a file.
	Engine  Part = "container engine"
	Compose Part = "docker compose"
	// Images, as an engine loads them.
	WeirImage   Part = "image weir"
	EdgeImage   Part = "image weir-envoy"
	ValkeyImage Part = "image weir-valkey"
)

// places tells for each part which environment variable names it, where it lies otherwise, and how to get it.
var places = map[Part]struct{ env, path, get string }{
	Envoy:     {"WEIR_ENVOY", ".tools/bin/envoy", "make tools"},
	Valkey:    {"WEIR_VALKEY", ".tools/bin/valkey-server", "make tools"},
	Weir:      {"", "build/weir", "make build"},
	Wasm:      {"", "build/weir-edge.wasm", "make build"},
	FaultWasm: {"", "build/weir-edge-fault.wasm", "make build"},
	EmptyWasm: {"", "build/empty.wasm", "make build/empty.wasm"},

	WeirImage:   {"", "build/images/weir.tar", "make images"},
	EdgeImage:   {"", "build/images/weir-envoy.tar", "make images"},
	ValkeyImage: {"", "build/images/weir-valkey.tar", "make images"},
}

// Find returns the path of a part, of a client for what is no file, or an error that says what to run.
func Find(p Part) (string, error) {
	switch p {
	case Engine:
		return findEngine()
	case Compose:
		return findCompose()
	}
	place, known := places[p]
	if !known {
		return "", fmt.Errorf("%s is no part of Weir's tests", p)
	}
	if own := os.Getenv(place.env); place.env != "" && own != "" {
		path, err := exec.LookPath(own)
		if err != nil {
			return "", fmt.Errorf("%s is missing: %s=%s is no program", p, place.env, own)
		}
		return filepath.Abs(path)
	}
	path := filepath.Join(Root(), place.path)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is missing: %s is not there, run: %s", p, place.path, place.get)
	}
	return path, nil
}

// Missing lists what is wrong with the parts, nothing if all are there.
func Missing(parts ...Part) []string {
	var faults []string
	for _, p := range parts {
		if _, err := Find(p); err != nil {
			faults = append(faults, err.Error())
		}
	}
	return faults
}

// InCI tells whether a missing part is a fault: under CI=true it is, on a laptop the test says so and skips.
func InCI() bool { return os.Getenv("CI") == "true" }

// Need ends the test unless all parts are there: with a failure under CI=true, else with a skip that says what to run.
func Need(t testing.TB, parts ...Part) {
	t.Helper()
	faults := Missing(parts...)
	if len(faults) == 0 {
		return
	}
	text := strings.Join(faults, "\n")
	if InCI() {
		t.Fatal(text)
	}
	fmt.Fprintf(os.Stderr, "\nNOT TESTED: %s: %s\n\n", t.Name(), text)
	t.Skip(text)
}

// Path is [Find] for a part that [Need] has found.
func Path(t testing.TB, p Part) string {
	t.Helper()
	path, err := Find(p)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Root is the repository's folder.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}
