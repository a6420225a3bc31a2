package valkey

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/storetest"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 takes one from the clock")

// atOnce is how many tests run beside each other, unless -parallel says: most of them wait, for a breaker to close or a
// cluster to agree.
const atOnce = 4

func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		_ = flag.Set("test.parallel", strconv.Itoa(atOnce))
	}
	goleak.VerifyTestMain(m)
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// open makes a store on a server and waits until it is up.
func open(t testing.TB, addr string, l library) (*Store, *prometheus.CounterVec) {
	t.Helper()
	commands := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "c"}, []string{"command"})
	up := make(chan bool, 16)
	s := newStore(Options{Addrs: []string{addr}, Log: quiet, Commands: commands, OnUp: func(b bool) { up <- b }}, l)
	if l == withClock {
		s.extra = passNow
	}
	t.Cleanup(s.Close)
	await(t, up, true)
	return s, commands
}

func await(t testing.TB, up <-chan bool, want bool) {
	t.Helper()
	patience := time.After(20 * time.Second)
	for {
		select {
		case got := <-up:
			if got == want {
				return
			}
		case <-patience:
			t.Fatalf("store did not become up=%v", want)
		}
	}
}

// name is a counter's name for tests; all of a test's names differ.
func name(n int) (c limiter.Counter) {
	copy(c[:], fmt.Sprintf("w1:{0000}:%0*d", len(c)-10, n))
	return c
}

func keyOf(n int) string {
	c := name(n)
	return string(c[:])
}

func charge(n int, l limit.Limit, cost int64) limiter.Charge {
	return limiter.Charge{Counter: name(n), Algorithm: rule.SlidingWindow, Limit: l, Cost: cost}
}

func take(t testing.TB, s *Store, now limit.Micros, charges ...limiter.Charge) []limiter.Outcome {
	t.Helper()
	ctx := context.Background()
	if now >= 0 {
		ctx = context.WithValue(ctx, testNow{}, now)
	}
	outcomes := make([]limiter.Outcome, len(charges))
	if err := s.Take(ctx, &limiter.Call{Charges: charges, Outcomes: outcomes}); err != nil {
		t.Fatal(err)
	}
	return outcomes
}

func raw(t testing.TB, s *Store, words ...string) valkey.ValkeyResult {
	t.Helper()
	c := *s.topology.all()[0].client.Load()
	return c.Do(context.Background(), c.B().Arbitrary(words[0]).Args(words[1:]...).Build())
}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	foreign := foreignValues(func(string) *valkeytest.Server { return server }, byName)
	storetest.Suite{Seed: *seed, Foreign: foreign, Contents: func(*testing.T, limiter.Store) map[string]string { return dumped(server) }, Open: func(t *testing.T) limiter.Store {
		server.Flush()
		s, _ := open(t, server.Addr, production)
		return s
	}}.Run(t)
}

// dumped is what a server holds, with when it expires.
func dumped(server *valkeytest.Server) map[string]string {
	all := map[string]string{}
	for _, key := range server.Keys() {
		value, _ := server.Do("DUMP", key).ToString()
		at, _ := server.Do("PEXPIRETIME", key).AsInt64()
		all[key] = fmt.Sprintf("%q until %d", value, at)
	}
	return all
}

func TestOneCheckIsOneCommand(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, commands := open(t, server.Addr, production)
	l := limit.Limit{Count: 100, Window: limit.Hour}
	before := calls(t, s, "fcall")
	for range 10 {
		take(t, s, -1, charge(1, l, 1), charge(2, l, 1), charge(3, l, 1))
	}
	if n := calls(t, s, "fcall") - before; n != 10 {
		t.Errorf("10 checks of 3 rules were %d FCALL, want 10", n)
	}
	if n := testutil.ToFloat64(commands.WithLabelValues("fcall")); n != 10 {
		t.Errorf("counted %v FCALL, want 10", n)
	}
}

