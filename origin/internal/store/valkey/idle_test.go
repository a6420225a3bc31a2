package valkey

import (
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

// An outage that ends while nobody calls is over all the same: the breaker closes, and the process counts as live again.
func TestAnOutageEndsWithoutACall(t *testing.T) {
	t.Parallel()
	for _, strategy := range []Strategy{Function, Commands} {
		t.Run(strategy.String(), func(t *testing.T) {
			t.Parallel()
			server := valkeytest.Start(t)
			s := start(t, Options{Addrs: []string{server.Addr}, Strategy: strategy, Process: true, Deadline: 10 * time.Second})
			n := s.topology.only
			server.Stop()
			defer server.Continue()
			within(t, "the breaker opens", func() bool {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
				defer cancel()
				_ = s.Take(ctx, &limiter.Call{Charges: []limiter.Charge{charge(1, roomy, 1)}, Outcomes: make([]limiter.Outcome, 1)})
				return n.breaker.State() == breaker.Open
			})
			server.Continue()
			within(t, "the breaker closes", func() bool { return n.breaker.State() == breaker.Closed })
			if err := server.Do("DEL", liveKey).Error(); err != nil {
				t.Fatal(err)
			}
			within(t, "it is counted again", func() bool {
				live, err := server.Do("ZCARD", liveKey).AsInt64()
				return err == nil && live == 1
			})
		})
	}
}

// A server that is slow is tried by what a check has, once each time that it was left alone, and stays so.
func TestASlowServerIsLeftAloneThoughNobodyCalls(t *testing.T) {
	t.Parallel()
	proxy := valkeytest.StartProxy(t, valkeytest.Start(t).Addr)
	s := start(t, Options{Addrs: []string{proxy.Addr}, Deadline: 20 * time.Millisecond})
	n := s.topology.only
	proxy.Delay(50*time.Millisecond, 0)
	proxy.Count("FCALL")
	within(t, "the breaker opens", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_ = s.Take(ctx, &limiter.Call{Charges: []limiter.Charge{charge(1, roomy, 1)}, Outcomes: make([]limiter.Outcome, 1)})
		return n.breaker.State() == breaker.Open
	})
	asked := proxy.Counted()
	within(t, "it is tried", func() bool { return proxy.Counted() > asked })
	within(t, "it is left alone again", func() bool { return n.breaker.State() == breaker.Open })
	if n := proxy.Counted() - asked; n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	if !s.Up() {
		t.Error("it answers, if slowly, and is told as away")
	}
	proxy.Delay(0, 0)
	within(t, "the breaker closes", func() bool { return n.breaker.State() == breaker.Closed })
}
