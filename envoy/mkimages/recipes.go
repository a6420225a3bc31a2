package main

import (
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// parts are the paths of what goes into images.
type parts struct{ weir, module, envoy, valkey, certs string }

// user runs everything: no account of the host has this number, nor is it root.
const user = "65532:65532"

// Places in the images.
const (
	binFolder    = "usr/local/bin"
	modulePlace  = "opt/weir/weir-edge.wasm"
	configFolder = "/etc/weir"     // mounted: what an operator writes
	edgeFolder   = "/var/lib/weir" // a volume: what `weir envoy` renders for Envoy
)

// base is what programs look for in any system: names of the accounts, and where host names come from.
func base() []file {
	return []file{
		{path: "etc/passwd", content: []byte("root:x:0:0::/:/sbin/nologin\nweir:x:65532:65532::/:/sbin/nologin\n")},
		{path: "etc/group", content: []byte("root:x:0:\nweir:x:65532:\n")},
		{path: "etc/nsswitch.conf", content: []byte("hosts: files dns\n")},
	}
}

// weirImage is the origin. It is started with the folder of its files mounted at [configFolder].
func weirImage(p parts) (container, error) {
	weir, arch, err := staticProgram(p.weir)
	if err != nil {
		return container{}, err
	}
	system := base()
	certs, err := os.ReadFile(p.certs)
	if err == nil {
		system = append(system, file{path: "etc/ssl/certs/ca-certificates.crt", content: certs})
	} else if !os.IsNotExist(err) {
		return container{}, err
	}
	return container{
		name: "weir", arch: arch, layers: [][]file{system, {weir}},
		config: v1.Config{
			Entrypoint: []string{"/" + binFolder + "/weir"},
			Cmd:        []string{"serve", configFolder + "/weir.yaml"},
			WorkingDir: configFolder,
		},
	}, nil
}

// edgeImage is Envoy with the filter. It holds the weir binary as well, in a layer that it shares with [weirImage]: to
// render its configuration, which has to name the module where this image has it, and to probe its admin port, which
// listens on the container's loopback alone.
func edgeImage(p parts) (container, error) {
	weir, arch, err := staticProgram(p.weir)
	if err != nil {
		return container{}, err
	}
	envoy, libraries, err := dynamicPrograms(arch, map[string]string{"envoy": p.envoy})
	if err != nil {
		return container{}, err
	}
	module, err := os.ReadFile(p.module)
	if err != nil {
		return container{}, err
	}
	return container{
		name: "weir-envoy", arch: arch,
		layers: [][]file{
			append(base(), file{path: edgeFolder[1:], folder: true, mode: 0o755, owner: 65532}),
			libraries, envoy, {weir}, {{path: modulePlace, content: module}},
		},
		config: v1.Config{
			Entrypoint: []string{"/" + binFolder + "/envoy"},
			// A container is replaced as a whole, so Envoy needs no way to hand its sockets on.
			Cmd:        []string{"-c", edgeFolder + "/envoy.yaml", "--disable-hot-restart", "--log-level", "warning"},
			WorkingDir: edgeFolder,
		},
	}, nil
}

// valkeyImage is a store for tests and for the compose file: nothing is kept on disk, counters are not worth it.
func valkeyImage(p parts) (container, error) {
	cli := filepath.Join(filepath.Dir(p.valkey), "valkey-cli")
	programs, libraries, err := dynamicPrograms("", map[string]string{"valkey-server": p.valkey, "valkey-cli": cli})
	if err != nil {
		return container{}, err
	}
	arch, err := architecture(p.valkey)
	if err != nil {
		return container{}, err
	}
	return container{
		name: "weir-valkey", arch: arch, layers: [][]file{base(), libraries, programs},
		config: v1.Config{
			Entrypoint: []string{"/" + binFolder + "/valkey-server"},
			Cmd: []string{
				"--bind", "*", "--protected-mode", "no", "--port", "6379", "--save", "", "--appendonly", "no",
				"--maxmemory-policy", "noeviction",
			},
		},
	}, nil
}
