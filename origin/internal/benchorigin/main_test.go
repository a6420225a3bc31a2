package benchorigin

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

var (
	rounds    = flag.Int("rounds", 9, "rounds of each case; their medians are told")
	decisions = flag.Int("decisions", 12_000, "decisions of each case in a round")
	only      = flag.String("cases", "", "regular expression of the cases to measure, as cluster/3-rules/refused/commands or function/1-rules; empty for all")
	rate      = flag.Int("rate", 10_000, "checks a second that two cores, shared with the store, have to carry")
	trial     = flag.Duration("trial", 4*time.Second, "how long a rate is offered")
)

const (
	// callers wait for an answer at the same time, as DESIGN's first measurements had it.
	callers = 64
	// principals are enough that no counter stays in a processor's cache.
	principals = 50_000
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// connect makes a store on servers and waits until it is up.
func connect(b *testing.B, strategy valkey.Strategy, cluster bool, servers ...*valkeytest.Server) limiter.Store {
	b.Helper()
	up := make(chan bool, 64)
	o := valkey.Options{Cluster: cluster, Strategy: strategy, Log: quiet, OnUp: func(is bool) { up <- is }}
	for _, s := range servers {
		o.Addrs = append(o.Addrs, s.Addr)
	}
	s := valkey.New(o)
	b.Cleanup(s.Close)
	patience := time.After(20 * time.Second)
	for {
		select {
		case is := <-up:
			if is {
				return s
			}
		case <-patience:
			b.Fatal("the store did not come up")
		}
	}
}

// line prints one measurement as benchstat reads it.
func line(name string, n int, metrics string) {
	fmt.Printf("%s-%d\t%d\t%s\n", name, runtime.NumCPU(), n, metrics)
}
