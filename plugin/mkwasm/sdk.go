package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirproject/weir/plugin/sdkpatch"
)

// sdkGoMod names the Go version that wasmexport came with and drops the requirements: only the SDK's tests and its
// test host have any.
const sdkGoMod = "module " + sdkModule + "\n\ngo 1.24\n"

// layOutSDK makes root/build/sdk hold the non-test Go files of the SDK that go.mod names, one of them replaced.
func layOutSDK(root string) error {
	if _, err := run(root, nil, "mod", "download", sdkModule); err != nil {
		return err
	}
	source, err := run(root, nil, "list", "-m", "-f", "{{.Dir}}", sdkModule)
	if err != nil {
		return err
	}
	files, err := sdkFiles(source)
	if err != nil {
		return fmt.Errorf("read the SDK: %w", err)
	}
	if _, ok := files[sdkpatch.Path]; !ok {
		return fmt.Errorf("read the SDK: %s has no %s, which Weir's host calls stand in for: want the version that go.mod pins", source, sdkpatch.Path)
	}
	files[sdkpatch.Path] = sdkpatch.HostCalls
	files["go.mod"] = []byte(sdkGoMod)
	target := filepath.Join(root, "build/sdk")
	for name, content := range files {
		if err := writeIfChanged(filepath.Join(target, filepath.FromSlash(name)), content); err != nil {
			return fmt.Errorf("lay out the SDK: %w", err)
		}
	}
	return removeOthers(target, files)
}

// sdkFiles reads what the filter's build needs of the SDK, by slash-separated path.
func sdkFiles(source string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(filepath.Join(source, "proxywasm"), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "proxytest": // its test host, which imports much
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		name, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		files[filepath.ToSlash(name)] = content
		return err
	})
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(source, "LICENSE"))
	files["LICENSE"] = license
	return files, err
}

// removeOthers deletes Go files of an earlier layout: one left from another SDK version would be compiled in.
func removeOthers(target string, keep map[string][]byte) error {
	return filepath.WalkDir(target, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		name, err := filepath.Rel(target, path)
		if err != nil {
			return err
		}
		if _, ok := keep[filepath.ToSlash(name)]; ok {
			return nil
		}
		return os.Remove(path)
	})
}
