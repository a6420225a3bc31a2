//go:build !race

// Under the race detector a flood is none.

package denycache_test

import (
	"context"
	"flag"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// floodTime is how long a flood is counted. Within the first second of one that just began, little is admitted: what used the
// limit up stays in view.
var floodTime = flag.Duration("flood", time.Second, "how long floods on a real server are counted")

// process is what one origin has of its own.
type process struct {
	limiter *limiter.Limiter
	store   *valkey.Store
}

func newProcess(t *testing.T, server *valkeytest.Server, strategy valkey.Strategy) process {
	t.Helper()
	release, err := rules.Parse("rules", []byte("version: 1\nrules:\n- {name: flood, where: origin, by: [address], limit: 50/1s, on-store-failure: closed}\n"))
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
	began, base := time.Now(), limit.Micros(time.Now().UnixMicro())
	l := limiter.New(limiter.Options{Store: store, Fallback: memory.New(10, nil), Secret: []byte(strings.Repeat("s", 32)),
		Now:     func() limit.Micros { return base + limit.Micros(time.Since(began).Microseconds()) },
		Metrics: telemetry.New(), Log: slog.New(slog.DiscardHandler)}, release)
	t.Cleanup(l.Close)
	return process{l, store}
}

// On a real server: processes that are flooded by one caller ask for what is admitted, and each of them once for what
// another one got.
func TestAFloodCostsTheServerNoMoreThanTheBound(t *testing.T) {
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
			openings := floodLimit * int64(took) / int64(limit.Second)
			var spent, bound int64
			switch {
			case strategy == valkey.Function: // what one process is admitted, each other one asks for at most once
				spent, bound = commands["fcall"], n*admitted+edges
			case n == 1: // a refusal closes for one interval, whatever the wait is: what was used up at once is asked for meanwhile
				bound = 3*admitted + 4*(openings+edges)
			default:
				bound = openings*(3+(n-1)*4) + 4*edges
			}
			if strategy == valkey.Commands {
				spent = commands["incrby"] + commands["decrby"] + commands["get"] + commands["pexpire"]
			}
			if spent > bound {
				t.Errorf("%v, %d processes: %d commands in %d ms, want at most %d: %v", strategy, n, spent, took/1000, bound, commands)
			}
			if most := floodLimit + floodLimit*int64(took)/int64(limit.Second); admitted > most || admitted == 0 {
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
