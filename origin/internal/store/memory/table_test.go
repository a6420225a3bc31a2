package memory

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// raced tells that the race detector is on.
var raced bool

func named(n uint64) (c limiter.Counter) {
	binary.LittleEndian.PutUint64(c[len(c)-8:], n)
	return c
}

// Beside a Go map: hashes that collide, with entries coming and going across all sizes of chunk and index.
func TestTheTableIsAMap(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	var table table
	want := map[limiter.Counter]int64{}
	// Few hashes, some of them at the index's end, with equal and with different tags.
	hash := func(n uint64) uint32 { return uint32(n%97)*0x01000001 - uint32(n%3)*5 }
	var names []uint64
	check := func() {
		if table.count != len(want) {
			t.Fatalf("%d entries, want %d", table.count, len(want))
		}
		for _, n := range names {
			name := named(n)
			at := table.find(&name, hash(n))
			value, there := want[name]
			if (at >= 0) != there || there && (table.at(at).a != value || table.at(at).name != name) {
				t.Fatalf("counter %d: at %d, want there %v with %d", n, at, there, value)
			}
		}
	}
	for n := range uint64(2000) {
		names = append(names, n)
	}
	for _, grow := range []int{90, 20, 80, 0, 95, 10} { // percent of the steps that add
		for range 2500 {
			n := names[r.IntN(len(names))]
			name := named(n)
			at := table.find(&name, hash(n))
			switch adds := r.IntN(100) < grow; {
			case adds && at < 0:
				at = table.add(&name, hash(n))
				fallthrough
			case adds:
				value := r.Int64()
				table.keep(at, &state{algorithm: rule.GCRA, a: value}, 0)
				want[name] = value
			case at >= 0:
				table.remove(at)
				delete(want, name)
			}
		}
		check()
	}
	for table.count > 0 {
		table.remove(r.IntN(table.count))
	}
	clear(want)
	check()
	if len(table.chunks) > 1 {
		t.Errorf("an empty table holds %d chunks", len(table.chunks))
	}
}

func TestLogsGoWithTheirEntries(t *testing.T) {
	var table table
	for n := range uint64(50) {
		name := named(n)
		table.keep(table.add(&name, uint32(n)), &state{algorithm: rule.SlidingLog, log: &limit.SlidingLog{}}, limit.Micros(n))
	}
	table.keep(49, &state{algorithm: rule.GCRA}, 0) // another algorithm under the same name
	table.sweep(limit.Hour, 50)
	for n := range uint64(50) {
		name := named(n)
		table.keep(table.add(&name, uint32(n)), &state{algorithm: rule.SlidingLog, log: &limit.SlidingLog{}}, limit.Micros(n))
	}
	if len(table.logs) != 50 || len(table.spare) != 0 {
		t.Errorf("%d places for 50 logs, %d of them free", len(table.logs), len(table.spare))
	}
	for _, log := range table.logs {
		if log == nil {
			t.Error("a log is missing")
		}
	}
}

func TestASweepFindsWhatHasExpiredInOneRound(t *testing.T) {
	var table table
	for n := range uint64(1000) {
		name := named(n)
		table.keep(table.add(&name, uint32(n)*0x9e3779b1), &state{}, limit.Micros(n%2)*limit.Hour+1)
	}
	for range 500 {
		table.sweep(limit.Hour, 2)
	}
	if table.count != 500 {
		t.Errorf("%d entries after a round, 500 of 1,000 had expired", table.count)
	}
}

// What DESIGN promises of memory: 64 bytes a counter beyond its name, index, chunks and locks included.
func TestACounterTakesAtMost64BytesBeyondItsName(t *testing.T) {
	if size := unsafe.Sizeof(entry{}); size != 88 || unsafe.Sizeof(shard{})%64 != 0 {
		t.Errorf("an entry takes %d bytes, want 88; a shard %d, want whole cache lines", size, unsafe.Sizeof(shard{}))
	}
	const name = float64(limiter.CounterSize)
	counts := []int{100_000, 1_000_000}
	if raced {
		counts = counts[:1] // the race detector takes its time for each word
	}
	for _, count := range counts {
		bytes := bytesACounter(count)
		t.Logf("%d counters: %.1f bytes each, %.1f beyond the name", count, bytes, bytes-name)
		if bytes > name+64 || bytes < 88 {
			t.Errorf("%d counters take %.1f bytes each, want 88 to %.0f", count, bytes, name+64)
		}
	}
}

func bytesACounter(count int) float64 {
	s := New(2*count, nil)
	outcomes, charges := make([]limiter.Outcome, 1), make([]limiter.Charge, 1)
	call := limiter.Call{Now: limit.Hour, Charges: charges, Outcomes: outcomes}
	before := heap()
	for n := range count {
		charges[0] = limiter.Charge{Counter: named(uint64(n) * 0xbf58476d1ce4e5b9), Algorithm: rule.SlidingWindow, Limit: limit.Limit{Count: 5, Window: limit.Hour}, Cost: 1}
		s.Take(context.Background(), &call)
	}
	after := heap()
	runtime.KeepAlive(s)
	return float64(after-before) / float64(count)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
