// Command mkwasm builds the edge filter as a WebAssembly module for Envoy.
//
//	go run ./plugin/mkwasm [-o build/weir-edge.wasm] [-tags weirfault] [-package ./plugin]
//
// It lays out a patched copy of the proxy-wasm SDK under build/, since the SDK of the module cache builds with TinyGo
// only, and builds with standard Go. The same sources and Go version give the same bytes in every folder.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("o", "build/weir-edge.wasm", "module to write")
	tags := flag.String("tags", "", "build tags; weirfault builds the artefact for fault tests")
	source := flag.String("package", "./plugin", "package to build; ./plugin/empty is the module that does nothing, for benchmarks")
	flag.Parse()
	if flag.NArg() > 0 {
		fail(fmt.Errorf("unexpected argument %q: want -o, -tags and -package only", flag.Arg(0)))
	}
	root, err := moduleRoot(".")
	if err != nil {
		fail(err)
	}
	if err := build(root, *source, *out, *tags); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mkwasm:", err)
	os.Exit(1)
}
