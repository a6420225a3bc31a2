package valkey

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// A value that may not be read is no foreign one: a call that meets it has no answer, the server is not up, its breaker
// opens, and none of it stays once the user may.
func TestAValueThatMayNotBeReadIsAnErrorNoForeignValue(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		strategy   Strategy
		denied     string
		algorithms []rule.Algorithm
	}{
		{Function, "getrange", algorithms},
		{Commands, "getrange", []rule.Algorithm{rule.SlidingWindow}},
		{Commands, "incrby", []rule.Algorithm{rule.SlidingWindow, rule.FixedWindow}},
	} {
		t.Run(test.strategy.String()+" "+test.denied, func(t *testing.T) {
			t.Parallel()
			server := valkeytest.Start(t)
			server.User("weir", "secret", leastRules...)
			up := make(chan bool, 64)
			s := New(metered(Options{Addrs: []string{server.Addr}, Credentials: user("weir", "secret"), Strategy: test.strategy, OnUp: func(b bool) { up <- b }}))
			t.Cleanup(s.Close)
			await(t, up, true)
			allow := func(rule string) {
				if err := server.Do("ACL", "SETUSER", "weir", rule).Error(); err != nil {
					t.Fatal(err)
				}
			}
			allow("-" + test.denied)
			refusal := func(what string, err error) (reason string) {
				var failed *limiter.StoreError
				if !errors.As(err, &failed) || failed.Reason != reasonAnswer && failed.Reason != reasonOpen {
					t.Fatalf("%s without %s: %v", what, test.denied, err)
				}
				if failed.Reason == reasonAnswer && !strings.Contains(err.Error(), test.denied) {
					t.Errorf("%s: %v does not name the command", what, err)
				}
				return failed.Reason
			}
			l := limit.Limit{Count: 5, Window: limit.Hour}
			for n, a := range test.algorithms {
				for _, cost := range []int64{1, 0} {
					c := &limiter.Call{Charges: []limiter.Charge{chargeOf(n, a, l, cost)}, Outcomes: make([]limiter.Outcome, 1)}
					if cost == 0 && test.denied == "incrby" {
						continue // a question takes none
					}
					refusal(a.String(), s.Take(context.Background(), c))
				}
			}
			await(t, up, false)
			c := chargeOf(50, test.algorithms[0], l, 1)
			within(t, "the breaker opens", func() bool {
				return refusal("a call", s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{c}, Outcomes: make([]limiter.Outcome, 1)})) == reasonOpen
			})
			allow("+" + test.denied)
			await(t, up, true)
		})
	}
}

// A refund that may not read is told as an error as well: it gave nothing back.
func TestARefundThatMayNotReadIsAnError(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	server.User("weir", "secret", leastRules...)
	for n, a := range algorithms {
		s := start(t, Options{Addrs: []string{server.Addr}, Credentials: user("weir", "secret")})
		c := &limiter.Call{Charges: []limiter.Charge{chargeOf(n, a, roomy, 1)}, Outcomes: make([]limiter.Outcome, 1)}
		if err := s.Take(context.Background(), c); err != nil {
			t.Fatal(err)
		}
		server.User("weir", "secret", append(append([]string{}, leastRules...), "-getrange")...)
		var failed *limiter.StoreError
		if err := s.Refund(context.Background(), c); !errors.As(err, &failed) || failed.Reason != reasonAnswer {
			t.Errorf("%s: %v", a, err)
		}
		server.User("weir", "secret", leastRules...)
		if err := s.Refund(context.Background(), c); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
}
