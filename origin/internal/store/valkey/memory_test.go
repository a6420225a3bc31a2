package valkey

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

var counters = flag.Int("counters", 10_000, "counters of each algorithm that their memory is measured on; 1000000 takes two minutes")

// A counter that is in use takes up to 160 B, all in: a name of 43 B, its value, its expiry, the server's own share.
func TestACounterTakesLittleMemory(t *testing.T) {
	t.Parallel()
	l := limit.Limit{Count: 1000, Window: limit.Day}
	const batch = 1000
	for _, a := range algorithms {
		f := newLive(t, production)
		empty := f.memory()
		for n := 0; n < *counters; n += batch {
			commands := make(valkey.Commands, batch)
			for i := range commands {
				r := f.library.take(limit.Micros(limit.MaxCount), 0, limiter.CallID{}, []limiter.Charge{chargeOf(n+i, a, l, 1)})
				commands[i] = f.client.B().Fcall().Function(r.function).Numkeys(int64(len(r.keys))).Key(r.keys...).Arg(r.args...).Build()
			}
			twice := make(valkey.Commands, 0, 2*batch)
			for _, c := range commands { // a second call changes a value in place
				twice = append(twice, c.Pin(), c)
			}
			for _, result := range f.client.DoMulti(context.Background(), twice...) {
				if err := result.Error(); err != nil {
					t.Fatal(err)
				}
			}
		}
		size, err := f.do("DBSIZE").AsInt64()
		if err != nil || size != int64(*counters) {
			t.Fatalf("%d counters, %v", size, err)
		}
		all := f.memory()
		t.Logf("memory: %s: %d B a counter, %d B with what the empty server has, of %d", a, (all-empty)/size, all/size, size)
		if each := (all - empty) / size; each > 160 {
			t.Errorf("%s: %d B a counter, want at most 160", a, each)
		}
	}
}

// memory is the server's used_memory without what it holds for its clients, once no table is on its way to a larger one: both
// are there meanwhile, on a busy machine for seconds, up to 13 B a counter of 10,000.
func (f *live) memory() (used int64) {
	f.t.Helper()
	within(f.t, "all tables have their size", func() bool {
		stats, err := f.do("MEMORY", "STATS").AsMap()
		if err != nil {
			f.t.Fatal(err)
		}
		field := stats["db.dict.rehashing.count"]
		growing, err := field.AsInt64()
		if err != nil {
			f.t.Fatalf("MEMORY STATS: db.dict.rehashing.count: %v", err)
		}
		return growing == 0
	})
	text, err := f.do("INFO", "memory").ToString()
	if err != nil {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		var n int64
		if m, _ := fmt.Sscanf(line, "used_memory:%d", &n); m == 1 {
			used += n
		}
		if m, _ := fmt.Sscanf(line, "mem_clients_normal:%d", &n); m == 1 {
			used -= n
		}
	}
	return used
}
