package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/weirproject/weir/shared/limit/limittest"
)

const vectors = "../../testdata"

// run plays the vectors of folder on the Wasm build of package limit, and returns what it says.
func run(t *testing.T, folder string) (stdout, stderr string, err error) {
	t.Helper()
	module := filepath.Join(t.TempDir(), "vectors.wasm")
	build := exec.Command("go", "build", "-o", module, ".")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build for wasip1: %v\n%s", err, out)
	}
	code, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	host := wazero.NewRuntime(ctx)
	defer host.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, host)
	var out, errOut bytes.Buffer
	config := wazero.NewModuleConfig().WithArgs("wasmvectors", "/").WithStdout(&out).WithStderr(&errOut).
		WithFSConfig(wazero.NewFSConfig().WithReadOnlyDirMount(folder, "/"))
	_, err = host.InstantiateWithConfig(ctx, code, config) // an exit with 0 is no error
	return out.String(), errOut.String(), err
}

func TestVectorsHoldOnWasm(t *testing.T) {
	files, err := limittest.ReadAll(os.DirFS(vectors))
	if err != nil {
		t.Fatal(err)
	}
	cases, calls, _ := limittest.Run(files)
	stdout, stderr, err := run(t, vectors)
	if err != nil || stderr != "" {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if want := fmt.Sprintf("vectors: wasm %d cases, %d calls\n", cases, calls); stdout != want || calls == 0 {
		t.Errorf("it says %q, want %q", stdout, want)
	}
	t.Log(strings.TrimSpace(stdout))
}

// The test above must be able to fail.
func TestAWrongVectorFailsOnWasm(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(vectors)); err != nil {
		t.Fatal(err)
	}
	wrong := "case wrong\nalgorithm gcra\nlimit 1/1s\n0s cost 1 -> allow remaining 1 retry 0s reset 1s\n"
	if err := os.WriteFile(filepath.Join(folder, "wrong.txt"), []byte(wrong), 0o644); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := run(t, folder)
	var exit *sys.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(stderr, "wrong.txt:4") {
		t.Errorf("%v\n%s", err, stderr)
	}
}
