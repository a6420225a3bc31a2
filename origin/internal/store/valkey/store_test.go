package valkey

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
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
	"github.com/weirproject/weir/shared/limit/limittest"
	"github.com/weirproject/weir/shared/rule"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 takes one from the clock")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	server := valkeytest.Start(t)
	storetest.Run(t, func(t *testing.T) limiter.Store {
		s, _ := open(t, server.Addr, production)
		if err := raw(t, s, "FLUSHALL").Error(); err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestTheFunctionAnswersTheVectors(t *testing.T) {
	s, _ := open(t, valkeytest.Start(t).Addr, withClock)
	files, err := limittest.ReadAll(os.DirFS("../../../../shared/limit/testdata"))
	if err != nil {
		t.Fatal(err)
	}
	cases, calls := 0, 0
	for name, file := range files {
		if name == "changed-windows.txt" {
			continue // a store's counters are named by their window
		}
		for _, c := range file {
			if c.Algorithm != rule.SlidingWindow.String() || slices.ContainsFunc(c.Steps, func(s limittest.Step) bool { return s.Op != limittest.Take }) {
				continue // what this store decides: no other algorithm, no refund
			}
			if c.Steps[0].Limit.Window < limit.Second {
				continue // the server would let the counter expire by its own clock, while `now` is made up
			}
			cases++
			for _, step := range c.Steps {
				if limit.CheckCost(step.Cost) != nil {
					continue // refused before any store is asked
				}
				o := take(t, s, step.Now, charge(cases, step.Limit, step.Cost))[0]
				if o.Decision != step.Want || (o.Status == limiter.Admitted) != step.Want.Allowed {
					t.Errorf("%s:%d: case %q: status %d, decision %+v, want %+v", name, step.Line, c.Name, o.Status, o.Decision, step.Want)
				}
				calls++
			}
		}
	}
	t.Logf("vectors: valkey %d cases, %d calls", cases, calls)
	if cases < 9 || calls < 2*cases {
		t.Errorf("%d calls of %d cases", calls, cases)
	}
}

// reply is what the server answers to a check of charges in one slot.
func (s *Store) reply(ctx context.Context, charges ...limiter.Charge) (string, error) {
	f := &functions{s}
	g := s.groups(&limiter.Call{Charges: charges, Outcomes: make([]limiter.Outcome, len(charges))})[0]
	f.run(ctx, []*group{g}, limiter.CallID{}, func(g *group, n *node) request {
		return s.library.take(n.notAfter(ctx), 0, limiter.CallID{}, g.charges)
	}, func(*group) (bool, error) { return false, nil })
	return g.reply, g.failure
}

// takeState makes one call, giving the server's verdict with the state before it.
func takeState(t testing.TB, s *Store, now limit.Micros, c limiter.Charge) (limiter.Status, limit.SlidingWindow) {
	t.Helper()
	reply, err := s.reply(context.WithValue(context.Background(), testNow{}, now), c)
	if err != nil || len(reply) != 6*8 {
		t.Fatalf("%q, %v", reply, err)
	}
	return limiter.Status(le(reply, 2)), stateOf(reply, 0)
}

// The function and package limit must be one algorithm at every magnitude, over limits that change and clocks that
// step.
func TestTheFunctionIsTheSameAlgorithm(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed=%d", *seed)
	r := rand.New(rand.NewPCG(*seed, *seed))
	s, _ := open(t, valkeytest.Start(t).Addr, withClock)
	admitted, refused, stepped := 0, 0, 0
	for n := range 400 {
		window := limit.MinWindow + limit.Micros(r.Int64N(1<<(10+r.IntN(35)))%int64(limit.MaxWindow))
		l := limit.Limit{Count: 1 + r.Int64N(1<<(1+r.IntN(53))), Window: window}
		if l.Check() != nil {
			continue
		}
		now := limit.Micros(1<<50 + r.Int64N(1<<51)) // below 2^53
		var want limit.SlidingWindow
		for range 15 {
			switch r.IntN(6) {
			case 0:
				now -= limit.Micros(r.Int64N(4 * int64(window)))
				now = max(now, 0)
			case 1:
				l.Count = 1 + r.Int64N(min(2*l.Count, limit.MaxCount))
			default:
				now = min(now+limit.Micros(r.Int64N(int64(window))), 1<<53-1)
			}
			cost := r.Int64N(min(l.Count+2, limit.MaxCount))
			if r.IntN(3) == 0 {
				cost = min(l.Count, max(1, l.Count-want.Current))
			}
			status, before := takeState(t, s, now, charge(n, l, cost))
			// An expired key is a fresh state, which real time makes of it while `now` is made up.
			if before != want && before != (limit.SlidingWindow{}) {
				t.Fatalf("%+v at %d: server had %+v, package limit %+v", l, now, before, want)
			}
			var d limit.Decision
			want, d = before.Take(l, now, cost)
			if !d.Allowed && want != before {
				stepped++
			}
			if (status == limiter.Admitted) != d.Allowed || status == limiter.Foreign {
				t.Fatalf("%+v at %d cost %d state %+v: server says %d, package limit %+v", l, now, cost, before, status, d)
			}
			if d.Allowed {
				admitted++
			} else {
				refused++
			}
		}
	}
	if admitted < 500 || refused < 500 || stepped < 10 {
		t.Errorf("%d admitted, %d refused, %d re-anchored: the traffic shows too little", admitted, refused, stepped)
	}
}

func TestOneCheckIsOneCommand(t *testing.T) {
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

func TestARefusalWritesNothingButAMissingExpiry(t *testing.T) {
	s, _ := open(t, valkeytest.Start(t).Addr, production)
	full, roomy := limit.Limit{Count: 2, Window: limit.Hour}, limit.Limit{Count: 100, Window: limit.Hour}
	take(t, s, -1, charge(1, full, 2), charge(2, roomy, 1))
	value, _ := raw(t, s, "GET", keyOf(1)).ToString()
	bystander, _ := raw(t, s, "GET", keyOf(2)).ToString()
	if err := raw(t, s, "PERSIST", keyOf(1)).Error(); err != nil {
		t.Fatal(err)
	}
	sets := calls(t, s, "set")
	for range 5 {
		o := take(t, s, -1, charge(1, full, 1), charge(2, roomy, 1), charge(3, roomy, 1))
		if o[0].Status != limiter.Refused || o[1].Status != limiter.Admitted || o[2].Status != limiter.Admitted {
			t.Fatalf("outcomes %+v", o)
		}
	}
	after, _ := raw(t, s, "GET", keyOf(1)).ToString()
	bystanderAfter, _ := raw(t, s, "GET", keyOf(2)).ToString()
	if after != value || bystanderAfter != bystander || calls(t, s, "set") != sets {
		t.Error("a refusal wrote a counter")
	}
	if exists, _ := raw(t, s, "EXISTS", keyOf(3)).AsInt64(); exists != 0 {
		t.Error("a refusal made a counter")
	}
	if ttl, _ := raw(t, s, "PTTL", keyOf(1)).AsInt64(); ttl <= 0 || ttl > 2*3600*1000 {
		t.Errorf("a counter without expiry has a TTL of %d ms after a refusal", ttl)
	}
}

func TestForeignValuesAreToldAndExpireAndDisturbNobody(t *testing.T) {
	s, _ := open(t, valkeytest.Start(t).Addr, production)
	l := limit.Limit{Count: 5, Window: limit.Minute}
	key := keyOf
	for n, words := range [][]string{
		{"SET", key(0), "50"}, {"SET", key(1), ""}, {"LPUSH", key(2), "x"}, {"SET", key(3), strings.Repeat("\xff", 24)},
		{"SET", key(4), "twenty-four bytes of text"}, {"HSET", key(5), "a", "b"}, {"SET", key(6), strings.Repeat("a", 24)},
	} {
		if err := raw(t, s, words...).Error(); err != nil {
			t.Fatal(err)
		}
		o := take(t, s, -1, charge(n, l, 1), charge(100+n, l, 1))
		if o[0].Status != limiter.Foreign || o[1].Status != limiter.Admitted {
			t.Errorf("%q: outcomes %+v", words, o)
		}
		if ttl, _ := raw(t, s, "PTTL", key(n)).AsInt64(); ttl <= 0 || ttl > 120_000 {
			t.Errorf("%q: TTL %d ms, want up to two windows", words, ttl)
		}
		if again := take(t, s, -1, charge(100+n, l, 0)); again[0].Decision.Remaining != l.Count {
			t.Errorf("%q: a bystander was charged beside a foreign value: %+v", words, again[0].Decision)
		}
	}
}

func TestCountersExpireWhenTheyEqualFreshOnes(t *testing.T) {
	s, _ := open(t, valkeytest.Start(t).Addr, withClock)
	for n, c := range []struct {
		l    limit.Limit
		now  limit.Micros
		want int64 // ms
	}{
		{limit.Limit{Count: 5, Window: limit.Minute}, 90 * limit.Second, 90_000},
		{limit.Limit{Count: 5, Window: limit.Minute}, 60 * limit.Second, 120_000},
		{limit.Limit{Count: 5, Window: limit.Millisecond}, limit.Second + 999, 2},
		{limit.Limit{Count: 5, Window: limit.MaxWindow}, 0, 2 * 366 * 86_400_000},
	} {
		take(t, s, c.now, charge(n, c.l, 1))
		if ttl, err := raw(t, s, "PTTL", keyOf(n)).AsInt64(); err != nil || ttl > c.want || ttl < c.want-5_000 || ttl == -1 {
			t.Errorf("%+v at %d: TTL %d ms, want %d (less what has passed); %v", c.l, c.now, ttl, c.want, err)
		}
	}
}

func TestALostFunctionCostsNoRequest(t *testing.T) {
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
