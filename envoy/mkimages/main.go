// Command mkimages writes Weir's container images, without an engine, without root, from what lies in build/ and .tools/.
//
//	go run ./envoy/mkimages [-o build/images] [-tag dev] [-certs FILE]
//
// Each image is built from scratch: it holds the program, the shared libraries that `ldd` names, and nothing else, no
// shell among it. The same inputs and Go version give the same digests.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	var p parts
	out := flag.String("o", "build/images", "folder to write into")
	tag := flag.String("tag", "dev", "tag of the images")
	flag.StringVar(&p.weir, "weir", "build/weir", "the weir binary, static")
	flag.StringVar(&p.module, "wasm", "build/weir-edge.wasm", "the filter's module")
	flag.StringVar(&p.envoy, "envoy", tool("WEIR_ENVOY", ".tools/bin/envoy"), "Envoy; WEIR_ENVOY= as well")
	flag.StringVar(&p.valkey, "valkey", tool("WEIR_VALKEY", ".tools/bin/valkey-server"),
		"valkey-server, with valkey-cli beside it; WEIR_VALKEY= as well")
	flag.StringVar(&p.certs, "certs", "/etc/ssl/certs/ca-certificates.crt",
		"CA certificates for the origin, PEM; left out where there is no such file")
	flag.Parse()
	if flag.NArg() > 0 {
		fail(fmt.Errorf("unexpected argument %q: want flags only", flag.Arg(0)))
	}
	if err := writeAll(p, *out, *tag, os.Stdout); err != nil {
		fail(err)
	}
}

// writeAll writes every image, telling file, reference and digest of each.
func writeAll(p parts, out, tag string, told io.Writer) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, recipe := range []func(parts) (container, error){weirImage, edgeImage, valkeyImage} {
		c, err := recipe(p)
		if err != nil {
			return err
		}
		if err := c.write(out, tag, told); err != nil {
			return fmt.Errorf("image %s: %w", c.name, err)
		}
	}
	return writeModule(p.module, out, tag, told)
}

// tool is the path of the program that the environment's variable names, as the tests find it, else of the fetched one.
func tool(variable, fetched string) string {
	own := os.Getenv(variable)
	if own == "" {
		return fetched
	}
	if path, err := exec.LookPath(own); err == nil {
		return path
	}
	return own // which is told to be missing when it is read
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mkimages:", err)
	os.Exit(1)
}
