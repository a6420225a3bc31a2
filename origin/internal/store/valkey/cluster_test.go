package valkey

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/storetest"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// metered are options that count all there is to count.
func metered(o Options) Options {
	if o.Log == nil {
		o.Log = quiet
	}
	o.Commands = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "commands"}, []string{"command"})
	o.GiveBacks = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "give_backs"}, []string{"result"})
	o.BreakerState = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "breaker"}, []string{"shard"})
	o.ClockOffset = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "offset"}, []string{"shard"})
	return o
}

// start makes a store, waits until it is up, and closes it with the test.
func start(t testing.TB, o Options) *Store {
	t.Helper()
	up := make(chan bool, 64)
	o.OnUp = func(b bool) { up <- b }
	s := New(metered(o))
	t.Cleanup(s.Close)
	await(t, up, true)
	return s
}

// openCluster makes a store on a cluster, of which it is told one server.
func openCluster(t testing.TB, c *valkeytest.Cluster) *Store {
	t.Helper()
	return start(t, Options{Addrs: []string{c.Nodes[0].Addr}, Cluster: true})
}

// on is the n-th name of those in the slots of a primary of three.
func on(primary, n int) (c limiter.Counter) {
	for tag := n * 7; ; tag++ {
		copy(c[:], fmt.Sprintf("w1:{%04x}:%0*d", tag, len(c)-10, n))
		if slot := int(slotOf(&c)); slot >= primary*slotCount/3 && slot < (primary+1)*slotCount/3 {
			return c
		}
	}
}

func chargeOn(primary, n int, count, cost int64) limiter.Charge {
	return limiter.Charge{Counter: on(primary, n), Algorithm: rule.SlidingWindow, Limit: limit.Limit{Count: count, Window: limit.MaxWindow / 2}, Cost: cost}
}

// three is a call of three principals, one on each primary.
func three(n int, counts ...int64) (charges []limiter.Charge) {
	for primary, count := range counts {
		charges = append(charges, chargeOn(primary, n, count, 1))
	}
	return charges
}

func used(t testing.TB, s *Store, c limiter.Charge) int64 {
	t.Helper()
	c.Cost, c.Limit.Count = 0, limit.MaxCount
	o := take(t, s, -1, c)
	return limit.MaxCount - o[0].Decision.Remaining
}

// since is how often each server of a cluster ran a command while do ran.
func since(c *valkeytest.Cluster, command string, do func()) (n []int64) {
	var before []map[string]int64
	for _, node := range c.Nodes {
		before = append(before, node.Calls())
	}
	do()
	for i, node := range c.Nodes {
		n = append(n, node.Since(before[i])[command])
	}
	return n
}

// within waits until ok says yes: for what another process does, of which there is no event.
func within(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func passes(outcomes []limiter.Outcome) bool {
	for _, o := range outcomes {
		if o.Status != limiter.Admitted {
			return false
		}
	}
	return true
}

// What leaves a cluster as it was shares one: it takes two seconds to start.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	c := valkeytest.StartCluster(t, 3)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *valkeytest.Cluster)
	}{
		{"slots are the servers'", slotsAreTheServers},
		{"conformance", conformance},
		{"several slots are one round trip admitted and two refused", roundTrips},
		{"a shadow charge of a refused call stays charged", shadowStays},
		{"a call over three slots is all-or-none under parallel callers", allOrNone},
		{"giving back goes on past the deadline", givingBackGoesOn},
		{"a refusal that may be by what is given back is asked again soon", askedAgainSoon},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, n := range c.Nodes {
				n.Flush()
			}
			test.run(t, c)
		})
	}
}

func slotsAreTheServers(t *testing.T, c *valkeytest.Cluster) {
	for n := range 50 {
		name := storetest.Name(n)
		copy(name[tagAt:], fmt.Sprintf("%04x", n*1237))
		if got, want := int(slotOf(&name)), c.SlotOf(string(name[:])); got != want {
			t.Errorf("%s: slot %d, the server says %d", name, got, want)
		}
	}
}

