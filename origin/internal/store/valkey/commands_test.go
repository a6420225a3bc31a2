package valkey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/storetest"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
	"github.com/weirproject/weir/shared/rule"
)

// openCommands makes a store of the commands strategy and waits until it is up.
func openCommands(t testing.TB, o Options) (*Store, *commands) {
	t.Helper()
	up := make(chan bool, 64)
	o.Strategy, o.Log, o.OnUp = Commands, quiet, func(b bool) { up <- b }
	s := New(o)
	t.Cleanup(s.Close)
	await(t, up, true)
	st, err := s.chosen()
	if err != nil {
		t.Fatal(err)
	}
	return s, st.(*commands)
}

func commandsOn(t testing.TB, server *valkeytest.Server) (*Store, *commands) {
	t.Helper()
	return openCommands(t, Options{Addrs: []string{server.Addr}})
}

// fixed makes the strategy decide at an instant that the test sets.
func (c *commands) fixed(at limit.Micros) *atomic.Int64 {
	now := &atomic.Int64{}
	now.Store(int64(at))
	c.clock = func(*node) limit.Micros { return limit.Micros(now.Load()) }
	return now
}

func call(t testing.TB, s *Store, c *limiter.Call) []limiter.Outcome {
	t.Helper()
	if c.Outcomes == nil {
		c.Outcomes = make([]limiter.Outcome, len(c.Charges))
	}
	if err := s.Take(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	return c.Outcomes
}

func ask(t testing.TB, s *Store, charges ...limiter.Charge) []limiter.Outcome {
	t.Helper()
	return call(t, s, &limiter.Call{Charges: charges})
}

func admitted(o []limiter.Outcome) bool {
	for i := range o {
		if o[i].Status != limiter.Admitted {
			return false
		}
	}
	return true
}

// fixedCharge is a charge of a fixed window.
func fixedCharge(n int, l limit.Limit, cost int64) limiter.Charge {
	c := charge(n, l, cost)
	c.Algorithm = rule.FixedWindow
	return c
}

// spread is a counter in a slot of its own.
func spread(n int) (c limiter.Counter) {
	copy(c[:], fmt.Sprintf("w1:{%04x}:%0*d", n, len(c)-10, n))
	return c
}

func spreadCharge(n int, l limit.Limit, cost int64) limiter.Charge {
	c := charge(n, l, cost)
	c.Counter = spread(n)
	return c
}

// windowKey is where the window of charge c at an instant is kept.
func windowKey(c limiter.Charge, at limit.Micros) string { return nameOf(&c.Counter, windowAt(&c, at)) }

var wide = limit.Limit{Count: 100, Window: limit.MaxWindow / 2}

// suite is what the conformance suite knows of this strategy, at a clock that stands still: see [commands.spare]. Its windows are apart by name, so it cannot hold a late clock
// to a window that an earlier call has begun: cases in which time goes back to another window are not for it.
func suite(open func(t *testing.T) (*Store, *atomic.Int64), contents func() map[string]string) storetest.Suite {
	var now *atomic.Int64
	s := storetest.Suite{
		Open: func(t *testing.T) limiter.Store {
			s, n := open(t)
			now = n
			return settled{s}
		},
		Algorithms: []rule.Algorithm{rule.SlidingWindow, rule.FixedWindow},
		GivesBack:  true,
		Seed:       *seed,
		Contents:   func(*testing.T, limiter.Store) map[string]string { return contents() },
		Otherwise: func(_ string, c limittest.Case) string {
			if late(c) {
				return "time goes back to another window"
			}
			return ""
		},
		At: func(ctx context.Context, _ limiter.Store, at limit.Micros) context.Context {
			now.Store(int64(at))
			return ctx
		},
	}
	return s
}

// settled is a store that is not asked before all is given back, shadow charges too, for which no call waits.
type settled struct{ *Store }

func (s settled) Take(ctx context.Context, c *limiter.Call) error {
	for len(s.backs) > 0 {
		time.Sleep(10 * time.Microsecond)
	}
	return s.Store.Take(ctx, c)
}

// late tells whether a case's time goes back to an earlier window.
func late(c limittest.Case) bool {
	last := int64(0)
	for i, step := range c.Steps {
		n := windowAt(&limiter.Charge{Limit: step.Limit, Offset: c.Offset}, step.Now)
		if i > 0 && n < last {
			return true
		}
		last = n
	}
	return false
}

// contents are what servers hold, with when it expires. What was given back leaves a zero, which is as good as nothing.
func contents(servers ...*valkeytest.Server) map[string]string {
	all := map[string]string{}
	for _, server := range servers {
		for _, key := range server.Keys() {
			value, _ := server.Do("GET", key).ToString()
			at, _ := server.Do("PEXPIRETIME", key).AsInt64()
			if value != "0" {
				all[key] = fmt.Sprintf("%s until %d", value, at)
			}
		}
	}
	return all
}

func TestPlainCommandsConform(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, c := commandsOn(t, server)
	now := c.fixed(0)
	c.spare = madeUpSpare
	all := suite(func(*testing.T) (*Store, *atomic.Int64) {
		server.Flush()
		return s, now
	}, func() map[string]string { return contents(server) })
	all.Foreign = foreignValues(func(string) *valkeytest.Server { return server }, func(c limiter.Charge) string { return windowKey(c, limit.Micros(now.Load())) })
	delete(all.Foreign, "nothing") // which reads as no value: see TestACounterWithoutExpiryGetsOneAndForeignOnesAreTold
	all.Foreign["a fraction"] = foreignValue(func(string) *valkeytest.Server { return server }, func(c limiter.Charge) string { return windowKey(c, limit.Micros(now.Load())) }, "SET", "1.5")
	all.Run(t)
}

// By its own clock a server would let the window that is all but over expire at once, however long its time stands still.
func TestACounterOutlivesMadeUpTimeThatStandsStill(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	l := limit.Limit{Count: 5, Window: limit.Minute}
	at := 1000*l.Window - 1
	s, _ := openCommands(t, Options{Addrs: []string{server.Addr}, Clock: func() limit.Micros { return at }})
	for n, c := range []limiter.Charge{charge(1, l, 1), fixedCharge(2, l, 1)} {
		ask(t, s, c)
		least := int64(1 + 60_000*(1-n))
		if ttl, err := server.Do("PTTL", windowKey(c, at)).AsInt64(); err != nil || ttl <= madeUpSpare-60_000+least || ttl > madeUpSpare+least {
			t.Errorf("%s: TTL %d ms, %v", c.Algorithm, ttl, err)
		}
	}
}

func TestPlainCommandsAreCounted(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, c := commandsOn(t, server)
	now := c.fixed(limit.MaxWindow)
	ran := func(what string, want map[string]int64, do func()) {
		t.Helper()
		before := server.Calls()
		do()
		got := server.Since(before)
		for _, other := range []string{"hello", "client|setinfo", "time"} { // of connecting, and of the watch
			delete(got, other)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: ran %v, want %v", what, got, want)
		}
	}
	three := func(cost int64) []limiter.Charge {
		return []limiter.Charge{charge(1, wide, cost), charge(2, wide, cost), charge(3, wide, cost)}
	}
	ran("admitted, one rule", map[string]int64{"incrby": 10, "pexpire": 10, "getrange": 10}, func() {
		for range 10 {
			ask(t, s, charge(1, wide, 1))
		}
	})
	ran("admitted, three rules", map[string]int64{"incrby": 30, "pexpire": 30, "getrange": 30}, func() {
		for range 10 {
			ask(t, s, three(1)...)
		}
	})
	ran("admitted, a fixed window", map[string]int64{"incrby": 10, "pexpire": 10}, func() {
		for range 10 {
			ask(t, s, fixedCharge(4, wide, 1))
		}
	})
	ran("refused by one of three rules", map[string]int64{"incrby": 30, "pexpire": 30, "getrange": 30, "decrby": 30}, func() {
		for range 10 {
			if admitted(ask(t, s, three(90)...)) {
				t.Error("admitted")
			}
		}
	})
	ran("peeks", map[string]int64{"getrange": 60}, func() {
		for range 10 {
			ask(t, s, three(0)...)
		}
	})
	ran("a cost that can never pass", map[string]int64{"getrange": 60}, func() {
		for range 10 {
			ask(t, s, append(three(1)[:2], charge(3, wide, 101))...)
		}
	})
	ran("with an ID", map[string]int64{"set": 2, "incrby": 1, "pexpire": 1, "getrange": 1}, func() {
		call(t, s, &limiter.Call{ID: limiter.CallID{1}, Charges: three(1)[:1]})
	})
	ran("with an ID that is remembered", map[string]int64{"set": 1, "incrby": 1, "pexpire": 1, "getrange": 1, "decrby": 1}, func() {
		call(t, s, &limiter.Call{ID: limiter.CallID{1}, Charges: three(1)[:1]})
	})
	ran("of one that is not to be made", map[string]int64{"getrange": 4}, func() {
		unmade := charge(50, wide, 1)
		unmade.Existing = true
		if o := ask(t, s, unmade, charge(1, wide, 1)); o[0].Status != limiter.Unmade || o[1].Charged {
			t.Errorf("outcomes %+v", o)
		}
	})
	now.Add(int64(3 * wide.Window))
	ran("in a new window", map[string]int64{"incrby": 1, "pexpire": 1, "getrange": 1}, func() { ask(t, s, charge(1, wide, 1)) })
}

// A hundred parallel calls at one left: none above the limit, and nothing stays charged.
func TestPlainCommandsNeverAdmitMoreAndGiveBackAll(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, c := commandsOn(t, server)
	c.fixed(limit.MaxWindow)
	l := limit.Limit{Count: 10, Window: limit.Minute}
	lost := 0
	for n := range 20 {
		if !admitted(ask(t, s, charge(n, l, 9))) {
			t.Fatal("refused below the limit")
		}
		var passed atomic.Int64
		var together sync.WaitGroup
		for range 100 {
			together.Go(func() {
				if admitted(ask(t, s, charge(n, l, 1))) {
					passed.Add(1)
				}
			})
		}
		together.Wait()
		if passed.Load() > 1 {
			t.Errorf("%d of 100 parallel calls got the last one", passed.Load())
		}
		if passed.Load() == 0 {
			lost++
		}
		left := 1 - passed.Load()
		if o := ask(t, s, charge(n, l, 0))[0]; o.Decision.Remaining != left {
			t.Errorf("%d passed, %d left, want %d: phantom charges stay", passed.Load(), o.Decision.Remaining, left)
		}
	}
	if lost > 0 {
		t.Errorf("the first charge of all saw nobody's before it: in %d of 20 rounds no call got the last one", lost)
	}
}

// Calls of larger costs may refuse each other, by no more than what is in flight.
func TestFalseRefusalsAreWithinTheCostInFlight(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, c := commandsOn(t, server)
	c.fixed(limit.MaxWindow)
	const callers, most = 16, 7
	l := limit.Limit{Count: 1000, Window: limit.Minute}
	var total atomic.Int64
	refusedBelow := atomic.Int64{}
	refusedBelow.Store(l.Count)
	var together sync.WaitGroup
	for i := range callers {
		together.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range 60 {
				cost := 1 + r.Int64N(most)
				if o := ask(t, s, charge(1, l, cost)); admitted(o) {
					total.Add(cost)
				} else if before := total.Load() + cost; before < refusedBelow.Load() {
					refusedBelow.Store(before) // admitted by then is at least what was when the call was refused
				}
			}
		})
	}
	together.Wait()
	if total.Load() > l.Count {
		t.Errorf("admitted %d of %d", total.Load(), l.Count)
	}
	if least := l.Count - callers*most; total.Load() < least || refusedBelow.Load() < least {
		t.Errorf("admitted %d, refused at %d: want no refusal below %d, the limit less what %d calls of at most %d have in flight",
			total.Load(), refusedBelow.Load(), least, callers, most)
	}
	if o := ask(t, s, charge(1, l, 0)); l.Count-o[0].Decision.Remaining != total.Load() {
		t.Errorf("admitted %d, but %d is charged", total.Load(), l.Count-o[0].Decision.Remaining)
	}
}

