package valkey

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

const (
	// patient is the deadline of a call that is to get through whatever the machine is busy with.
	patient = 20 * time.Second
	// limit1e9 is a limit that no test reaches.
	limit1e9 = 1_000_000_000
)

// load calls a store from many goroutines until it is stopped, each call with the deadline of a patient caller.
type load struct {
	stop    chan struct{}
	callers sync.WaitGroup
	charges func(caller int) []limiter.Charge

	passed, refused, failed atomic.Int64
	each                    []atomic.Int64 // passed, by caller

	mu      sync.Mutex
	reasons map[string]int // why calls failed, how often
	seen    []string       // the first errors
}

// underLoad starts callers, each of which makes the same call again and again.
func underLoad(s *Store, callers int, charges func(caller int) []limiter.Charge) *load {
	l := &load{stop: make(chan struct{}), reasons: map[string]int{}, charges: charges, each: make([]atomic.Int64, callers)}
	for i := range callers {
		l.callers.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				l.call(s, i)
			}
		})
	}
	return l
}

func (l *load) call(s *Store, caller int) {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	charges := l.charges(caller)
	o := make([]limiter.Outcome, len(charges))
	err := s.Take(ctx, &limiter.Call{Charges: charges, Outcomes: o})
	for i := range o {
		if err == nil && o[i].Status == limiter.Lost {
			err = o[i].Err
		}
	}
	switch {
	case err != nil:
		l.failed.Add(1)
		l.mu.Lock()
		if failed, ok := err.(*limiter.StoreError); ok {
			l.reasons[failed.Reason]++
		}
		if len(l.seen) < 3 {
			l.seen = append(l.seen, err.Error())
		}
		l.mu.Unlock()
	case passes(o):
		l.passed.Add(1)
		l.each[caller].Add(1)
	default:
		l.refused.Add(1)
	}
}

// await waits until so many more calls have passed.
func (l *load) await(t testing.TB, more int64) {
	t.Helper()
	target := l.passed.Load() + more
	within(t, "calls that pass", func() bool { return l.passed.Load() >= target })
}

// end stops the callers and tells how often each one's call passed.
func (l *load) end() (passed []int64) {
	close(l.stop)
	l.callers.Wait()
	for i := range l.each {
		passed = append(passed, l.each[i].Load())
	}
	return passed
}

// A slot that moves under load loses no call and charges none twice: calls of one counter, of several in the slot of which
// some exist and some do not, and of other slots beside it.
func TestASlotThatMovesLosesNoCallAndChargesNoneTwice(t *testing.T) {
	t.Parallel()
	c := valkeytest.StartCluster(t, 3)
	s := openCluster(t, c)
	const callers, moves = 16, 6
	counter := func(i int) limiter.Charge {
		charge := chargeOn(0, 1, limit1e9, 1)
		charge.Counter[len(charge.Counter)-1] = byte('a' + i)
		return charge
	}
	var fresh atomic.Int64 // names in the slot that no call had before
	l := underLoad(s, callers, func(i int) []limiter.Charge {
		switch i % 4 {
		case 0:
			return []limiter.Charge{counter(i)}
		case 1:
			return []limiter.Charge{counter(i), chargeOn(1, i, limit1e9, 1)}
		case 2: // keys that exist and keys that do not
			once := chargeOn(0, 1, limit1e9, 1)
			n := fresh.Add(1)
			for at := len(once.Counter) - 8; at < len(once.Counter); at++ {
				once.Counter[at] = byte('A' + n%26)
				n /= 26
			}
			return []limiter.Charge{counter(i), once}
		default:
			return []limiter.Charge{counter(i), counter(i + callers)}
		}
	})
	l.await(t, 500)
	first := on(0, 1)
	slot := int(slotOf(&first))
	for move := range moves {
		to := (move + 1) % 3
		c.BeginMove(slot, to)
		l.await(t, 300) // ASK and TRYAGAIN for keys that are not there
		c.FinishMove(slot, to)
		l.await(t, 300)
	}
	passed := l.end()
	if l.failed.Load() > 0 || l.refused.Load() > 0 {
		t.Errorf("of %d calls %d failed (%v: %v), %d were refused", l.passed.Load(), l.failed.Load(), l.reasons, l.seen, l.refused.Load())
	}
	for i, n := range passed {
		if got := used(t, s, counter(i)); got != n {
			t.Errorf("caller %d: %d calls passed, its counter holds %d", i, n, got)
		}
	}
	asked := testutil.ToFloat64(s.options.Commands.WithLabelValues("asking"))
	t.Logf("%d calls over %d moves, %v asked for while a slot was on its way", l.passed.Load(), moves, asked)
	if asked == 0 {
		t.Error("no call met a slot on its way: the test shows nothing")
	}
}

