package valkey

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
)

// beating is a store that beats when a test says so.
func beating(t *testing.T, o Options) *Store {
	t.Helper()
	s := start(t, o)
	s.beats.id = newBeatID()
	return s
}

// beatAt has stores beat one after the other at an instant, which all must do.
func beatAt(t *testing.T, now limit.Micros, stores ...*Store) {
	t.Helper()
	for _, s := range stores {
		if err := s.beat(context.Background(), s.liveNode(), now); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLiveProcessesAreCounted(t *testing.T) {
	t.Parallel()
	cluster, server := valkeytest.StartCluster(t, 3), valkeytest.Start(t)
	for name, o := range map[string]Options{
		"standalone": {Addrs: []string{server.Addr}},
		"cluster":    {Addrs: []string{cluster.Nodes[1].Addr}, Cluster: true},
	} {
		t.Run(name, func(t *testing.T) {
			now := 1000 * limit.Hour
			a, b, c := beating(t, o), beating(t, o), beating(t, o)
			if n := a.Processes(); n != 1 {
				t.Errorf("%d before the first count", n)
			}
			beatAt(t, now, a, b, c, a, b)
			for _, s := range []*Store{a, b, c} {
				if n := s.Processes(); n != 3 {
					t.Errorf("%d of 3", n)
				}
			}
			// c died. It is counted until liveFor has passed, and then as long as a count may be of a server that lost its data.
			beatAt(t, now+liveFor, a, b)
			if n := a.Processes(); n != 3 {
				t.Errorf("%d at the end of its time, want 3", n)
			}
			for range recentBeats {
				beatAt(t, now+liveFor+1, b, a)
			}
			if n := a.Processes(); n != 2 {
				t.Errorf("%d once it is over, want 2", n)
			}
			// A clock that was ahead and is right again leaves nobody behind.
			later := now + 100*limit.Hour
			beatAt(t, later, a)
			for range recentBeats {
				beatAt(t, now+2*liveFor, b)
			}
			if n := b.Processes(); n != 1 {
				t.Errorf("%d, want 1: the other's beat is of another time", n)
			}
		})
	}
}

func TestTheLastKnownNumberIsKept(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "g"})
	var log strings.Builder
	o := Options{Addrs: []string{server.Addr}}
	a, b := beating(t, Options{Addrs: o.Addrs, LiveProcesses: gauge, Log: slog.New(slog.NewTextHandler(&log, nil))}), beating(t, o)
	now := 1000 * limit.Hour
	beatAt(t, now, b, a)
	is := func(when string, want int64) {
		t.Helper()
		if n := a.Processes(); n != want || testutil.ToFloat64(gauge) != float64(want) {
			t.Errorf("%s: %d, the metric says %v, want %d", when, n, testutil.ToFloat64(gauge), want)
		}
	}
	is("two live", 2)

	server.Flush() // as by a failover to a server that has nothing yet
	beatAt(t, now+1, a)
	is("the server lost its data", 2)

	// A value of somebody else is no number. It makes room for the next beat.
	for range 2 {
		if err := server.Do("SET", liveKey, "x").Error(); err != nil {
			t.Fatal(err)
		}
		n := a.liveNode()
		err := a.beat(context.Background(), n, now+2)
		if err == nil {
			t.Fatal("a string was beaten into")
		}
		a.tellBeat(context.Background(), n, err)
		if n, err := server.Do("EXISTS", liveKey).AsInt64(); err != nil || n != 0 {
			t.Errorf("it stays, %v", err)
		}
	}
	is("a foreign value", 2)
	if n := strings.Count(log.String(), "live processes are not counted"); n != 1 || !strings.Contains(log.String(), "WRONGTYPE") {
		t.Errorf("told %d times: %s", n, log.String())
	}
	beatAt(t, now+3, b, a)
	is("it is gone", 2)

	server.Kill()
	if err := a.beat(context.Background(), a.topology.only, now+4); err == nil {
		t.Error("a beat without a server")
	}
	is("no server", 2)
	a.topology.only.look()
	within(t, "the server is known to be away", func() bool { return !a.Up() })
	if a.liveNode() != nil {
		t.Error("a server that is away is asked")
	}
	is("still none", 2)
}

func TestAProcessComesAndGoes(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	server.User("weir", "secret", leastRules...)
	before := server.Calls()
	o := func() Options {
		return metered(Options{Addrs: []string{server.Addr}, Credentials: user("weir", "secret"), Process: true, Log: quiet})
	}
	first := New(o())
	first.AwaitFirst(context.Background())
	second := New(o())
	second.AwaitFirst(context.Background())
	if n := second.Processes(); n != 2 {
		t.Errorf("%d when the second may take calls, want 2", n)
	}
	live := func() int64 {
		n, err := server.Do("ZCARD", liveKey).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := live(); n != 2 {
		t.Errorf("%d live", n)
	}
	if ttl, err := server.Do("PTTL", liveKey).AsInt64(); err != nil || ttl <= 0 || ttl > int64(2*liveFor/limit.Millisecond) {
		t.Errorf("expires in %d ms, %v", ttl, err)
	}
	second.Close()
	if n := live(); n != 1 {
		t.Errorf("%d live after the end of one", n)
	}
	first.Close()
	if sent, told := server.Since(before)["zrem"], testutil.ToFloat64(second.options.Commands.WithLabelValues("zrem")); sent != 2 || told != 1 {
		t.Errorf("%d ZREM sent by two, %v counted by one", sent, told)
	}
	for _, command := range []string{"zadd", "zremrangebyscore", "zcount"} {
		told := testutil.ToFloat64(first.options.Commands.WithLabelValues(command)) + testutil.ToFloat64(second.options.Commands.WithLabelValues(command))
		if sent := server.Since(before)[command]; float64(sent) != told {
			t.Errorf("%d %s sent, %v counted", sent, command, told)
		}
	}
}

// A process must not wait for a server that stopped, neither to start nor to end.
func TestAStoppedServerHoldsNoProcess(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s := New(metered(Options{Addrs: []string{server.Addr}, Process: true, Log: quiet}))
	s.AwaitFirst(context.Background())
	server.Stop()
	defer server.Continue()
	s.Close() // ends, or the test does not
	other := New(metered(Options{Addrs: []string{server.Addr}, Process: true, Log: quiet}))
	other.AwaitFirst(context.Background())
	if other.Up() || other.Processes() != 1 {
		t.Errorf("up %v, %d processes", other.Up(), other.Processes())
	}
	other.Close()
}