// Processes ask the server for its time, so what their own clocks say does not matter: near a window's edge, too.
func TestProcessesWithOtherClocksCountAlike(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	ahead, _ := commandsOn(t, server)
	behind, _ := commandsOn(t, server)
	for _, p := range []struct {
		s    *Store
		skew limit.Micros
	}{{ahead, 5 * limit.Second}, {behind, -5 * limit.Second}} {
		clock := p.s.now
		p.s.now = func() limit.Micros { return clock() + p.skew }
		n := p.s.topology.all()[0]
		if err := n.synchronise(context.Background(), *n.client.Load()); err != nil {
			t.Fatal(err)
		}
		if d := (*node).now(n) - server.Time(); d < -limit.Second || d > limit.Second {
			t.Errorf("a process whose clock is off by %d s counts by a time that is off by %d ms", p.skew/limit.Second, d/limit.Millisecond)
		}
	}
}

// As if neither had asked: what processes then admit beyond the limit is what the one behind admits in the last of a window
// while the other is in the next, and what the window before weighs less to the one ahead. The algorithm's own error beside
// an exact log is that of one clock.
func TestProcessesWhoseTimesDifferAdmitLittleMore(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	ahead, ca := commandsOn(t, server)
	behind, cb := commandsOn(t, server)
	na, nb := ca.fixed(0), cb.fixed(0)
	l := limit.Limit{Count: 600, Window: limit.Minute}
	const step = limit.Second / 20
	edge := 1000 * l.Window
	worst := func(skew limit.Micros) (most int) {
		server.Flush()
		var log []limit.Micros // when each call was admitted, in the time of the one behind
		for at := edge - 70*limit.Second; at < edge+70*limit.Second; at += step {
			na.Store(int64(at + skew))
			nb.Store(int64(at))
			for _, s := range []*Store{ahead, behind} {
				if admitted(ask(t, s, charge(1, l, 1))) {
					log = append(log, at)
				}
			}
		}
		for from, to := 0, 0; to < len(log); to++ {
			for log[to]-log[from] >= l.Window {
				from++
			}
			most = max(most, to-from+1)
		}
		return most
	}
	const skew = 5 * limit.Second
	alike, apart := worst(0), worst(skew)
	bound := alike + int(skew/step) + int(l.Count*int64(skew)/int64(l.Window))
	t.Logf("at most %d within a window at a limit of %d, %d with clocks %d s apart: bound %d", alike, l.Count, apart, skew/limit.Second, bound)
	if apart > bound {
		t.Errorf("%d admitted within a window, want at most %d", apart, bound)
	}
}

