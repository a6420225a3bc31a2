package main

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// moduleUnderTest is the module that WEIR_WASM names (make test sets it after make build), else a fresh build.
func moduleUnderTest(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("WEIR_WASM"); path != "" {
		if !filepath.IsAbs(path) {
			path = filepath.Join(rootOf(t), path)
		}
		return path
	}
	out := filepath.Join(t.TempDir(), "weir-edge.wasm")
	if err := build(rootOf(t), "./plugin", out, ""); err != nil {
		t.Fatal(err)
	}
	return out
}

func rootOf(t *testing.T) string {
	t.Helper()
	root, err := moduleRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// Which imports a module has decides which Envoys load it; which callbacks it exports decides what a request costs.
func TestNoImportOrCallbackSlipsIn(t *testing.T) {
	golden, err := os.ReadFile("testdata/module.golden")
	if err != nil {
		t.Fatal(err)
	}
	got := describe(t, moduleUnderTest(t))
	if got != string(golden) {
		t.Errorf("the module's imports and exports changed.\nwant (testdata/module.golden):\n%s\ngot:\n%s", golden, got)
	}
}

// The fault artefact stands in for the shipped module in tests: it must be the same to its host, bar the switch.
func TestFaultArtefactLooksLikeTheShippedModule(t *testing.T) {
	golden, err := os.ReadFile("testdata/module.golden")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "weir-edge-fault.wasm")
	if err := build(rootOf(t), "./plugin", out, "weirfault"); err != nil {
		t.Fatal(err)
	}
	if got := describe(t, out); got != string(golden) {
		t.Errorf("want (testdata/module.golden):\n%s\ngot:\n%s", golden, got)
	}
}

func describe(t *testing.T, path string) string {
	t.Helper()
	module, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	runtime := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	t.Cleanup(func() { runtime.Close(ctx) })
	compiled, err := runtime.CompileModule(ctx, module)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var lines []string
	for _, f := range compiled.ImportedFunctions() {
		from, name, _ := f.Import()
		lines = append(lines, "import "+from+"."+name+signature(f))
	}
	for name, f := range compiled.ExportedFunctions() {
		lines = append(lines, "export "+name+signature(f))
	}
	for name := range compiled.ExportedMemories() {
		lines = append(lines, "export memory "+name)
	}
	slices.Sort(lines)
	// Go's runtime and our own code may import one function each, which is one function to the host.
	return strings.Join(slices.Compact(lines), "\n") + "\n"
}

func signature(f api.FunctionDefinition) string {
	var b strings.Builder
	for i, types := range [][]api.ValueType{f.ParamTypes(), f.ResultTypes()} {
		b.WriteString([]string{"(", " -> "}[i])
		for j, t := range types {
			if j > 0 {
				b.WriteString(" ")
			}
			b.WriteString(api.ValueTypeName(t))
		}
		if i == 0 {
			b.WriteString(")")
		}
	}
	return strings.TrimSuffix(b.String(), " -> ")
}

// Two people who build one commit must be able to compare hashes, whatever their folders are called.
func TestModuleBytesDoNotDependOnTheFolder(t *testing.T) {
	var sums [2][32]byte
	for i, name := range []string{"a", "some-longer-name"} {
		folder := filepath.Join(t.TempDir(), name)
		copySources(t, rootOf(t), folder)
		out := filepath.Join(folder, "build/weir-edge.wasm")
		if err := build(folder, "./plugin", out, ""); err != nil {
			t.Fatal(err)
		}
		module, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = sha256.Sum256(module)
		t.Logf("%s: %d bytes, sha256 %x", name, len(module), sums[i])
	}
	if sums[0] != sums[1] {
		t.Error("two folders gave two modules")
	}
}

// copySources copies what the filter is built from, as a clean checkout would hold it.
func copySources(t *testing.T, root, folder string) {
	t.Helper()
	for _, part := range []string{"shared", "edge", "plugin"} {
		if err := os.CopyFS(filepath.Join(folder, part), os.DirFS(filepath.Join(root, part))); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, file), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
