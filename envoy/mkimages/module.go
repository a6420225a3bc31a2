package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// What gateways that fetch a filter by image look for: the "compat" variant of the Wasm image specification
// (github.com/solo-io/wasm, spec), which Istio and Envoy Gateway read. It has one layer of the ordinary type with one
// file of this name.
const (
	pluginFile      = "plugin.wasm"
	pluginVariant   = "module.wasm.image/variant"
	referenceName   = "org.opencontainers.image.ref.name"
	moduleImageName = "weir-edge"
	moduleSystem    = "wasip1"
	moduleMachine   = "wasm"
)

// moduleImage is the filter's module for gateways.
func moduleImage(module []byte) (v1.Image, error) {
	image, err := build([][]file{{{path: pluginFile, content: module}}},
		&v1.ConfigFile{OS: moduleSystem, Architecture: moduleMachine})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, map[string]string{pluginVariant: "compat"}).(v1.Image), nil
}

// writeModule writes the module's image as a tar of an OCI layout. Gateways ask for the digest of the image where they
// fetch an image, for that of the file where they fetch a file, so both are told.
func writeModule(path, out, tag string, told io.Writer) error {
	module, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	image, err := moduleImage(module)
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	target := filepath.Join(out, moduleImageName+".oci.tar")
	if err := replace(target, func(part string) error { return writeLayout(part, image, tag) }); err != nil {
		return err
	}
	fmt.Fprintf(told, "%s: %s:%s image %v, %s sha256:%x\n", target, moduleImageName, tag, digest, pluginFile, sha256.Sum256(module))
	return nil
}

// writeLayout writes one image as a tar of an OCI layout.
func writeLayout(to string, image v1.Image, tag string) error {
	folder, err := os.MkdirTemp(filepath.Dir(to), "layout.*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	at, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	if err := at.AppendImage(image, layout.WithAnnotations(map[string]string{referenceName: tag})); err != nil {
		return err
	}
	var files []file
	err = filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		files = append(files, file{path: filepath.ToSlash(name), content: content})
		return err
	})
	if err != nil {
		return err
	}
	packed, err := pack(withFolders(files))
	if err != nil {
		return err
	}
	return os.WriteFile(to, packed, 0o644)
}
