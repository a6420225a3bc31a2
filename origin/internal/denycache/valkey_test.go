//go:build !race

// Under the race detector a flood is none.

package denycache_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/clock"
	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/limit"
)

const (
	floodLimit = 50 // a second
	callers    = 4  // of each process at once
)

// floodTime is how long a flood is counted: four of its windows, each up to a second. Within the first window of a flood that
// just began, little is admitted: what used the limit up stays in view.
var floodTime = flag.Duration("flood", 400*time.Millisecond, "how long floods on a real server are counted")

// floodWindow is that of the rule, with its count.
func floodWindow() (count, millis int64) {
	millis = min(1000, floodTime.Milliseconds()/4)
	return floodLimit * millis / 1000, millis
}

// process is what one origin has of its own.
type process struct {
	limiter *limiter.Limiter
	store   *valkey.Store
}

func newProcess(t *testing.T, server *valkeytest.Server, strategy valkey.Strategy) process {
	t.Helper()
	count, millis := floodWindow()
	release, err := rules.Parse("rules", fmt.Appendf(nil, "version: 1\nrules:\n- {name: flood, where: origin, by: [address], limit: %d/%dms, on-store-failure: closed}\n", count, millis))
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan struct{})
	var once sync.Once
	store := valkey.New(valkey.Options{Addrs: []string{server.Addr}, Strategy: strategy, Log: slog.New(slog.DiscardHandler),
		OnUp: func(is bool) {
			if is {
				once.Do(func() { close(up) })
			}
		}})
	t.Cleanup(store.Close)
	<-up
	l := limiter.New(limiter.Options{Store: store, Fallback: memory.New(10, nil), Secret: []byte(strings.Repeat("s", 32)),
		Now:     clock.Anchored(),
		Metrics: telemetry.New(), Log: slog.New(slog.DiscardHandler)}, release)
	t.Cleanup(l.Close)
	return process{l, store}
}

// On a real server: processes that are flooded by one caller ask for what is admitted, and each of them once for what
// another one got.
func TestAFloodCostsTheServerNoMoreThanTheBound(t *testing.T) {
	t.Parallel()
	count, millis := floodWindow()
	for _, strategy := range []valkey.Strategy{valkey.Function, valkey.Commands} {
		for _, n := range []int64{1, 4, 16} {
			server := valkeytest.Start(t)
			processes := make([]process, n)
			for i := range processes {
				processes[i] = newProcess(t, server, strategy)
			}
			calls, admitted, took, commands := hammer(t, server, processes)
			// What is not the flood's steady course: an opening at either end, and what was under way at each process's first refusal.
			edges := n + callers*n
			openings := count * int64(took) / (millis * int64(limit.Millisecond))
			spent, bound := commands["fcall"], n*admitted+edges // what one process is admitted, each other one asks for at most once
			if strategy == valkey.Commands {                    // each is told to wait for an interval by a refusal, which is 4 commands; an admission is 3
				bound = 3*admitted + 4*(n*openings+edges)
				spent = commands["incrby"] + commands["decrby"] + commands["getrange"] + commands["pexpire"]
			}
			if spent > bound {
				t.Errorf("%v, %d processes: %d commands in %d ms, want at most %d: %v", strategy, n, spent, took/1000, bound, commands)
			}
			if most := count + openings; admitted > most || admitted == 0 {
				t.Errorf("%v, %d processes: %d calls admitted in %d ms, want at most %d", strategy, n, admitted, took/1000, most)
			}
			if calls < 5*spent {
				t.Errorf("%v, %d processes: %d calls are no flood beside %d commands", strategy, n, calls, spent)
			}
			t.Logf("%-8v %2d processes: %7d calls, %3d admitted, %5d commands in %d ms of at most %5d", strategy, n, calls, admitted, spent, took/1000, bound)
		}
	}
}

// hammer sends calls of one caller through all processes at once. What it tells begins when each of them was refused once,
// and is of a while by the server's clock.
func hammer(t *testing.T, server *valkeytest.Server, processes []process) (calls, admitted int64, took limit.Micros, commands map[string]int64) {
	t.Helper()
	var sent, passed, failed atomic.Int64
	var all, refused sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for _, p := range processes {
		refused.Add(1)
		var once sync.Once
		for range callers {
			all.Go(func() {
				// Some 2,000 calls a second each: a flood of the limit's many times over that leaves the server time to answer.
				pace := time.NewTicker(500 * time.Microsecond)
				defer pace.Stop()
				for ctx.Err() == nil {
					<-pace.C
					v, err := p.limiter.Check(t.Context(), limiter.Request{Caller: identity.Caller{Address: netip.MustParseAddr("192.0.2.1")}, Method: "GET", Path: "/"})
					switch sent.Add(1); {
					case err != nil || v.Degraded:
						failed.Add(1)
					case v.Allowed:
						passed.Add(1)
					default:
						once.Do(refused.Done)
					}
				}
			})
		}
	}
	refused.Wait()
	before, from, earlier, earlierPassed := server.Calls(), server.Time(), sent.Load(), passed.Load()
	for took = 0; took < limit.Micros(floodTime.Microseconds()); took = server.Time() - from {
		<-time.After(50 * time.Millisecond) // the server's clock is asked now and then, by nobody else
	}
	commands = server.Since(before)
	calls, admitted = sent.Load()-earlier, passed.Load()-earlierPassed
	stop()
	all.Wait()
	if n := failed.Load(); n > 0 {
		t.Logf("%d calls had no answer of the server in time, on a busy machine", n)
	}
	return calls, admitted, took, commands
}
