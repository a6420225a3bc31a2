// Command wasmvectors plays the vectors of a folder on package limit as this target compiles it.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/weirproject/weir/shared/limit/limittest"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: wasmvectors FOLDER")
		os.Exit(2)
	}
	files, err := limittest.ReadAll(os.DirFS(os.Args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	cases, calls, wrong := limittest.Run(files)
	for _, line := range wrong {
		fmt.Fprintln(os.Stderr, line)
	}
	fmt.Printf("vectors: %s %d cases, %d calls\n", runtime.GOARCH, cases, calls)
	if len(wrong) > 0 {
		os.Exit(1)
	}
}