// calls is how many of a command the server has seen.
func calls(t testing.TB, s *Store, command string) int {
	t.Helper()
	text, err := raw(t, s, "INFO", "commandstats").ToString()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(text, "cmdstat_"+command+":calls=")
	if !ok {
		return 0
	}
	n := 0
	fmt.Sscanf(rest, "%d", &n)
	return n
}

func TestALostFunctionCostsNoRequest(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, commands := open(t, server.Addr, production)
	l := limit.Limit{Count: 1000, Window: limit.Hour}
	loads := testutil.ToFloat64(commands.WithLabelValues("function load"))
	for range 3 {
		if err := raw(t, s, "FUNCTION", "FLUSH").Error(); err != nil {
			t.Fatal(err)
		}
		take(t, s, -1, charge(1, l, 1))
		take(t, s, -1, charge(1, l, 1))
	}
	if n := testutil.ToFloat64(commands.WithLabelValues("function load")) - loads; n != 3 {
		t.Errorf("3 flushes led to %v loads", n)
	}
	if o := take(t, s, -1, charge(1, l, 0)); o[0].Decision.Remaining != l.Count-6 {
		t.Errorf("6 calls left %+v", o[0].Decision)
	}
}

func TestManyCallersOfALostFunctionLoadItOnce(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, commands := open(t, server.Addr, production)
	loads := testutil.ToFloat64(commands.WithLabelValues("function load"))
	const flushes, callers = 5, 64
	for range flushes {
		if err := raw(t, s, "FUNCTION", "FLUSH").Error(); err != nil {
			t.Fatal(err)
		}
		var together sync.WaitGroup
		for range callers {
			together.Go(func() {
				o := make([]limiter.Outcome, 1)
				if err := s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{charge(1, limit.Limit{Count: 1000, Window: limit.Hour}, 1)}, Outcomes: o}); err != nil {
					t.Error(err)
				}
			})
		}
		together.Wait()
	}
	if n := testutil.ToFloat64(commands.WithLabelValues("function load")) - loads; n != flushes {
		t.Errorf("%d flushes under %d callers led to %v loads, want one each", flushes, callers, n)
	}
}

func TestACheckPastItsDeadlineChargesNobody(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, _ := open(t, server.Addr, production)
	l := limit.Limit{Count: 1000, Window: limit.Hour}
	take(t, s, -1, charge(1, l, 1))
	server.Stop()
	reasons := map[string]int{}
	for range 15 { // fewer than the breaker minds
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		err := s.Take(ctx, &limiter.Call{Charges: []limiter.Charge{charge(1, l, 1)}, Outcomes: make([]limiter.Outcome, 1)})
		cancel()
		var failed *limiter.StoreError
		if !errors.As(err, &failed) {
			t.Fatalf("from a stopped server: %v", err)
		}
		reasons[failed.Reason]++
	}
	// not_after is late by a round trip at most: time itself has to pass that after the last deadline.
	<-time.After(250 * time.Millisecond)
	server.Continue()
	// What lies in the server's socket is run now, before this:
	if o := take(t, s, -1, charge(1, l, 0)); o[0].Decision.Remaining != l.Count-1 {
		t.Errorf("calls that were answered by their failure mode were charged all the same: %+v (%v)", o[0].Decision, reasons)
	}
	if reasons[reasonDeadline] == 0 {
		t.Errorf("reasons %v, want %s", reasons, reasonDeadline)
	}
}

