package envoyconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirproject/weir/shared/bundle"
)

// Filter is the extension discovery resource of Weir's Wasm filter.
type Filter struct {
	Bundle []byte // what `weir bundle build` wrote; it has to decode
	Wasm   string // path of the module; Envoy reads it, so it is made absolute
	// VMConfig is the text that a VM starts with. A new text makes Envoy start new VMs, which keep the buckets;
	// empty for none. Only the fault-test build reads it.
	VMConfig string
}

// Render is the resource as the JSON file that Envoy's file discovery reads. A damaged bundle or a file that is no
// Wasm module is refused here, since Envoy tells about a refused configuration only in its log.
func (f Filter) Render() ([]byte, error) {
	if _, err := bundle.Decode(f.Bundle); err != nil {
		return nil, err
	}
	module, err := filepath.Abs(f.Wasm)
	if err != nil {
		return nil, err
	}
	if err := checkModule(module); err != nil {
		return nil, err
	}
	version := sha256.New()
	for _, part := range []string{string(f.Bundle), module, f.VMConfig} {
		fmt.Fprintf(version, "%d:%s", len(part), part)
	}
	return execute(filterTemplate, map[string]any{
		"Version":  hex.EncodeToString(version.Sum(nil)[:8]),
		"Bundle":   f.Bundle,
		"Wasm":     module,
		"VMConfig": f.VMConfig,
	})
}

// wasmMagic begins every WebAssembly module.
const wasmMagic = "\x00asm"

func checkModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var magic [len(wasmMagic)]byte
	if n, _ := file.Read(magic[:]); string(magic[:n]) != wasmMagic {
		return fmt.Errorf("%s: not a WebAssembly module", path)
	}
	return nil
}

// WriteDiscovery writes content, a rendered [Filter] or [Certificate], to path as [WriteFile] does. A path that Envoy cannot tell the
// format of is refused.
func WriteDiscovery(path string, content []byte) error {
	if filepath.Ext(path) != ".json" {
		return wrong("output", path, "a path that ends in .json, from which Envoy tells the format")
	}
	return WriteFile(path, content)
}

// WriteFile writes content to path by renaming a complete file onto it. That is how Envoy wants a push: its watch sees
// the rename, never a half-written file.
func WriteFile(path string, content []byte) (err error) {
	folder, name := filepath.Split(path)
	// Envoy's watch ignores every name but path's.
	file, err := os.CreateTemp(or(folder, "."), "."+name+"-*")
	if err != nil {
		// The temporary name would tell nobody anything.
		if failed, ok := errors.AsType[*fs.PathError](err); ok {
			err = failed.Err
		}
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(file.Name())))
		}
	}()
	_, err = file.Write(content)
	// Envoy may run as another user than who writes its configuration.
	err = errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