func TestACounterBelowZeroGivesNobodyExtra(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, c := commandsOn(t, server)
	at := limit.MaxWindow
	c.fixed(at)
	l := limit.Limit{Count: 5, Window: limit.Hour}
	for n, callers := range []int{1, 100} {
		ch := charge(n, l, 1)
		server.Do("SET", windowKey(ch, at), "-50")
		var passed atomic.Int64
		var together sync.WaitGroup
		for range callers {
			together.Go(func() {
				for range 100 / callers {
					if admitted(ask(t, s, ch)) {
						passed.Add(1)
					}
				}
			})
		}
		together.Wait()
		if passed.Load() > 5 || callers == 1 && passed.Load() != 5 {
			t.Errorf("%d calls of %d callers passed at a limit of 5 after -50", passed.Load(), callers)
		}
	}
	before := charge(9, l, 1)
	server.Do("SET", windowKey(before, at-l.Window), "-50")
	for i := range 6 {
		if admitted(ask(t, s, before)) != (i < 5) {
			t.Errorf("call %d after a window of -50", i)
		}
	}
}

// The window is over when its give-back arrives: the counter that DECRBY makes then is lifted and expires.
func TestALateGiveBackLeavesNoCounterForEver(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	line := valkeytest.StartProxy(t, server.Addr)
	s, _ := openCommands(t, Options{Addrs: []string{line.Addr}})
	l := limit.Limit{Count: 1, Window: 20 * limit.Millisecond}
	line.Delay(60*time.Millisecond, 0) // a counter lives for two windows at most
	before := server.Calls()
	if admitted(ask(t, s, charge(1, l, 1), charge(2, limit.Limit{Count: 0, Window: limit.Hour}, 0))) {
		t.Fatal("admitted at a limit of nothing")
	}
	full := charge(3, l, 1)
	var together sync.WaitGroup
	for range 5 {
		together.Go(func() { ask(t, s, full) })
	}
	together.Wait()
	line.Delay(0, 0)
	ran := server.Since(before)
	if ran["decrby"] == 0 || ran["incrby"] <= 5 {
		t.Errorf("ran %v, want a DECRBY that came too late, and what lifts its counter", ran)
	}
	noneForEver(t, server)
	for _, key := range server.Keys() {
		if n, err := server.Do("GET", key).AsInt64(); err == nil && n < 0 {
			t.Errorf("%s is %d", key, n)
		}
	}
}