// A replica that takes over while its primary runs costs no call: what was counted goes on, calls are sent on to it.
func TestAFailoverCostsNoCall(t *testing.T) {
	t.Parallel()
	c := valkeytest.StartClusterWithReplicas(t, 3, 1)
	s := openCluster(t, c)
	const callers = 8
	l := underLoad(s, callers, func(i int) []limiter.Charge {
		return []limiter.Charge{chargeOn(0, i, limit1e9, 1), chargeOn(1, i, limit1e9, 1)}
	})
	l.await(t, 300)
	c.Failover(0)
	l.await(t, 300)
	passed := l.end()
	if l.failed.Load() > 0 || l.refused.Load() > 0 {
		t.Errorf("of %d calls %d failed (%v: %v), %d were refused", l.passed.Load(), l.failed.Load(), l.reasons, l.seen, l.refused.Load())
	}
	for i, n := range passed {
		if got := used(t, s, chargeOn(0, i, limit1e9, 1)); got != n {
			t.Errorf("caller %d: %d calls passed, its counter holds %d", i, n, got)
		}
	}
	within(t, "the servers are the three primaries", func() bool {
		shards := s.Shards()
		found := false
		for _, shard := range shards {
			found = found || shard.Addr == c.Nodes[3].Addr && shard.Up
		}
		return found && s.Up()
	})
}

// A primary that dies is replaced: its counters are lost, or fail, until a replica takes over, and none after.
func TestADeadPrimaryIsReplaced(t *testing.T) {
	t.Parallel()
	c := valkeytest.StartClusterWithReplicas(t, 3, 1)
	s := openCluster(t, c)
	take(t, s, -1, three(1, 100, 100, 100)...)
	c.Nodes[1].Kill()
	c.AwaitPrimary(4)
	within(t, "calls pass again", func() bool {
		o := make([]limiter.Outcome, 3)
		return s.Take(context.Background(), &limiter.Call{Charges: three(1, 100, 100, 100), Outcomes: o}) == nil && passes(o)
	})
	within(t, "the dead one is let go", func() bool {
		for _, shard := range s.Shards() {
			if shard.Addr == c.Nodes[1].Addr {
				return false
			}
		}
		return s.Up()
	})
}

// A library that is lost under load costs no call, and is loaded once on each server.
func TestALibraryThatIsLostUnderLoadIsLoadedOncePerServer(t *testing.T) {
	t.Parallel()
	c := valkeytest.StartCluster(t, 3)
	s := openCluster(t, c)
	const callers, flushes = 32, 5
	l := underLoad(s, callers, func(i int) []limiter.Charge {
		return []limiter.Charge{chargeOn(0, i, limit1e9, 1), chargeOn(1, i, limit1e9, 1), chargeOn(2, i, limit1e9, 1)}
	})
	loads := since(c, "function|load", func() {
		for range flushes {
			for _, n := range c.Nodes {
				if err := n.Do("FUNCTION", "FLUSH").Error(); err != nil {
					t.Fatal(err)
				}
			}
			l.await(t, 3*callers) // each caller's next call begins after the flush
		}
	})
	passed := l.end()
	if l.failed.Load() > 0 || l.refused.Load() > 0 {
		t.Errorf("of %d calls %d failed (%v: %v), %d were refused", l.passed.Load(), l.failed.Load(), l.reasons, l.seen, l.refused.Load())
	}
	for i, n := range loads {
		if n != flushes {
			t.Errorf("server %d: %d flushes led to %d loads, want one each", i, flushes, n)
		}
	}
	for i, n := range passed {
		for primary := range 3 {
			if got := used(t, s, chargeOn(primary, i, limit1e9, 1)); got != n {
				t.Errorf("caller %d: %d calls passed, its counter on server %d holds %d", i, n, primary, got)
			}
		}
	}
	for _, shard := range s.Shards() {
		if shard.Breaker != 0 {
			t.Errorf("%s: breaker %v", shard.Addr, shard.Breaker)
		}
	}
}

// A server that is killed and runs again is given the library once, and no call fails for the want of it.
func TestAServerThatRestartsUnderLoadIsLoadedOnce(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s := start(t, Options{Addrs: []string{server.Addr}})
	l := underLoad(s, 32, func(i int) []limiter.Charge { return []limiter.Charge{chargeOn(0, i, limit1e9, 1)} })
	l.await(t, 500)
	server.Kill()
	server.Run()
	l.await(t, 500)
	l.end()
	if n := server.Calls()["function|load"]; n != 1 {
		t.Errorf("%d loads after a restart, want 1", n)
	}
	if l.reasons[reasonAnswer] > 0 {
		t.Errorf("failed calls: %v: %v", l.reasons, l.seen)
	}
	t.Logf("%d calls passed, failed while the server was gone: %v", l.passed.Load(), l.reasons)
}
