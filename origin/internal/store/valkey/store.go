// Package valkey keeps counters in a Valkey server, or cluster, that all origins of a region share.
//
// A check of counters in one slot is one FCALL, whatever their number: a function library (library.lua) reads, decides and
// writes all of them in one atomic step by the server's clock. Counters of several slots are asked for in parallel, and
// those that charged are given back where another refuses. See [Store] for what happens when a server does not answer.
package valkey

import (
	"context"
	"crypto/tls"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/origin/internal/clock"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Reasons of a [limiter.StoreError].
const (
	reasonUnreachable = "unreachable"
	reasonDeadline    = "deadline"
	reasonBusy        = limiter.Busy
	reasonStale       = "stale"
	reasonAnswer      = "answer"
	reasonOpen        = limiter.Open
)

// Options name the servers. Zero values of the optional ones count nothing and log to the default logger.
type Options struct {
	Addrs   []string // host:port of the server; of a cluster some of its servers, from which the others are learnt
	Cluster bool
	DB      int         // 0 in a cluster
	TLS     *tls.Config // nil: none
	// Credentials are asked for at each connection; nil: none are needed. An empty user is the default one.
	Credentials func() (user, password string, err error)
	Strategy    Strategy
	// SwitchAt is when counters with a Former are first named by their Counter, by the servers' clocks.
	SwitchAt limit.Micros
	// Clock, for made-up time, is what plain commands go by in place of the process's clock with its offset to a server's.
	// Counters are kept on servers for up to an hour longer than they are of use.
	Clock func() limit.Micros

	// Deadline is what a check has: by that the store tries a server that was left alone while nobody calls. 0: a second.
	Deadline time.Duration

	// Process has the store count among the live processes, as one that takes calls does: see [Store.Processes].
	Process bool

	Log          *slog.Logger           // optional
	Commands     *prometheus.CounterVec // optional; label: command
	GiveBacks    *prometheus.CounterVec // optional; label: result
	BreakerState *prometheus.GaugeVec   // optional; label: shard
	ClockOffset  *prometheus.GaugeVec   // optional; label: shard
	// LiveProcesses, optional, is how many processes were live when they were counted last.
	LiveProcesses prometheus.Gauge
	// Uncounted, optional, is 1 while [Store.Uncounted] tells why they are not.
	Uncounted  prometheus.Gauge
	OnUp       func(up bool)  // optional; called at each change of [Store.Up], one call at a time
	OnStrategy func(Strategy) // optional; called once where Strategy is Auto, with what it came to mean
	// OnForget, optional, is told counters that another process announced as changed by other means than a check. Anybody
	// who may publish on the server can call it. It must be quick.
	OnForget func(limiter.Counter)

	onSubscribed func() // for tests: hints are heard from now on
}

// shown names the servers in logs.
func (o *Options) shown() string { return strings.Join(o.Addrs, ",") }

// Store is a [limiter.Store] on a Valkey server or cluster. It connects in the background: a server that is not there at
// start, or goes away, makes checks fail with a [limiter.StoreError], or loses their charges on it, and is used again as soon
// as it answers. One that fails too often is left alone for a while. It is safe for concurrent use.
type Store struct {
	options  Options
	library  library
	extra    func(context.Context) string // one more argument, for the tests' library; nil in production
	now      func() limit.Micros          // for offsets, which stay right since it never steps
	strategy atomic.Pointer[strategy]     // nil until a server told what it can
	topology topology
	backs    chan struct{} // held by each give-back under way
	repeats  repeats
	hints    hints
	beats    beats

	telling      sync.Mutex
	up           atomic.Bool
	mapped       atomic.Bool // the cluster told once who has its slots
	topologyTold troubles

	looked     chan struct{} // closed once it is known how the servers stand
	lookedOnce sync.Once

	cancel context.CancelFunc
}

// New makes a store and starts connecting. The caller closes it.
func New(o Options) *Store { return newStore(o, production) }

func newStore(o Options, l library) *Store {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{options: o, library: l, now: clock.Anchored(), backs: make(chan struct{}, maxGiveBacks), cancel: cancel, looked: make(chan struct{})}
	s.startStrategy()
	t := &s.topology
	t.refresh, t.done, t.nodes, t.wanted = make(chan struct{}, 1), make(chan struct{}), map[string]*node{}, map[string]time.Time{}
	for _, result := range []string{givenBack, notGivenBack, giveBacksFull} { // at zero, so that a rate over the first is right
		s.countGiveBacks(result, 0)
	}
	if o.Cluster {
		go s.follow(ctx)
	} else {
		t.only = s.newNode(o.Addrs[0])
		t.only.start()
	}
	s.startHints(ctx)
	s.startBeats(ctx)
	return s
}

// Close stops the background work, closes all connections, and waits for what was sent on them to be given up. No other
// method may be called after it.
func (s *Store) Close() {
	s.cancel()
	for range maxGiveBacks {
		s.backs <- struct{}{}
	}
	s.hints.wait()
	s.beats.running.Wait()
	s.topology.stop()
}

// Take is [limiter.Store.Take]: servers decide by their own clocks. With a deadline in ctx they are told: past it the
// function changes nothing, so that what a server finds in its sockets after a stop charges nobody.
func (s *Store) Take(ctx context.Context, c *limiter.Call) error {
	st, err := s.chosen()
	if err != nil {
		return err
	}
	return st.take(ctx, c)
}

// Refund is [limiter.Store.Refund].
func (s *Store) Refund(ctx context.Context, c *limiter.Call) error {
	st, err := s.chosen()
	if err != nil {
		return err
	}
	return st.refund(ctx, c)
}

// Reset is [limiter.Store.Reset].
func (s *Store) Reset(ctx context.Context, c *limiter.Call) error {
	st, err := s.chosen()
	if err != nil {
		return err
	}
	return st.reset(ctx, c)
}

// Slot tells counters apart that one step cannot decide together: those of different slots, in a cluster.
func (s *Store) Slot(c *limiter.Counter) uint32 {
	if !s.options.Cluster {
		return 0
	}
	return uint32(slotOf(c))
}

// Up tells whether all servers answered when they were asked last.
func (s *Store) Up() bool { return s.up.Load() }

// AwaitFirst waits until it is known whether the servers answer, and how many processes there are if they do, or until ctx
// ends: a process that takes calls before would count them by itself, beside what others count.
func (s *Store) AwaitFirst(ctx context.Context) {
	select {
	case <-s.looked:
	case <-ctx.Done():
	}
	select {
	case <-s.beats.first:
	case <-ctx.Done():
	}
}

// Shard is how one server stands.
type Shard struct {
	Addr    string
	Up      bool
	Breaker breaker.State
}

// Shards are the servers as they stand, in the order of their addresses: those known, in a cluster none before one was
// reached.
func (s *Store) Shards() []Shard {
	var shards []Shard
	for _, n := range s.topology.all() {
		shards = append(shards, Shard{n.addr, n.up.Load(), n.breaker.State()})
	}
	return shards
}

func (s *Store) count(command string) {
	if s.options.Commands != nil {
		s.options.Commands.WithLabelValues(command).Inc()
	}
}

func (s *Store) breakerChanged(n *node, state breaker.State) {
	if s.options.BreakerState != nil {
		s.options.BreakerState.WithLabelValues(n.addr).Set(float64(state))
	}
	if state == breaker.Open {
		reason := ""
		if failure := n.failure.Load(); failure != nil {
			reason = (*failure).Error()
		}
		s.options.Log.Warn("store fails: it is left alone for a while", "store", n.addr, "for", breaker.OpenTime.String(), "reason", reason)
	}
}

// forgetMetrics drops what is shown of a server that left.
func (s *Store) forgetMetrics(n *node) {
	if s.options.BreakerState != nil {
		s.options.BreakerState.DeleteLabelValues(n.addr)
	}
	if s.options.ClockOffset != nil {
		s.options.ClockOffset.DeleteLabelValues(n.addr)
	}
}

// upChanged looks at all servers after one changed.
func (s *Store) upChanged() {
	s.telling.Lock()
	defer s.telling.Unlock()
	up := !s.options.Cluster || s.mapped.Load()
	for _, n := range s.topology.all() {
		up = up && n.up.Load()
	}
	if s.up.Swap(up) != up && s.options.OnUp != nil {
		s.options.OnUp(up)
	}
	if up || !s.options.Cluster {
		s.firstLookDone()
	}
}

func (s *Store) firstLookDone() { s.lookedOnce.Do(func() { close(s.looked) }) }

// tell logs each trouble of an outage, and its end.
func (s *Store) tell(told *troubles, store, what string, err error) {
	if err == nil {
		if told.over() {
			s.options.Log.Info("store answers again", "store", store)
		}
		return
	}
	if reason, news := told.add(err); news {
		s.options.Log.Error(what, "store", store, "reason", reason)
	}
}

// Supports tells whether rules of an algorithm can be kept. While no server has told what it can, all of those that a
// server with functions can keep are taken.
func (s *Store) Supports(a rule.Algorithm) bool {
	if st := s.strategy.Load(); st != nil {
		return (*st).supports(a)
	}
	return true
}