// The suite's counters are spread: its calls meet several slots. Givers back may refuse falsely under parallel callers.
func conformance(t *testing.T, c *valkeytest.Cluster) {
	storetest.Suite{GivesBack: true, Spread: true, Seed: *seed, Foreign: foreignValues(ownerOf(c), byName), Open: func(t *testing.T) limiter.Store {
		for _, n := range c.Nodes {
			n.Flush()
		}
		return openCluster(t, c)
	}}.Run(t)
}

// A check of three principals is one round trip, one FCALL a slot, where it is admitted, and two where it is refused: those
// that charged are asked to give back.
func roundTrips(t *testing.T, c *valkeytest.Cluster) {
	s := openCluster(t, c)
	charges := three(1, 100, 100, 2)
	for range 2 {
		if n := since(c, "fcall", func() { take(t, s, -1, charges...) }); fmt.Sprint(n) != "[1 1 1]" {
			t.Errorf("an admitted check was %v FCALL, want one a shard", n)
		}
	}
	var o []limiter.Outcome
	if n := since(c, "fcall", func() { o = take(t, s, -1, charges...) }); fmt.Sprint(n) != "[2 2 1]" {
		t.Errorf("a refused check was %v FCALL, want one a shard and one more on those that charged", n)
	}
	for i, want := range []limiter.Status{limiter.Admitted, limiter.Admitted, limiter.Refused} {
		if o[i].Status != want || o[i].Charged || o[i].Decision.Remaining != []int64{98, 98, 0}[i] {
			t.Errorf("charge %d of a refused check: %+v", i, o[i])
		}
	}
	// What it counted may have been about to be given back: it is remembered for one emission interval, of a longer wait.
	if interval := charges[2].Limit.Window / 2; o[2].AskAgain != interval || o[2].Decision.RetryAfter <= interval {
		t.Errorf("refused for %d µs, to be remembered for %d, want %d", o[2].Decision.RetryAfter, o[2].AskAgain, interval)
	}
	for i, charge := range charges {
		if n := used(t, s, charge); n != 2 {
			t.Errorf("after two admitted checks and a refused one counter %d holds %d", i, n)
		}
	}
	if n := testutil.ToFloat64(s.options.GiveBacks.WithLabelValues(givenBack)); n != 2 {
		t.Errorf("%v give-backs counted, want 2", n)
	}
	// Two slots of one server travel together, a peek is no FCALL that may write.
	together := []limiter.Charge{chargeOn(0, 2, 100, 1), chargeOn(0, 3, 100, 1)}
	if n := since(c, "fcall", func() { take(t, s, -1, together...) }); fmt.Sprint(n) != "[2 0 0]" {
		t.Errorf("two slots of one server were %v FCALL", n)
	}
	for i := range charges {
		charges[i].Cost = 0
	}
	if n := since(c, "fcall", func() { take(t, s, -1, charges...) }); fmt.Sprint(n) != "[0 0 0]" {
		t.Errorf("a peek was %v FCALL", n)
	}
}

// A call over several slots may be refused by a charge that a refused one had given back the moment after.
func askedAgainSoon(t *testing.T, c *valkeytest.Cluster) {
	s := openCluster(t, c)
	charges := three(1, 100, 100, 2)
	for i := range charges {
		charges[i].Limit.Window = 100 * limit.Hour
	}
	take(t, s, -1, charges...)
	if o := take(t, s, -1, charges...); o[2].Next.Allowed || o[2].AskAgain != 50*limit.Hour || o[0].AskAgain != 0 {
		t.Errorf("the last admitted: %+v", o)
	}
	if o := take(t, s, -1, charges...); o[2].Decision.RetryAfter <= 50*limit.Hour || o[2].AskAgain != 50*limit.Hour {
		t.Errorf("refused: %+v", o[2])
	}
	// What one slot alone is asked may count a charge of a call over several.
	if o := take(t, s, -1, charges[2]); o[0].Decision.RetryAfter <= 50*limit.Hour || o[0].AskAgain != 50*limit.Hour {
		t.Errorf("refused by one slot: %+v", o[0])
	}
	charges[2].Cost = 3
	if o := take(t, s, -1, charges...); o[2].AskAgain != limit.Never {
		t.Errorf("a cost that never passes: %+v", o[2])
	}
}