// noneForEver fails if a key has no expiry.
func noneForEver(t *testing.T, server *valkeytest.Server) {
	t.Helper()
	for _, key := range server.Keys() {
		ttl, err := server.Do("PTTL", key).AsInt64()
		if err != nil || ttl == -1 {
			value, _ := server.Do("GET", key).ToString()
			t.Errorf("%s = %q stays for ever (%v)", key, value, err)
		}
	}
}

// Whatever a stopped server finds in its sockets when it runs on, no counter stays for ever.
func TestAStoppedServerKeepsNoCounterForEver(t *testing.T) {
	t.Parallel()
	seed := newSeed(t)
	server := valkeytest.Start(t)
	s, c := commandsOn(t, server)
	var done atomic.Bool
	var callers sync.WaitGroup
	for i := range 32 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for !done.Load() {
				n := r.IntN(40)
				l := limit.Limit{Count: 1 + r.Int64N(4), Window: limit.Micros(1+5*n) * limit.Millisecond}
				ch := []limiter.Charge{charge(n, l, 1+r.Int64N(3)), fixedCharge(100+n, l, 1)}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				o := make([]limiter.Outcome, 2)
				call := &limiter.Call{Charges: ch, Outcomes: o}
				if r.IntN(5) == 0 {
					call.ID = limiter.CallID{byte(r.IntN(256)), 1}
				}
				if s.Take(ctx, call) == nil && r.IntN(5) == 0 {
					s.Refund(ctx, call)
				}
				cancel()
			}
		})
	}
	for range 2 {
		<-time.After(200 * time.Millisecond) // of traffic
		server.Stop()
		<-time.After(1300 * time.Millisecond) // longer than connections and windows last
		server.Continue()
	}
	done.Store(true)
	callers.Wait()
	deadline := time.Now().Add(20 * time.Second)
	for c.owed.some.Load() && time.Now().Before(deadline) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		s.Take(ctx, &limiter.Call{Charges: []limiter.Charge{charge(1, wide, 1)}, Outcomes: make([]limiter.Outcome, 1)})
		cancel()
	}
	for range maxGiveBacks { // what goes on in the background is over
		s.backs <- struct{}{}
	}
	for range maxGiveBacks {
		<-s.backs
	}
	noneForEver(t, server)
}

