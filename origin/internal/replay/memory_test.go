package replay_test

import (
	"flag"
	"io"
	"runtime"
	"testing"

	"github.com/weirproject/weir/origin/internal/replay"
	"github.com/weirproject/weir/origin/internal/replay/tracegen"
)

var logLines = flag.Int64("log-lines", 150_000, "length of the access log that memory is measured on")

// A log of any length, with new principals in every line, is replayed in the memory that its first tenth took.
func TestMemoryDoesNotGrowWithTheTrace(t *testing.T) {
	set := model(t, `rules:
- {name: flood, where: edge, by: [address], algorithm: token-bucket, limit: 5/1s, burst: 20}
- {name: search, where: origin, match: {paths: [/search]}, by: ["user|address"], limit: 10/1m}
- {name: everything, where: origin, by: [address, endpoint], match: {paths: ["/**"]}, algorithm: gcra, limit: 100/1m, burst: 10}
`)
	log := tracegen.AccessLog{Lines: *logLines, Seed: 4, BrokenEvery: 1000, PerSecond: max(200, *logLines/1500)}
	out, in := io.Pipe()
	go func() { in.CloseWithError(log.Write(in)) }()
	var heaps []uint64 // by tenth of the log, the most that lived
	summary, err := replay.Run(t.Context(), set, out, replay.Options{Format: replay.Combined, Step: func(lines int64) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		tenth := int(lines * 10 / (*logLines + 1))
		for len(heaps) <= tenth {
			heaps = append(heaps, 0)
		}
		heaps[tenth] = max(heaps[tenth], m.HeapAlloc)
	}})
	if err != nil {
		t.Fatal(err)
	}
	broken := *logLines / 1000
	if summary.Lines != *logLines || summary.Bad != broken || summary.Calls != *logLines-broken || summary.Shed != 0 {
		t.Errorf("%+v, want %d lines, %d of them broken", summary, *logLines, broken)
	}
	// The first three tenths fill what a minute's slack and a minute's window hold.
	steady := max(heaps[1], heaps[2])
	for i, h := range heaps[3:] {
		if h > steady+steady/4 {
			t.Errorf("tenth %d lives in %d kB, the first ones in %d kB", i+4, h>>10, steady>>10)
		}
	}
	t.Logf("%d lines, %d of them broken; live heap by tenth of the log, kB: %v", summary.Lines, summary.Bad, kilobytes(heaps))
}

func kilobytes(list []uint64) (kB []uint64) {
	for _, n := range list {
		kB = append(kB, n>>10)
	}
	return kB
}