func shadowStays(t *testing.T, c *valkeytest.Cluster) {
	s := openCluster(t, c)
	charges := append(three(1, 100, 100, 0), chargeOn(0, 1, 100, 1), chargeOn(1, 9, 100, 1))
	charges[3].Counter = on(0, 1) // beside an enforced one in its slot
	charges[3].Counter[len(charges[3].Counter)-1] = 'x'
	charges[3].Shadow, charges[4].Shadow = true, true
	o := take(t, s, -1, charges...)
	for i, want := range []struct {
		status  limiter.Status
		charged bool
		used    int64
	}{{limiter.Admitted, false, 0}, {limiter.Admitted, false, 0}, {limiter.Refused, false, 0}, {limiter.Admitted, true, 1}, {limiter.Admitted, true, 1}} {
		if o[i].Status != want.status || o[i].Charged != want.charged || used(t, s, charges[i]) != want.used {
			t.Errorf("charge %d: %+v, %d used; want %+v", i, o[i], used(t, s, charges[i]), want)
		}
	}
}

// A call over three slots is all-or-none under a hundred callers: never over the limit, and refused falsely only while as much
// is in flight as the counter lacks to its limit.
func allOrNone(t *testing.T, c *valkeytest.Cluster) {
	s := openCluster(t, c)
	const callers, each, most = 100, 10, 400
	charges := three(1, most, most+100, most)
	var passed atomic.Int64
	var mu sync.Mutex
	fewest := int64(most)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				o := make([]limiter.Outcome, 3)
				if err := s.Take(context.Background(), &limiter.Call{Charges: charges, Outcomes: o}); err != nil {
					t.Error(err)
				}
				if passes(o) {
					passed.Add(1)
					continue
				}
				mu.Lock()
				fewest = min(fewest, passed.Load())
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	parallel := passed.Load()
	if parallel > most {
		t.Errorf("%d calls passed a limit of %d", parallel, most)
	}
	if fewest < most-callers {
		t.Errorf("a call was refused when %d of %d were used and at most %d in flight", fewest, most, callers)
	}
	for i := range charges {
		if n := used(t, s, charges[i]); n != parallel {
			t.Errorf("%d calls passed, counter %d holds %d", parallel, i, n)
		}
	}
	// Alone, a caller gets what the others were refused falsely.
	rest := int64(0)
	for passes(take(t, s, -1, charges...)) {
		rest++
	}
	if parallel+rest != most {
		t.Errorf("%d and %d calls passed, want %d in all", parallel, rest, most)
	}
	t.Logf("%d of %d callers' calls passed, %d were refused falsely (bound %d), the first refusal at %d used", parallel, callers*each, rest, callers, fewest)
}

// The caller's deadline ends the wait for the give-back, not the give-back.
func givingBackGoesOn(t *testing.T, c *valkeytest.Cluster) {
	s := openCluster(t, c)
	if n := testutil.CollectAndCount(s.options.GiveBacks); n != 3 {
		t.Errorf("%d series of give-backs before the first, want one for each result", n)
	}
	charges := three(1, 100, 100, 0)
	ctx, cancel := context.WithCancel(context.Background())
	s.extra = func(within context.Context) string { // called for each FCALL; those with a deadline are the give-backs
		if _, ok := within.Deadline(); ok {
			cancel()
		}
		return "0"
	}
	o := make([]limiter.Outcome, 3)
	if err := s.Take(ctx, &limiter.Call{Charges: charges, Outcomes: o}); err != nil || passes(o) {
		t.Fatalf("%+v, %v", o, err)
	}
	within(t, "two give-backs", func() bool { return testutil.ToFloat64(s.options.GiveBacks.WithLabelValues(givenBack)) == 2 })
	for i, charge := range charges {
		if n := used(t, s, charge); n != 0 {
			t.Errorf("counter %d holds %d after a refused call", i, n)
		}
	}
	// Beyond the bound they are dropped and counted.
	for range maxGiveBacks {
		s.backs <- struct{}{}
	}
	take(t, s, -1, charges...)
	for range maxGiveBacks {
		<-s.backs
	}
	if n := testutil.ToFloat64(s.options.GiveBacks.WithLabelValues(giveBacksFull)); n != 2 {
		t.Errorf("%v dropped give-backs counted, want 2", n)
	}
}