// A give-back made a counter anew, below zero, and what was to lift it and have it expire was not even sent: the server had been
// left alone since.
func TestACounterMadeByAGiveBackIsOwedItsExpiryWhateverComesBetween(t *testing.T) {
	server := valkeytest.Start(t)
	_, c := commandsOn(t, server)
	for o, want := range map[op]bool{opRestore: true, opCharge: false, opGiveBack: false} {
		for _, err := range []error{errOpen, errBusy, errNotConnected, errNobody} {
			b := &batch{part: part{err: err}}
			e := &entry{current: "made anew", ttl: 60_000, batch: b}
			if err := server.Do("SET", e.current, "-1").Error(); err != nil {
				t.Fatal(err)
			}
			e.do(o)
			c.read(t.Context(), b)
			if c.owed.some.Load() != want {
				t.Errorf("%s after %v: owed %v", o.name(), err, !want)
			}
			c.expire(t.Context(), c.owed.takeAll())
		}
		if ttl, err := server.Do("PTTL", "made anew").AsInt64(); err != nil || ttl > 0 != want {
			t.Errorf("%s: TTL %d, %v", o.name(), ttl, err)
		}
	}
}

func TestACounterWithoutExpiryGetsOneAndForeignOnesAreTold(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, c := commandsOn(t, server)
	at := limit.MaxWindow
	c.fixed(at)
	l := limit.Limit{Count: 60, Window: limit.Minute}
	ours := charge(1, l, 1)
	server.Do("SET", windowKey(ours, at), "50")
	if o := ask(t, s, ours); !admitted(o) || o[0].Decision.Remaining != 9 || o[0].Made {
		t.Errorf("after SET 50: %+v", o)
	}
	noneForEver(t, server)
	for n, words := range [][]string{
		{"SET", "50 apples"}, {"SET", ""}, {"LPUSH", "x"}, {"HSET", "a", "b"}, {"SET", "9223372036854775807"}, {"SET", "1.5"},
		{"SET", strings.Repeat("0", 20) + "1"},
	} {
		for i, when := range []limit.Micros{at, at - l.Window} {
			ch := charge(100+2*n+i, l, 1)
			key := windowKey(ch, when)
			if err := server.Do(append([]string{words[0], key}, words[1:]...)...).Error(); err != nil {
				t.Fatal(err)
			}
			other := charge(200+2*n+i, l, 1)
			o := ask(t, s, ch, other)
			if words[1] == "9223372036854775807" && i == 1 { // a number, if a large one
				if o[0].Status != limiter.Refused {
					t.Errorf("%v in the window before: %+v", words, o)
				}
				continue
			}
			if words[1] == "" && i == 1 { // as good as no value
				if o[0].Status != limiter.Admitted {
					t.Errorf("no bytes in the window before: %+v", o)
				}
				continue
			}
			if o[0].Status != limiter.Foreign || o[1].Status != limiter.Admitted || o[1].Charged {
				t.Errorf("%v in window %d: %+v", words, -i, o)
			}
			if left := ask(t, s, other, charge(1, l, 0))[0].Decision.Remaining; left != l.Count-1 {
				t.Errorf("%v: a bystander was charged: %d left", words, left)
			}
			if ttl, _ := server.Do("PTTL", key).AsInt64(); i == 0 && (ttl <= 0 || ttl > 120_000) {
				t.Errorf("%v: TTL %d ms, want up to two windows", words, ttl)
			}
			if was, err := server.Do("TYPE", key).ToString(); err != nil || (was == "string") != (words[0] == "SET") {
				t.Errorf("%v: became %s, %v", words, was, err)
			}
		}
	}
}