// The server's clock is not the process's: a step of either must not make every check stale.
func TestASteppedClockIsLearntFromTheAnswer(t *testing.T) {
	t.Parallel()
	s, _ := open(t, valkeytest.Start(t).Addr, production)
	s.topology.only.offset.Add(-int64(limit.Hour))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	o := make([]limiter.Outcome, 1)
	if err := s.Take(ctx, &limiter.Call{Charges: []limiter.Charge{charge(1, limit.Limit{Count: 5, Window: limit.Hour}, 1)}, Outcomes: o}); err != nil || o[0].Status != limiter.Admitted {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestAServerThatComesLaterIsUsed(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	server.Kill()
	up := make(chan bool, 16)
	s := New(Options{Addrs: []string{server.Addr}, Log: quiet, OnUp: func(b bool) { up <- b }})
	defer s.Close()
	err := s.Take(context.Background(), &limiter.Call{Charges: nil, Outcomes: nil})
	var failed *limiter.StoreError
	if !errors.As(err, &failed) || failed.Reason != reasonUnreachable || s.Up() {
		t.Errorf("without a server: %v, up %v", err, s.Up())
	}
	server.Run()
	await(t, up, true)
	l := limit.Limit{Count: 5, Window: limit.Hour}
	take(t, s, -1, charge(1, l, 1))

	server.Kill()
	if err := s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{charge(1, l, 1)}, Outcomes: make([]limiter.Outcome, 1)}); !errors.As(err, &failed) {
		t.Errorf("from a killed server: %v", err)
	}
	await(t, up, false)
	server.Run()
	await(t, up, true)
	take(t, s, -1, charge(1, l, 1))
}

// A server that answers but takes no check is as good as none, and must be told as that.
func TestAServerThatRefusesChecksIsNotUp(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	up := make(chan bool, 16)
	log := make(chan string, 16)
	s := New(Options{Addrs: []string{server.Addr}, Log: slog.New(slog.NewTextHandler(writer(log), nil)), OnUp: func(b bool) { up <- b }})
	defer s.Close()
	await(t, up, true)
	l := limit.Limit{Count: 5, Window: limit.Hour}
	for _, c := range []struct {
		spoil, mend []string
		told        string
	}{
		{[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}, "OOM"},
		{[]string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"}, "READONLY"},
	} {
		if err := raw(t, s, c.spoil...).Error(); err != nil {
			t.Fatal(err)
		}
		var failed *limiter.StoreError
		if err := s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{charge(1, l, 1)}, Outcomes: make([]limiter.Outcome, 1)}); !errors.As(err, &failed) || failed.Reason != reasonAnswer {
			t.Errorf("%v: %v", c.spoil, err)
		}
		await(t, up, false)
		patience := time.After(20 * time.Second)
		for told := false; !told; {
			select {
			case line := <-log:
				told = strings.Contains(line, c.told)
			case <-patience:
				t.Fatalf("%v: no line tells %s", c.spoil, c.told)
			}
		}
		if err := raw(t, s, c.mend...).Error(); err != nil {
			t.Fatal(err)
		}
		await(t, up, true)
		take(t, s, -1, charge(1, l, 1))
	}
}

func TestAWrongPasswordIsToldAsOne(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t, "--requirepass", "right")
	log := make(chan string, 16)
	s := New(Options{Addrs: []string{server.Addr}, Credentials: password("wrong"), Log: slog.New(slog.NewTextHandler(writer(log), nil))})
	defer s.Close()
	select {
	case line := <-log:
		if !strings.Contains(line, "WRONGPASS") || strings.Contains(line, "right") {
			t.Errorf("log: %s", line)
		}
	case <-time.After(20 * time.Second):
		t.Error("nothing was logged")
	}
	up := make(chan bool, 16)
	good := New(Options{Addrs: []string{server.Addr}, Credentials: password("right"), Log: quiet, OnUp: func(b bool) { up <- b }})
	defer good.Close()
	await(t, up, true)
}

func password(word string) func() (user, password string, err error) {
	return func() (string, string, error) { return "", word, nil }
}

type writer chan string

func (w writer) Write(b []byte) (int, error) {
	select {
	case w <- string(b):
	default:
	}
	return len(b), nil
}

func BenchmarkTake(b *testing.B) {
	s, _ := open(b, valkeytest.Start(b).Addr, production)
	l := limit.Limit{Count: limit.MaxCount, Window: limit.Hour}
	for _, rules := range []int{1, 3, 6} {
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				charges := make([]limiter.Charge, rules)
				n := rand.IntN(50_000)
				for i := range charges {
					charges[i] = charge(n*10+i, l, 1)
				}
				outcomes := make([]limiter.Outcome, rules)
				for pb.Next() {
					if err := s.Take(context.Background(), &limiter.Call{Charges: charges, Outcomes: outcomes}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