// A server that stops loses its own counters only, and after a few failures nobody waits for it.
func TestAShardThatStopsLosesItsChargesAlone(t *testing.T) {
	t.Parallel()
	c := valkeytest.StartCluster(t, 3)
	log := make(chan string, 64)
	s := start(t, Options{Addrs: []string{c.Nodes[0].Addr}, Cluster: true, Log: slog.New(slog.NewTextHandler(writer(log), nil))})
	charges := three(1, 1000, 1000, 1000)
	take(t, s, -1, charges...)
	c.Nodes[1].Stop()
	defer c.Nodes[1].Continue()
	call := func() (reason string) {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		o := make([]limiter.Outcome, 3)
		var lost *limiter.StoreError
		if err := s.Take(ctx, &limiter.Call{Charges: charges, Outcomes: o}); err != nil || o[1].Status != limiter.Lost || !errors.As(o[1].Err, &lost) {
			t.Errorf("with one of three servers stopped: %+v, %v", o, err)
			return ""
		}
		for _, i := range []int{0, 2} {
			if o[i].Status != limiter.Admitted || !o[i].Charged {
				t.Errorf("charge %d beside a lost one: %+v", i, o[i])
			}
		}
		return lost.Reason
	}
	const callers, later = 2 * breaker.MinSample, 50
	running := &valkeytest.Cluster{Nodes: []*valkeytest.Server{c.Nodes[0], c.Nodes[2]}}
	fcalls := since(running, "fcall", func() {
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				if reason := call(); reason != reasonDeadline {
					t.Errorf("reason %q, want %s", reason, reasonDeadline)
				}
			})
		}
		wg.Wait()
		for range later {
			if reason := call(); reason != reasonOpen {
				t.Errorf("reason %q after %d failures, want %s", reason, callers, reasonOpen)
			}
		}
	})
	if fmt.Sprint(fcalls) != fmt.Sprint([]int64{callers + later, callers + later}) {
		t.Errorf("%d calls were %v FCALL on the servers that run", callers+later, fcalls)
	}
	if n := testutil.ToFloat64(s.options.BreakerState.WithLabelValues(c.Nodes[1].Addr)); n != float64(breaker.Open) {
		t.Errorf("breaker state %v, want %d", n, breaker.Open)
	}
	var open []string
	for _, shard := range s.Shards() {
		if shard.Breaker != breaker.Closed {
			open = append(open, shard.Addr)
		}
	}
	if strings.Join(open, " ") != c.Nodes[1].Addr {
		t.Errorf("breakers of %v are open, want that of %s", open, c.Nodes[1].Addr)
	}
	within(t, "the log tells why the server is left alone", func() bool {
		select {
		case line := <-log:
			return strings.Contains(line, "left alone") && strings.Contains(line, c.Nodes[1].Addr) && strings.Contains(line, context.DeadlineExceeded.Error())
		default:
			return false
		}
	})
	c.Nodes[1].Continue()
	within(t, "the server is used again", func() bool {
		o := make([]limiter.Outcome, 1)
		return s.Take(context.Background(), &limiter.Call{Charges: charges[1:2], Outcomes: o}) == nil && passes(o)
	})
	// Of what was asked past its deadline nothing was charged: the first call, and the one just now.
	if n := used(t, s, charges[1]); n != 2 {
		t.Errorf("the counter of the stopped server holds %d, want 2", n)
	}
}

// All servers stopped is an error, not a call with nothing but lost charges.
func TestACallOfWhichAllIsLostIsAnError(t *testing.T) {
	t.Parallel()
	c := valkeytest.StartCluster(t, 3)
	s := openCluster(t, c)
	for _, n := range c.Nodes {
		n.Stop()
	}
	defer func() {
		for _, n := range c.Nodes {
			n.Continue()
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	var failed *limiter.StoreError
	if err := s.Take(ctx, &limiter.Call{Charges: three(1, 9, 9, 9), Outcomes: make([]limiter.Outcome, 3)}); !errors.As(err, &failed) || failed.Reason != reasonDeadline {
		t.Errorf("%v", err)
	}
}
