// Command maketrace writes a made-up trace for `weir replay` to standard output.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/weirproject/weir/origin/internal/replay/tracegen"
)

func main() {
	kind := flag.String("kind", "storm", "storm: the retry storm, 60,000 calls/s after a warm-up minute; log: a combined access log with broken lines")
	minutes := flag.Int("minutes", 3, "length of the storm, after the warm-up minute")
	lines := flag.Int64("lines", 5_000_000, "length of the log")
	flag.Parse()
	if err := write(*kind, *minutes, *lines); err != nil {
		fmt.Fprintln(os.Stderr, "maketrace:", err)
		os.Exit(1)
	}
}

func write(kind string, minutes int, lines int64) error {
	switch kind {
	case "storm":
		return tracegen.FullStorm(minutes).WriteJSONL(os.Stdout)
	case "log":
		return tracegen.AccessLog{Lines: lines, Seed: 4, BrokenEvery: 1000, PerSecond: 2000}.Write(os.Stdout)
	}
	return fmt.Errorf("kind %q: want storm or log", kind)
}
