package server

import (
	"github.com/weirproject/weir/origin/internal/admin"
	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/shared/limit"
)

// valkeyOptions are how to use the servers that weir.yaml names.
func (s *Server) valkeyOptions(v *config.Valkey) valkey.Options {
	strategy, _ := valkey.ParseStrategy(v.Strategy) // checked with weir.yaml
	o := valkey.Options{
		Addrs: v.Addresses, Cluster: v.Cluster, DB: v.DB, TLS: v.TLS, Credentials: v.Credentials, Strategy: strategy,
		Deadline: s.config.Store.Deadline, Process: true, LiveProcesses: s.metrics.LiveProcesses, Uncounted: s.metrics.Uncounted,
		Log: s.log, Commands: s.metrics.StoreCommands, GiveBacks: s.metrics.GiveBacks,
		BreakerState: s.metrics.BreakerState, ClockOffset: s.metrics.ClockOffset,
		OnUp:       func(up bool) { s.metrics.StoreUp.Set(oneIf(up)) },
		OnStrategy: s.tellUnsupported,
		OnForget: func(c limiter.Counter) {
			if l := s.forgetter.Load(); l != nil {
				l.Forget(c)
			}
		},
	}
	if s.config.Secrets.Former != nil {
		o.SwitchAt = limit.Micros(s.config.Secrets.SwitchAt.UnixMicro())
	}
	return o
}

// valkeyReadiness tells how the servers stand.
func (s *Server) valkeyReadiness() admin.Store {
	store := admin.Store{Kind: "valkey", Up: s.valkey.Up(), Processes: s.valkey.Processes(), Uncounted: s.valkey.Uncounted()}
	for _, shard := range s.valkey.Shards() {
		store.Shards = append(store.Shards, admin.Shard{Address: shard.Addr, Up: shard.Up, Breaker: shard.Breaker.String()})
		// One that waits to be probed may wait long where nobody calls: what its server answers goes before.
		store.Up = store.Up && shard.Breaker != breaker.Open
	}
	return store
}

// parseRules reads a release, and refuses rules that the store cannot keep.
func (s *Server) parseRules(name string, content []byte) (*rules.Release, error) {
	r, err := rules.Parse(name, content)
	v := s.config.Store.Valkey
	if err != nil || v == nil {
		return r, err
	}
	strategy, _ := valkey.ParseStrategy(v.Strategy)
	supports := strategy.Supports
	if s.valkey != nil {
		supports = s.valkey.Supports // auto became one of the others when a server was reached
	}
	return r, valkey.Unsupported(name, r.Set, supports).Err()
}

// tellUnsupported tells which rules in force the store cannot keep: a server without functions may be met only after the
// start. Such rules answer by their on-store-failure.
func (s *Server) tellUnsupported(strategy valkey.Strategy) {
	for _, fault := range valkey.Unsupported(s.config.Rules, s.rules.Get().Set, strategy.Supports) {
		s.log.Error("a rule cannot be kept by the store: it answers by its on-store-failure", "reason", fault.Error())
	}
}
