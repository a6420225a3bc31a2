package breaker_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/origin/internal/breaker"
)

// send makes calls that come out as r, and tells how many went through.
func send(b *breaker.Breaker, n int, r breaker.Result) (through int) {
	for range n {
		if done, ok := b.Allow(); ok {
			done(r)
			through++
		}
	}
	return through
}

func TestFewFailuresOrFewCallsOpenNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(nil)
		if n := send(b, breaker.MinSample-1, breaker.Failed); n != breaker.MinSample-1 {
			t.Errorf("%d of %d calls went through below the minimum sample", n, breaker.MinSample-1)
		}
		time.Sleep(2 * breaker.Window)
		// One in twenty is not over 5 %.
		for range 50 {
			send(b, 19, breaker.OK)
			send(b, 1, breaker.Failed)
		}
		if b.State() != breaker.Closed {
			t.Errorf("5 %% failures: %v", b.State())
		}
		send(b, 20, breaker.Failed)
		if b.State() != breaker.Open {
			t.Errorf("over 5 %% failures: %v", b.State())
		}
	})
}

func TestFailuresOfAnotherSecondDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(nil)
		for range 10 { // 19 failures a second, each second, never 20 in one
			send(b, 19, breaker.Failed)
			time.Sleep(breaker.Window + time.Millisecond)
		}
		if b.State() != breaker.Closed {
			t.Errorf("state %v", b.State())
		}
	})
}

func TestAnOpenBreakerLetsOneCallThroughAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var states []breaker.State
		b := breaker.New(func(s breaker.State) { states = append(states, s) })
		send(b, 20, breaker.Failed)
		if n := send(b, 1000, breaker.OK); n != 0 {
			t.Errorf("%d calls went through an open breaker", n)
		}
		time.Sleep(breaker.OpenTime + time.Millisecond)
		var all []func(breaker.Result)
		for range 100 {
			if done, ok := b.Allow(); ok {
				all = append(all, done)
			}
		}
		if len(all) != 1 {
			t.Fatalf("%d probes, want 1", len(all))
		}
		all[0](breaker.Failed)
		if n := send(b, 100, breaker.OK); n != 0 || b.State() != breaker.Open {
			t.Errorf("after a failed probe %d calls went through, state %v", n, b.State())
		}
		time.Sleep(breaker.OpenTime + time.Millisecond)
		if send(b, 1, breaker.OK) != 1 || send(b, 100, breaker.OK) != 100 {
			t.Error("after a good probe not all calls go through")
		}
		want := []breaker.State{breaker.Open, breaker.Probing, breaker.Open, breaker.Probing, breaker.Closed}
		if !slices.Equal(states, want) {
			t.Errorf("states %v, want %v", states, want)
		}
	})
}

func TestACallerWhoWentAwayCountsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(nil)
		send(b, 1000, breaker.Void)
		if b.State() != breaker.Closed {
			t.Errorf("state %v", b.State())
		}
		send(b, 20, breaker.Failed)
		time.Sleep(breaker.OpenTime + time.Millisecond)
		if send(b, 1, breaker.Void) != 1 || send(b, 1, breaker.OK) != 1 || b.State() != breaker.Closed {
			t.Error("a probe whose caller went away keeps the next one out")
		}
	})
}

// A call that began before the breaker opened must not close it.
func TestALateAnswerChangesNoNewState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(nil)
		late, _ := b.Allow()
		send(b, 20, breaker.Failed)
		late(breaker.OK)
		if b.State() != breaker.Open {
			t.Errorf("state %v", b.State())
		}
	})
}

func TestCallsThatTakeLongerThanTheWindowCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(nil)
		var all []func(breaker.Result)
		for range breaker.MinSample {
			done, _ := b.Allow()
			all = append(all, done)
		}
		time.Sleep(3 * breaker.Window)
		for _, done := range all {
			done(breaker.Failed)
		}
		if b.State() != breaker.Open {
			t.Errorf("state %v", b.State())
		}
	})
}

func TestManyCallersAreSafe(t *testing.T) {
	b := breaker.New(nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { send(b, 2000, breaker.Result(i%2)) })
	}
	wg.Wait()
	if b.State() != breaker.Open {
		t.Errorf("half of all calls failed: %v", b.State())
	}
}
