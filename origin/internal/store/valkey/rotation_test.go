package valkey

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/storetest"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
)

// rotating is a store all of whose counters have a former name.
type rotating struct{ limiter.Store }

func former(c limiter.Counter) limiter.Counter {
	for i := len("w1:{hhhh}:"); i < len(c); i++ {
		c[i] ^= 1
	}
	return c
}

func (s rotating) do(c *limiter.Call, do func(*limiter.Call) error) error {
	two := *c
	two.Charges = slices.Clone(c.Charges)
	for i := range two.Charges {
		two.Charges[i].Former = former(two.Charges[i].Counter)
	}
	return do(&two)
}

func (s rotating) Take(ctx context.Context, c *limiter.Call) error {
	return s.do(c, func(two *limiter.Call) error { return s.Store.Take(ctx, two) })
}

func (s rotating) Refund(ctx context.Context, c *limiter.Call) error {
	return s.do(c, func(two *limiter.Call) error { return s.Store.Refund(ctx, two) })
}

func (s rotating) Reset(ctx context.Context, c *limiter.Call) error {
	return s.do(c, func(two *limiter.Call) error { return s.Store.Reset(ctx, two) })
}

// A store keeps all its promises while a secret is replaced, before the switch and after it.
func TestConformanceWhileASecretIsReplaced(t *testing.T) {
	server := valkeytest.Start(t)
	for when, switchAt := range map[string]limit.Micros{"before": limit.Micros(limit.MaxCount), "after": 1} {
		named := byName
		if when == "before" {
			named = func(c limiter.Charge) string { name := former(c.Counter); return string(name[:]) }
		}
		t.Run("function, "+when, func(t *testing.T) {
			s := start(t, Options{Addrs: []string{server.Addr}, SwitchAt: switchAt})
			storetest.Suite{
				Seed: *seed, Foreign: foreignValues(func(string) *valkeytest.Server { return server }, named),
				Contents: func(*testing.T, limiter.Store) map[string]string { return dumped(server) },
				Open:     func(*testing.T) limiter.Store { server.Flush(); return rotating{s} },
			}.Run(t)
		})
		t.Run("commands, "+when, func(t *testing.T) {
			s, c := openCommands(t, Options{Addrs: []string{server.Addr}, SwitchAt: switchAt})
			now := c.fixed(0)
			c.spare = madeUpSpare
			all := suite(func(*testing.T) (*Store, *atomic.Int64) { server.Flush(); return s, now },
				func() map[string]string { return contents(server) })
			opened := all.Open
			all.Open = func(t *testing.T) limiter.Store { return rotating{opened(t)} }
			all.Run(t)
		})
	}
}