func TestARepeatedCallIsChargedOnce(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, c := commandsOn(t, server)
	c.fixed(limit.MaxWindow)
	l := limit.Limit{Count: 2, Window: limit.Hour}
	repeat := func() *limiter.Call {
		return &limiter.Call{ID: limiter.CallID{7}, Charges: []limiter.Charge{charge(1, l, 1), charge(2, l, 1)}, Outcomes: make([]limiter.Outcome, 2)}
	}
	first := repeat()
	if o := call(t, s, first); !admitted(o) || !o[0].Charged || !o[0].Made {
		t.Errorf("first: %+v", o)
	}
	for range 5 {
		if o := call(t, s, repeat()); !admitted(o) || o[0].Charged || o[1].Charged || o[0].Decision.Remaining != 1 {
			t.Errorf("repeated: %+v", o)
		}
	}
	ask(t, s, charge(1, l, 1))
	if o := call(t, s, repeat()); !admitted(o) { // the limit is used up, but this one was admitted
		t.Errorf("repeated at the limit: %+v", o)
	}
	other := repeat()
	other.ID[0]++
	if o := call(t, s, other); admitted(o) {
		t.Errorf("another call: %+v", o)
	}
	if o := call(t, s, other); admitted(o) { // a refused call is not remembered
		t.Errorf("a refused call, repeated: %+v", o)
	}
	if err := s.Refund(context.Background(), first); err != nil {
		t.Fatal(err)
	}
	if o := call(t, s, repeat()); !admitted(o) || !o[0].Charged { // forgotten with its refund
		t.Errorf("after its refund: %+v", o)
	}
	// One whose process ended before it told anybody does not stand in the way.
	orphan := repeat()
	orphan.ID[0] = 99
	server.Do("SET", idName(&orphan.Charges[0].Counter, orphan.ID), strconv.FormatInt(int64(limit.MaxWindow-1), 10))
	server.Do("DEL", windowKey(orphan.Charges[0], limit.MaxWindow), windowKey(orphan.Charges[1], limit.MaxWindow))
	for i := range 2 {
		if o := call(t, s, orphan); !admitted(o) || o[0].Charged != (i == 0) {
			t.Errorf("call %d of an ID that was left undecided: %+v", i, o)
		}
	}
	if ttl, _ := server.Do("PTTL", idName(&first.Charges[0].Counter, first.ID)).AsInt64(); ttl <= 0 || ttl > 60_000 {
		t.Errorf("an ID is kept for %d ms, want up to a minute", ttl)
	}
}

