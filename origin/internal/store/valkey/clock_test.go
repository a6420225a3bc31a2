package valkey

import (
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
)

// A clock that is stepped, on or back, is known after the next call, by plain commands, whose answers tell no time, within
// 2 s. Else a deadline that the server is told would be an hour
// away, and what it finds in its sockets after a stop would charge somebody; and processes would not see each other's beats.
func TestAServersClockIsFollowedWhereverItSteps(t *testing.T) {
	t.Parallel()
	for strategy, steps := range map[Strategy][]time.Duration{Function: {time.Hour, -3 * time.Hour, time.Hour}, Commands: {time.Hour, -3 * time.Hour}} {
		t.Run(strategy.String(), func(t *testing.T) {
			t.Parallel()
			followed(t, strategy, steps)
		})
	}
}

func followed(t *testing.T, strategy Strategy, steps []time.Duration) {
	server := valkeytest.StartStepping(t)
	s := start(t, Options{Addrs: []string{server.Addr}, Strategy: strategy})
	n := s.topology.only
	for i, step := range steps {
		server.Step(step)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := s.Take(ctx, &limiter.Call{Charges: []limiter.Charge{charge(i, roomy, 1)}, Outcomes: make([]limiter.Outcome, 1)}); err != nil {
			t.Fatalf("after a step of %v: %v", step, err)
		}
		cancel()
		within(t, "the clock is followed", func() bool {
			apart := n.now() - server.Time()
			return apart < limit.Minute && apart > -limit.Minute
		})
	}
}
