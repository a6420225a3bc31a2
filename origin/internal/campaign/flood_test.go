package campaign

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/limit"
)

// Addresses that nobody saw before, for minutes, with the store away half of the time: neither the store nor the process
// keeps more than its size, and no goroutine stays.
func TestMemoryIsBoundedWhoeverComes(t *testing.T) {
	const size, calls = 5_000, 60_000
	r, err := rules.Parse("rules.yaml", []byte("version: 1\nrules:\n- {name: r, where: origin, by: [address], limit: 5/10m}\n- {name: s, where: origin, by: [address, endpoint], match: {paths: [/]}, limit: 5/10m, algorithm: gcra, mode: shadow}\n"))
	if err != nil {
		t.Fatal(err)
	}
	now := begin
	store, local := memory.New(size, nil), memory.New(size, nil)
	faulty := fault.New(store)
	l := limiter.New(limiter.Options{Store: faulty, Fallback: local, Secret: []byte(strings.Repeat("s", 32)), Now: func() limit.Micros { return now },
		Metrics: telemetry.New(), Log: slog.New(slog.DiscardHandler)}, r)
	goroutines := runtime.NumGoroutine()
	away := false
	for n := range calls {
		if n%1000 == 0 {
			if away = !away; away {
				faulty.Inject(fault.Fault{Reason: "unreachable"})
			} else {
				faulty.Heal()
			}
		}
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(n)<<4)
		if _, err := l.Check(context.Background(), limiter.Request{Caller: identity.Caller{Address: netip.AddrFrom4(a)}, Method: "GET", Path: "/"}); err != nil {
			t.Fatal(err)
		}
		l.Close()
		faulty.Asked()
		now += 5 * limit.Millisecond // five minutes in all
	}
	// An overflow counter a rule is on top, as are shards that are not evenly filled.
	if n, m := store.Len(), local.Len(); n > size+200 || m > size+200 || n < size/2 || m < size/2 {
		t.Errorf("%d counters in the store, %d in the process, of %d", n, m, size)
	}
	if !settled(goroutines) {
		t.Errorf("%d goroutines, %d at the beginning", runtime.NumGoroutine(), goroutines)
	}
}