func TestARefundGoesToItsWindowAndMakesNone(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, c := commandsOn(t, server)
	now := c.fixed(limit.MaxWindow)
	l := limit.Limit{Count: 10, Window: limit.Hour}
	charged := &limiter.Call{Charges: []limiter.Charge{charge(1, l, 4), fixedCharge(2, l, 4)}}
	call(t, s, charged)
	refund := func() {
		t.Helper()
		if err := s.Refund(context.Background(), charged); err != nil {
			t.Fatal(err)
		}
	}
	now.Add(int64(l.Window)) // the next window
	if o := ask(t, s, charge(1, l, 1)); o[0].Decision.Remaining != 5 {
		t.Errorf("before the refund: %+v", o)
	}
	refund()
	if o := ask(t, s, charge(1, l, 0)); o[0].Decision.Remaining != 9 {
		t.Errorf("after it: %+v", o)
	}
	refund() // no more than is owed
	if o := ask(t, s, charge(1, l, 0)); o[0].Decision.Remaining != 9 {
		t.Errorf("after a second: %+v", o)
	}
	server.Flush()
	refund()
	now.Add(int64(3 * l.Window))
	refund()
	if keys := server.Keys(); len(keys) != 0 {
		t.Errorf("a refund made %q", keys)
	}
}

func TestAResetForgetsAllWindows(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, c := commandsOn(t, server)
	now := c.fixed(limit.MaxWindow)
	l := limit.Limit{Count: 10, Window: limit.Hour}
	for range 2 {
		ask(t, s, charge(1, l, 3))
		now.Add(int64(l.Window))
	}
	ask(t, s, charge(1, l, 3), charge(2, l, 1))
	if err := s.Reset(context.Background(), &limiter.Call{Charges: []limiter.Charge{charge(1, l, 1)}}); err != nil {
		t.Fatal(err)
	}
	if o := ask(t, s, charge(1, l, 0), charge(2, l, 0)); o[0].Decision.Remaining != 10 || o[1].Decision.Remaining != 9 {
		t.Errorf("after a reset: %+v", o)
	}
}

