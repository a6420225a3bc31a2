package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A gateway takes the last layer of the image that it is told of, which has to be of the ordinary type, and looks there
// for plugin.wasm. Both digests that an operator may state are those that were told.
func TestGatewaysFindTheModuleInItsImage(t *testing.T) {
	p := someParts(t)
	out := t.TempDir()
	var told bytes.Buffer
	if err := writeModule(p.module, out, "test", &told); err != nil {
		t.Fatal(err)
	}
	unpacked := t.TempDir()
	unpack(t, filepath.Join(out, "weir-edge.oci.tar"), unpacked)
	index, err := layout.ImageIndexFromPath(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifests.Manifests) != 1 || manifests.Manifests[0].Annotations[referenceName] != "test" {
		t.Fatalf("index %+v, want one image named test", manifests.Manifests)
	}
	image, err := index.Image(manifests.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != types.OCILayer || manifest.Config.MediaType != types.OCIConfigJSON ||
		manifest.MediaType != types.OCIManifestSchema1 || manifest.Annotations["module.wasm.image/variant"] != "compat" {
		t.Errorf("manifest %+v", manifest)
	}
	module := mutate.Extract(image)
	defer module.Close()
	r := tar.NewReader(module)
	h, err := r.Next()
	if err != nil || h.Name != "plugin.wasm" {
		t.Fatalf("first file %v, %v, want plugin.wasm", h, err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"image " + digest.String() + ",", fmt.Sprintf("plugin.wasm sha256:%x\n", sha256.Sum256(content))} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("told %q, want it to name %s", told.String(), want)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("plugin.wasm is not alone: %v", err)
	}
}

func unpack(t *testing.T, archive, folder string) {
	t.Helper()
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(bytes.NewReader(content))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, content, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
