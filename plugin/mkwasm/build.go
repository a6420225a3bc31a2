package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const sdkModule = "github.com/tetratelabs/proxy-wasm-go-sdk"

// moduleRoot is the folder of the go.mod that dir belongs to.
func moduleRoot(dir string) (string, error) {
	gomod, err := run(dir, nil, "env", "GOMOD")
	if err != nil {
		return "", err
	}
	if filepath.Base(gomod) != "go.mod" {
		return "", fmt.Errorf("no go.mod at or above %s: run inside Weir's checkout", dir)
	}
	return filepath.Dir(gomod), nil
}

// build lays out the SDK under root/build and writes the module of package source to out. A relative out counts from root.
func build(root, source, out, tags string) error {
	if !filepath.IsAbs(out) {
		out = filepath.Join(root, out)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if err := layOutSDK(root); err != nil {
		return err
	}
	modfile, err := layOutModfile(root)
	if err != nil {
		return err
	}
	// Written beside its place and renamed, so that an Envoy never loads half a module.
	part := fmt.Sprintf("%s.%d.part", out, os.Getpid())
	defer os.Remove(part)
	args := []string{"build", "-modfile=" + modfile, "-mod=readonly", "-buildmode=c-shared", "-trimpath",
		"-buildvcs=false", "-ldflags=-s -w -buildid=", "-tags=" + tags, "-o", part, source}
	// Whatever in the caller's environment could change the output is pinned.
	env := []string{"GOOS=wasip1", "GOARCH=wasm", "GOWASM=", "GOEXPERIMENT=", "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0"}
	if _, err := run(root, env, args...); err != nil {
		return err
	}
	return os.Rename(part, out)
}

// layOutModfile writes build/plugin.mod with its sum: go.mod, with the SDK replaced by the patched copy.
func layOutModfile(root string) (string, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return "", err
	}
	mod = append(mod, "\nreplace "+sdkModule+" => ./build/sdk\n"...)
	if err := writeIfChanged(filepath.Join(root, "build/plugin.sum"), sum); err != nil {
		return "", err
	}
	modfile := filepath.Join(root, "build/plugin.mod")
	return modfile, writeIfChanged(modfile, mod)
}

// writeIfChanged leaves a file that is right alone, so that two builds at a time do not pull files from under each
// other, and replaces others by rename.
func writeIfChanged(path string, content []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	part := fmt.Sprintf("%s.%d.part", path, os.Getpid())
	if err := os.WriteFile(part, content, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// run runs the go command in dir and returns what it prints, trimmed.
func run(dir string, env []string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}
