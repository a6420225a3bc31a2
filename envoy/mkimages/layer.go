package main

import (
	"archive/tar"
	"bytes"
	"io"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is an entry of a layer. Everything belongs to root and has no time, so that digests depend on contents alone.
type file struct {
	path    string // from the image's root, without a leading slash
	content []byte
	mode    int64 // 0o644 if zero
	folder  bool
	owner   int // user and group
}

// layer packs files with the folders that they need, as tar and gzip.
func layer(files []file) (v1.Layer, error) {
	packed, err := pack(withFolders(files))
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// withFolders adds the folders above each file and sorts all by path, parents first.
func withFolders(files []file) []file {
	named := map[string]file{}
	for _, f := range files {
		for folder := path.Dir(f.path); folder != "."; folder = path.Dir(folder) {
			if _, known := named[folder]; !known {
				named[folder] = file{path: folder, folder: true, mode: 0o755}
			}
		}
		named[f.path] = f
	}
	all := make([]file, 0, len(named))
	for _, f := range named {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return all
}

func pack(files []file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: int64(len(f.content)), Uid: f.owner, Gid: f.owner}
		if f.mode == 0 {
			h.Mode = 0o644
		}
		if f.folder {
			h.Typeflag, h.Name = tar.TypeDir, f.path+"/"
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
