package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// container is an image that an engine runs.
type container struct {
	name   string
	arch   string
	layers [][]file
	config v1.Config
}

func (c container) build() (v1.Image, error) {
	c.config.User = user
	return build(c.layers, &v1.ConfigFile{OS: "linux", Architecture: c.arch, Config: c.config})
}

// build stacks layers under a config. The image was made at the start of 1970, whenever it is made.
func build(layers [][]file, config *v1.ConfigFile) (v1.Image, error) {
	config.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	image, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), config)
	if err != nil {
		return nil, err
	}
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	for _, files := range layers {
		l, err := layer(files)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.Append(image, mutate.Addendum{Layer: l, MediaType: types.OCILayer, History: v1.History{
			Created: config.Created, CreatedBy: "mkimages",
		}}); err != nil {
			return nil, err
		}
	}
	return image, nil
}

// write puts the image into folder out, as `docker load` takes it.
func (c container) write(out, tag string, told io.Writer) error {
	reference, err := name.NewTag(c.name + ":" + tag)
	if err != nil {
		return fmt.Errorf("tag %q: want letters, digits, _, . and -: %w", tag, err)
	}
	image, err := c.build()
	if err != nil {
		return err
	}
	path := filepath.Join(out, c.name+".tar")
	if err := replace(path, func(part string) error { return tarball.WriteToFile(part, reference, image) }); err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(told, "%s: %s:%s image %v\n", path, c.name, tag, digest)
	return nil
}

// replace has a file written beside its place and renames it.
func replace(path string, write func(part string) error) error {
	part := fmt.Sprintf("%s.%d.part", path, os.Getpid())
	defer os.Remove(part)
	if err := write(part); err != nil {
		return err
	}
	return os.Rename(part, path)
}
