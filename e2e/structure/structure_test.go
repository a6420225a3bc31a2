// Package structure holds the tests of how the repository is laid out.
package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/weirproject/weir/"
)

// file is a parsed Go file of the repository.
type file struct {
	path   string // from the root, with slashes
	syntax *ast.File
}

func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f file) imports() []string {
	var paths []string
	for _, spec := range f.syntax.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		paths = append(paths, path)
	}
	return paths
}

func goFiles(t *testing.T) []file {
	t.Helper()
	var files []file
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if entry.IsDir() && (name == "build" || name == ".tools" || name == ".git" || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, file{filepath.ToSlash(name), syntax})
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d Go files read: %v", len(files), err)
	}
	return files
}

// A boundary says what the code below a folder may not import, for a reason that the failure prints.
type boundary struct {
	below     []string // folders
	except    []string // folders below them that it does not bind
	forbidden []string // import paths; one that ends in / stands for all below it
	reason    string
}

var wasmSafe = []string{"shared/", "edge/", "plugin/"}

// boundaries of the repository. Tests, tools (shared/limit/internal holds nothing else) and test packages are free.
var boundaries = []boundary{
	{wasmSafe, []string{"plugin/mkwasm/", "shared/limit/limittest/", "shared/limit/internal/"}, []string{"net", "net/", "os", "os/", "reflect", "encoding/json", "fmt"},
		"code that gets into the Wasm module stays small, allocates little, does no I/O"},
	{wasmSafe, []string{"plugin/mkwasm/"}, []string{"sync", "time", "log", "log/", "context"},
		"the filter has one thread, and its clock is handed in: a mutex can deadlock it, time.Now reads another clock"},
	{[]string{"shared/"}, nil, []string{module + "edge", module + "plugin", module + "plugin/", module + "origin/", module + "envoy", module + "e2e/"},
		"shared is what both tiers stand on, so it knows neither"},
	{[]string{"shared/limit/"}, []string{"shared/limit/limittest/", "shared/limit/internal/"}, []string{module},
		"the algorithms know no rules"},
	{[]string{"edge/"}, nil, []string{module + "plugin", module + "plugin/", module + "origin/", module + "envoy", module + "e2e/", "github.com/tetratelabs/"},
		"the engine must be able to run in another host than proxy-wasm"},
	{[]string{"plugin/"}, []string{"plugin/mkwasm/"}, []string{module + "origin/", module + "envoy", module + "e2e/"},
		"the filter is built without the origin"},
	{[]string{"origin/"}, nil, []string{module + "edge", module + "edge/", module + "plugin", module + "plugin/", module + "e2e/", "github.com/tetratelabs/"},
		"the tiers meet in shared alone"},
	{[]string{"e2e/"}, nil, []string{module + "edge", module + "edge/", module + "plugin", module + "plugin/", module + "origin/"},
		"black-box tests use what is built"},
}

// crossing is the forbidden import that b finds in a file at path, "" for none.
func (b boundary) crossing(path string, imports []string) string {
	under := func(prefix string) bool { return strings.HasPrefix(path, prefix) }
	if !slices.ContainsFunc(b.below, under) || slices.ContainsFunc(b.except, under) {
		return ""
	}
	for _, name := range imports {
		for _, f := range b.forbidden {
			if name == f || strings.HasSuffix(f, "/") && strings.HasPrefix(name, f) {
				return name
			}
		}
	}
	return ""
}

func TestNoImportCrossesABoundary(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.isTest() {
			continue
		}
		for _, b := range boundaries {
			if name := b.crossing(f.path, f.imports()); name != "" {
				t.Errorf("%s imports %s: %s", f.path, name, b.reason)
			}
		}
	}
}

// The test above must be able to fail.
func TestBoundariesStopWhatTheyForbid(t *testing.T) {
	for _, c := range []struct{ path, name string }{
		{"shared/limit/x.go", "fmt"}, {"shared/rule/x.go", "net/http"}, {"edge/x.go", "time"}, {"plugin/x.go", "sync"},
		{"shared/limit/x.go", module + "shared/rule"}, {"edge/x.go", "github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm"},
		{"origin/internal/limiter/x.go", module + "edge"}, {"e2e/x.go", module + "origin/internal/limiter"},
	} {
		if !slices.ContainsFunc(boundaries, func(b boundary) bool {
			return b.crossing(c.path, []string{"errors", c.name}) == c.name && b.reason != ""
		}) {
			t.Errorf("%s may import %s", c.path, c.name)
		}
	}
}

func TestWasmSafeCodeStartsNoGoroutine(t *testing.T) {
	for _, f := range goFiles(t) {
		safe := slices.ContainsFunc(wasmSafe, func(dir string) bool { return strings.HasPrefix(f.path, dir) })
		// The fault build crashes on purpose, by a deadlock.
		if !safe || f.isTest() || strings.HasPrefix(f.path, "plugin/mkwasm/") || f.path == "plugin/fault_on.go" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt:
				t.Errorf("%s uses goroutines or channels: the filter has one thread, which a channel can stop for good", f.path)
			}
			return true
		})
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.isTest() && strings.HasSuffix(f.syntax.Name.Name, "_test") {
			continue
		}
		dir := filepath.Dir(f.path)
		documented[dir] = documented[dir] || f.syntax.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

func TestTopLevelHoldsExactlyTheAgreedNames(t *testing.T) {
	want := []string{".ci", ".gitignore", "LICENSE", "Makefile", "README.md", "e2e", "edge", "envoy", "go.mod", "go.sum", "origin", "plugin", "shared"}
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Logf("not a git checkout (%v): the tracked names cannot be listed; comparing the folder itself", err)
		for _, name := range want {
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Error(err)
			}
		}
		return
	}
	out, err := exec.Command("git", "-C", root, "ls-files").Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		top, _, _ := strings.Cut(strings.TrimSpace(line), "/")
		if !slices.Contains(got, top) {
			got = append(got, top)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("top level holds %v, want %v", got, want)
	}
}
