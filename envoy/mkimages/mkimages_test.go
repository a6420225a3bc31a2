package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// someParts are programs of this system: a static one, and dynamic ones in the place of Envoy and Valkey.
func someParts(t *testing.T) parts {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	source := write("main.go", "package main\n\nfunc main() { println(\"static\") }\n")
	static := filepath.Join(dir, "static")
	build := exec.Command("go", "build", "-o", static, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	dynamic, err := os.ReadFile(shell)
	if err != nil {
		t.Fatal(err)
	}
	write("valkey-cli", string(dynamic))
	return parts{
		weir: static, module: write("weir-edge.wasm", "\x00asm\x01\x00\x00\x00"), envoy: shell,
		valkey: write("valkey-server-8", string(dynamic)), certs: write("certs.pem", "a certificate"),
	}
}

// An image that cannot be built again cannot be checked by anybody.
func TestTheSameInputsGiveTheSameBytes(t *testing.T) {
	p := someParts(t)
	var told [2]string
	var files [2]map[string]string
	for i := range 2 {
		out := filepath.Join(t.TempDir(), "images")
		var b bytes.Buffer
		if err := writeAll(p, out, "test", &b); err != nil {
			t.Fatal(err)
		}
		told[i] = strings.ReplaceAll(b.String(), out, "")
		files[i] = map[string]string{}
		entries, err := os.ReadDir(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			content, err := os.ReadFile(filepath.Join(out, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			files[i][e.Name()] = fmt.Sprintf("%x", sha256.Sum256(content))
		}
	}
	if len(files[0]) != 4 || strings.Count(told[0], "\n") != 4 {
		t.Errorf("wrote %v, told\n%s: want four images and nothing else", files[0], told[0])
	}
	for file, sum := range files[0] {
		if files[1][file] != sum {
			t.Errorf("%s differs from one time to the next", file)
		}
	}
	if told[0] != told[1] {
		t.Errorf("told\n%s and then\n%s", told[0], told[1])
	}
	// The digest must depend on what is in the image.
	if err := os.WriteFile(p.module, []byte("\x00asm\x02\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	out := t.TempDir()
	if err := writeAll(p, out, "test", &b); err != nil {
		t.Fatal(err)
	}
	before, after := strings.Split(told[0], "\n"), strings.Split(strings.ReplaceAll(b.String(), out, ""), "\n")
	for i, changed := range []bool{false, true, false, true} {
		if (before[i] != after[i]) != changed {
			t.Errorf("another module: %s became %s", before[i], after[i])
		}
	}
}

// contents are the entries of an image's file system, by path.
func contents(t *testing.T, image v1.Image) map[string]*tar.Header {
	t.Helper()
	r := tar.NewReader(mutate.Extract(image))
	found := map[string]*tar.Header{}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = h
	}
}

func TestImagesHoldTheirProgramsAndNothingThatRunsAsRoot(t *testing.T) {
	p := someParts(t)
	out := t.TempDir()
	if err := writeAll(p, out, "test", io.Discard); err != nil {
		t.Fatal(err)
	}
	libraries, err := sharedLibraries(p.envoy)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(libraries, func(l string) bool { return strings.Contains(filepath.Base(l), "ld-") }) {
		t.Errorf("libraries %v: the loader is not among them", libraries)
	}
	for i, l := range libraries {
		libraries[i] = l[1:]
	}
	layers := map[string][]v1.Hash{}
	for _, c := range []struct {
		name     string
		want     []string
		mustHave []string
		not      string
	}{
		{"weir", []string{"/usr/local/bin/weir"}, []string{"usr/local/bin/weir", "etc/ssl/certs/ca-certificates.crt"}, "opt/weir"},
		{"weir-envoy", []string{"/usr/local/bin/envoy"}, append(libraries, "usr/local/bin/envoy", "usr/local/bin/weir", modulePlace), "etc/ssl"},
		{"weir-valkey", []string{"/usr/local/bin/valkey-server"}, append(libraries, "usr/local/bin/valkey-server", "usr/local/bin/valkey-cli"), "usr/local/bin/weir"},
	} {
		image, err := tarball.ImageFromPath(filepath.Join(out, c.name+".tar"), nil)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, c.want) || config.OS != "linux" {
			t.Errorf("%s: user %q, entrypoint %q, os %q", c.name, config.Config.User, config.Config.Entrypoint, config.OS)
		}
		found := contents(t, image)
		for _, path := range c.mustHave {
			if h := found[path]; h == nil || h.Size == 0 {
				t.Errorf("%s: %s is missing", c.name, path)
			}
		}
		for path, h := range found {
			if strings.HasPrefix(path, c.not) {
				t.Errorf("%s holds %s", c.name, path)
			}
			if h.Mode&0o6022 != 0 {
				t.Errorf("%s: %s has mode %o: want no other's right to write, and no setuid", c.name, path, h.Mode)
			}
			if !h.ModTime.IsZero() && h.ModTime.Unix() != 0 {
				t.Errorf("%s: %s has the time %v", c.name, path, h.ModTime)
			}
		}
		stacked, err := image.Layers()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range stacked {
			digest, err := l.Digest()
			if err != nil {
				t.Fatal(err)
			}
			layers[c.name] = append(layers[c.name], digest)
		}
	}
	common := 0
	for _, digest := range layers["weir-envoy"] {
		if slices.Contains(layers["weir"], digest) {
			common++
		}
	}
	if common != 1 {
		t.Errorf("weir and weir-envoy have %d layers in common, want the one of the weir binary", common)
	}
}

func TestWhatCannotBeAnImageSaysWhatIsWanted(t *testing.T) {
	good := someParts(t)
	for want, change := range map[string]func(*parts){
		"needs shared libraries: want one built with CGO_ENABLED=0": func(p *parts) { p.weir = p.envoy },
		"no such file or directory: run `make tools build` first":   func(p *parts) { p.envoy += "-is-not-there" },
		"want a Linux program":                  func(p *parts) { p.envoy = p.module },
		"weir-edge.wasm.none: no such file":     func(p *parts) { p.module += ".none" },
		"valkey-cli: no such file or directory": func(p *parts) { p.valkey = p.envoy },
	} {
		p := good
		change(&p)
		if err := writeAll(p, t.TempDir(), "test", io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := writeAll(good, t.TempDir(), "no tag", io.Discard); err == nil || !strings.Contains(err.Error(), `tag "no tag"`) {
		t.Errorf("a tag with a space: %v", err)
	}
	without := good
	without.certs += ".none"
	c, err := weirImage(without)
	if err != nil {
		t.Fatal(err)
	}
	image, err := c.build()
	if err != nil {
		t.Fatal(err)
	}
	if contents(t, image)["etc/ssl/certs/ca-certificates.crt"] != nil {
		t.Error("there are certificates that nobody gave")
	}
	if _, err := parseLdd("envoy", "\tlibx.so.1 => not found\n"); err == nil || !strings.Contains(err.Error(), "envoy: needs libx.so.1") {
		t.Errorf("a library that is missing: %v", err)
	}
	if _, err := parseLdd("envoy", "\tstatically linked\n"); err == nil {
		t.Error("a program without a library was taken for a dynamic one")
	}
}
