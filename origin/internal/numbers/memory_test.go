package numbers

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/storetest"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// A counter in use takes at most 160 bytes of a store, all in: its name, its value, its expiry, the server's tables.
func TestACounterTakesAtMost160BytesOfAStore(t *testing.T) {
	count := 1_000_000 / share(50)
	for _, a := range []rule.Algorithm{rule.SlidingWindow, rule.GCRA, rule.TokenBucket} {
		server := valkeytest.Start(t)
		up := make(chan bool, 8)
		s := valkey.New(valkey.Options{Addrs: []string{server.Addr}, Strategy: valkey.Function, Log: quiet, OnUp: func(b bool) { up <- b }})
		for !<-up {
		}
		empty := usedMemory(t, server)
		var wg sync.WaitGroup
		const callers = 50
		for caller := range callers {
			wg.Go(func() {
				call := limiter.Call{Charges: make([]limiter.Charge, 1), Outcomes: make([]limiter.Outcome, 1)}
				for n := caller; n < count; n += callers {
					call.Charges[0] = limiter.Charge{Counter: storetest.Name(n), Algorithm: a, Limit: limit.Limit{Count: 1000, Window: limit.Day}, Cost: 1}
					if err := s.Take(t.Context(), &call); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		s.Close()
		held, err := server.Do("DBSIZE").AsInt64()
		if err != nil || held != int64(count) {
			t.Fatalf("%d counters, want %d: %v", held, count, err)
		}
		used := usedMemory(t, server)
		if !*full { // in a million, what an empty server has is a byte
			used -= empty
		}
		each := float64(used) / float64(count)
		if each > 160 || each < float64(limiter.CounterSize) {
			t.Errorf("%s: %.1f B a counter, want at most 160", a, each)
		}
		report(t, fmt.Sprintf("memory of Valkey, %s, %s counters: B a counter", a, thousands(int64(count))), "≤ 160", fmt.Sprintf("%.0f", each))
		server.Kill()
	}
}

// usedMemory is what the server uses, without what it holds for its clients.
func usedMemory(t *testing.T, server *valkeytest.Server) (used int64) {
	t.Helper()
	text, err := server.Do("INFO", "memory").ToString()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		var n int64
		if got, _ := fmt.Sscanf(line, "used_memory:%d", &n); got == 1 {
			used += n
		} else if got, _ := fmt.Sscanf(line, "mem_clients_normal:%d", &n); got == 1 {
			used -= n
		}
	}
	return used
}
