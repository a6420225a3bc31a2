package valkey_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/limit"
)

// Counters as the limiter names them spread evenly over the servers of a cluster.
func TestTenThousandCallersSpreadEvenlyOverThreeServers(t *testing.T) {
	t.Parallel()
	c := valkeytest.StartCluster(t, 3)
	up := make(chan bool, 16)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	s := valkey.New(valkey.Options{Addrs: c.Addrs()[:1], Cluster: true, Log: log, OnUp: func(b bool) { up <- b }})
	defer s.Close()
	for ready := false; !ready; {
		select {
		case ready = <-up:
		case <-time.After(20 * time.Second):
			t.Fatal("the store did not become up")
		}
	}
	release, err := rules.Parse("rules.yaml", []byte("version: 1\nrules:\n- {name: each, where: origin, by: [key], algorithm: sliding-window, limit: 100/1h}\n"))
	if err != nil {
		t.Fatal(err)
	}
	l := limiter.New(limiter.Options{
		Store: s, Fallback: memory.New(100, nil), Secret: []byte(strings.Repeat("s", 32)),
		Now: func() limit.Micros { return limit.Micros(time.Now().UnixMicro()) }, Metrics: telemetry.New(), Log: log,
	}, release)
	const callers, workers = 10_000, 50
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := w; n < callers; n += workers {
				caller := identity.Caller{Key: &keys.Key{ID: fmt.Sprintf("customer-%d", n)}}
				l.Check(context.Background(), limiter.Request{Caller: caller, Method: "GET", Path: "/", Cost: 1})
			}
		})
	}
	wg.Wait()
	var sizes []int64
	all := int64(0)
	for i, n := range c.Nodes {
		size, err := n.Do("DBSIZE").AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, size)
		if all += size; size < callers/3*9/10 || size > callers/3*11/10 {
			t.Errorf("server %d holds %d of %d counters, want a third ± 10 %%", i, size, callers)
		}
	}
	if all != callers {
		t.Errorf("%d counters, want %d", all, callers)
	}
	t.Logf("%d counters on three servers: %v", callers, sizes)
}

// What plain commands cannot keep is named with its place.
func TestRulesThatAStrategyCannotKeepAreNamed(t *testing.T) {
	release, err := rules.ParseModel("rules.yaml", []byte(`version: 1
rules:
- {name: windows, where: origin, by: [key], algorithm: sliding-window, limit: 10/1m}
- {name: bursts, where: origin, by: [key], algorithm: token-bucket, limit: 10/1m, burst: 20, match: {paths: [/a]}}
- {name: flood, where: edge, by: [address], algorithm: token-bucket, limit: 10/1s}
`))
	if err != nil {
		t.Fatal(err)
	}
	for strategy, want := range map[valkey.Strategy]int{valkey.Auto: 0, valkey.Function: 0, valkey.Commands: 1} {
		faults := valkey.Unsupported("rules.yaml", release.Set, strategy.Supports)
		if len(faults) != want {
			t.Errorf("%v: %v", strategy, faults)
		}
		for _, f := range faults {
			if !strings.HasPrefix(f.Error(), `rules.yaml:4: rules[1].algorithm: "token-bucket": rule bursts needs functions`) {
				t.Error(f)
			}
		}
	}
}