// The secret in force when a window starts names it, so that no call counts in two.
func TestARotatedSecretSwitchesAtAWindowsStart(t *testing.T) {
	t.Parallel()
	l := limit.Limit{Count: 10, Window: limit.Hour}
	start := 10_000 * l.Window
	server := valkeytest.Start(t)
	s, c := openCommands(t, Options{Addrs: []string{server.Addr}, SwitchAt: start + l.Window/2})
	now := c.fixed(start)
	ch := charge(1, l, 2)
	ch.Former = name(1001)
	for i, want := range []int64{8, 6, 6, 8} { // the last two: 4 of the window before count whole, then not at all
		if o := ask(t, s, ch); o[0].Decision.Remaining != want-map[int]int64{2: 2}[i] {
			t.Errorf("call %d: %+v", i, o[0].Decision)
		}
		now.Store(int64(start + []limit.Micros{l.Window * 3 / 4, l.Window, 3 * l.Window, 0}[i]))
	}
	for _, key := range server.Keys() {
		former := strings.HasPrefix(key, string(ch.Former[:]))
		n, _ := strconv.ParseInt(key[strings.LastIndex(key, ":")+1:], 36, 64)
		if former != (n == 10_000) {
			t.Errorf("window %d is kept under %s", n, key)
		}
	}
}

// Rules are read before a server tells that it has no functions: one that cannot be kept then must not take others with it.
func TestAnAlgorithmThatCannotBeKeptIsLostAlone(t *testing.T) {
	s, _ := commandsOn(t, valkeytest.Start(t))
	bucket := charge(2, wide, 1)
	bucket.Algorithm = rule.TokenBucket
	shadow, existing := charge(3, wide, 1), charge(4, wide, 1)
	shadow.Algorithm, shadow.Shadow = rule.GCRA, true
	existing.Algorithm, existing.Existing = rule.SlidingLog, true
	c := &limiter.Call{Charges: []limiter.Charge{bucket, charge(1, wide, 1), shadow, existing}}
	o := call(t, s, c)
	var failed *limiter.StoreError
	for _, i := range []int{0, 2, 3} {
		if o[i].Status != limiter.Lost || o[i].Charged || !errors.As(o[i].Err, &failed) || !errors.Is(o[i].Err, errors.ErrUnsupported) {
			t.Errorf("charge %d: %+v", i, o[i])
		}
	}
	if o[1].Status != limiter.Admitted || !o[1].Charged || o[1].Decision.Remaining != 99 {
		t.Errorf("the other: %+v", o[1])
	}
	if err := s.Refund(context.Background(), c); err != nil {
		t.Error(err)
	}
	if o := ask(t, s, charge(1, wide, 0)); o[0].Decision.Remaining != 100 {
		t.Errorf("given back: %+v", o[0])
	}
	err := s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{bucket, shadow}, Outcomes: make([]limiter.Outcome, 2)})
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("of a call of such alone: %v", err)
	}
}

// A shadow charge that is refused is given back behind the answer: the call does not wait for it.
func TestAShadowChargeThatIsGivenBackDelaysNoCall(t *testing.T) {
	server := valkeytest.Start(t)
	line := valkeytest.StartProxy(t, server.Addr)
	s, _ := openCommands(t, Options{Addrs: []string{line.Addr}})
	full := charge(2, limit.Limit{Count: 1, Window: limit.Day}, 1)
	ask(t, s, full)
	full.Shadow = true
	before := server.Calls()
	line.Delay(500*time.Millisecond, 0)
	if o := ask(t, s, charge(1, wide, 1), full); o[0].Status != limiter.Admitted || !o[0].Charged || o[1].Status != limiter.Refused {
		t.Errorf("%+v", o)
	}
	if ran := server.Since(before); ran["incrby"] != 2 || ran["decrby"] != 0 {
		t.Errorf("when the call was answered the server had run %v: it waited for what is given back", ran)
	}
	within(t, "the shadow charge is given back", func() bool { return server.Since(before)["decrby"] == 1 })
	// An enforced one is given back before: who asks next finds it so.
	line.Delay(0, 0)
	full.Shadow = false
	if o := ask(t, s, charge(1, wide, 1), full); o[1].Status != limiter.Refused {
		t.Errorf("%+v", o)
	}
	if ran := server.Since(before); ran["decrby"] != 3 {
		t.Errorf("%v", ran)
	}
}
