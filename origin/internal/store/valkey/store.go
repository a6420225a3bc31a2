// Package valkey keeps counters in a Valkey server that all origins of a region share.
//
// One check is one FCALL, whatever the number of its rules: a function library (library.lua) reads, decides and writes
// all counters in one atomic step by the server's clock. See [Store] for what happens when the server does not answer.
package valkey

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

const (
	// probeEvery is how often a server that does not answer is asked whether it does, and clockEvery how often one that
	// does is asked for its time. Half a second is how long a recovery may go unseen; clocks part by microseconds in
	// thirty seconds.
	probeEvery = 500 * time.Millisecond
	clockEvery = 30 * time.Second
	// ioTimeout bounds connecting, a write, and the answer to a ping on a silent connection, after which valkey-go
	// takes the connection for dead. Its own default is 10 s.
	ioTimeout = time.Second
	// maxInFlight bounds the checks that wait for the server: what a server that stopped can hold of this process's
	// memory, and what it finds in its sockets when it runs on. It stays below the 1,024 commands that valkey-go
	// queues a connection, with room for the watch's own.
	maxInFlight = 1000
)

// Reasons of a [limiter.StoreError].
const (
	reasonUnreachable = "unreachable"
	reasonDeadline    = "deadline"
	reasonBusy        = "busy"
	reasonStale       = "stale"
	reasonAnswer      = "answer"
)

// Options name a server. Zero values of the optional ones count nothing and log to the default logger.
type Options struct {
	Addr               string // host:port
	Username, Password string
	DB                 int
	Log                *slog.Logger           // optional
	Commands           *prometheus.CounterVec // optional; label: command
	OnUp               func(up bool)          // optional; called at each change of [Store.Up], one call at a time
}

// Store is a [limiter.Store] on a Valkey server. It connects in the background: a server that is not there at start, or
// goes away, makes checks fail with a [limiter.StoreError], and is used again as soon as it answers. It is safe for
// concurrent use.
type Store struct {
	options  Options
	library  library
	extra    func(context.Context) string // one more argument, for the tests' library; nil in production
	now      func() limit.Micros          // for offset
	client   atomic.Pointer[valkey.Client]
	offset   atomic.Int64 // server time - process time, µs; never below the true one by more than a clock step
	up       atomic.Bool
	refused  atomic.Bool // a check was answered by an error: the server is up again when one is not
	inFlight chan struct{}
	loading  chan struct{} // held by the one who loads the library
	loads    atomic.Int64  // times that it was loaded

	cancel context.CancelFunc
	wake   chan struct{} // a check failed: look at the server now
	done   chan struct{}
}

// New makes a store and starts connecting. The caller closes it.
func New(o Options) *Store { return newStore(o, production) }

func newStore(o Options, l library) *Store {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{
		options: o, library: l,
		now:      func() limit.Micros { return limit.Micros(time.Now().UnixMicro()) },
		inFlight: make(chan struct{}, maxInFlight), loading: make(chan struct{}, 1),
		cancel: cancel, wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go s.watch(ctx)
	return s
}

// Close stops the background work, closes all connections, and waits for what was sent on them to be given up. No Take
// may begin after it.
func (s *Store) Close() {
	s.cancel()
	<-s.done
	if c := s.client.Swap(nil); c != nil {
		(*c).Close()
	}
	for range maxInFlight {
		s.inFlight <- struct{}{}
	}
}

// Up tells whether the server answered when it was asked last.
func (s *Store) Up() bool { return s.up.Load() }

// Take is [limiter.Store.Take]: it decides by the server's clock. With a deadline in ctx the server is told: past it
// the function changes nothing, so that what a server finds in its sockets after a stop charges nobody.
func (s *Store) Take(ctx context.Context, c *limiter.Call) error {
	charges, outcomes := c.Charges, c.Outcomes
	client := s.client.Load()
	if client == nil {
		return &limiter.StoreError{Reason: reasonUnreachable, Err: errors.New("not connected yet")}
	}
	reply, err := s.call(ctx, *client, charges)
	if err != nil {
		return s.failed(ctx, err)
	}
	now, stale, err := s.library.readTake(reply, charges, outcomes)
	if stale {
		// Too late, or the server's clock was stepped: its answer tells which. One more try, by the right offset.
		s.offset.Store(int64(now) - int64(s.now()))
		if reply, err = s.call(ctx, *client, charges); err != nil {
			return s.failed(ctx, err)
		}
		_, stale, err = s.library.readTake(reply, charges, outcomes)
	}
	if stale {
		return &limiter.StoreError{Reason: reasonStale, Err: errors.New("the server was asked after the deadline; nothing was charged")}
	}
	if err != nil {
		return &limiter.StoreError{Reason: reasonAnswer, Err: err}
	}
	return nil
}

// call sends the check. A server that lost the function, by a restart or FUNCTION FLUSH, gets it and is asked again.
func (s *Store) call(ctx context.Context, client valkey.Client, charges []limiter.Charge) (string, error) {
	loads := s.loads.Load()
	reply, err := s.fcall(ctx, client, charges)
	if err != nil && isFunctionMissing(err) {
		if err = s.loadAfter(ctx, client, loads); err == nil {
			reply, err = s.fcall(ctx, client, charges)
		}
	}
	return reply, err
}

func (s *Store) fcall(ctx context.Context, client valkey.Client, charges []limiter.Charge) (string, error) {
	r := s.library.take(limit.Micros(s.notAfter(ctx)), 0, limiter.CallID{}, charges)
	if s.extra != nil {
		r.args = append(r.args, s.extra(ctx))
	}
	s.count("fcall")
	command := client.B().Fcall().Function(r.function).Numkeys(int64(len(r.keys))).Key(r.keys...).Arg(r.args...).Build()
	return s.do(ctx, client, command)
}

// do sends a command in a goroutine of its own. valkey-go minds no deadline while it connects, nor while its queue of
// 1,024 commands a connection is full, which a server that stopped fills at once: of 6,400 checks with a deadline of
// 5 ms, 1,236 were held for seconds. The goroutine keeps its place among those in flight until the command is answered or
// its connection given up, so that the queue never fills.
func (s *Store) do(ctx context.Context, client valkey.Client, command valkey.Completed) (string, error) {
	select {
	case s.inFlight <- struct{}{}:
	default:
		return "", errBusy
	}
	type answer struct {
		reply string
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		reply, err := client.Do(context.Background(), command).ToString()
		<-s.inFlight
		answered <- answer{reply, err}
	}()
	select {
	case a := <-answered:
		return a.reply, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

var errBusy = fmt.Errorf("%d checks are waiting for the server", maxInFlight)

// notAfter is ctx's deadline in server time, the largest double if there is none.
func (s *Store) notAfter(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return limit.MaxCount
	}
	return int64(s.now()) + time.Until(deadline).Microseconds() + s.offset.Load()
}

// loadAfter loads the library for a caller that found it missing when it had been loaded so many times. Of callers that
// find it missing at the same time one loads it: the others wait for that one, at most until their deadline.
func (s *Store) loadAfter(ctx context.Context, client valkey.Client, loads int64) error {
	select {
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.loads.Load() != loads {
		return nil
	}
	return s.load(ctx, client)
}

// load gives the server the library.
func (s *Store) load(ctx context.Context, client valkey.Client) error {
	s.count("function load")
	err := client.Do(ctx, client.B().FunctionLoad().FunctionCode(s.library.code).Build()).Error()
	// A name that exists is the content's hash: it is the same, loaded by another process.
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		return fmt.Errorf("load function library %s: %w", s.library.name, err)
	}
	s.loads.Add(1)
	return nil
}

func (s *Store) count(command string) {
	if s.options.Commands != nil {
		s.options.Commands.WithLabelValues(command).Inc()
	}
}

func isFunctionMissing(err error) bool {
	return strings.Contains(err.Error(), "Function not found")
}

// failed classifies an error and has the server looked at where it may be gone.
func (s *Store) failed(ctx context.Context, err error) error {
	reason := reasonUnreachable
	if _, answered := valkey.IsValkeyErr(err); answered {
		// It answers, but not this: out of memory, read-only, no permission.
		reason = reasonAnswer
		s.refused.Store(true)
	} else if errors.Is(err, errBusy) {
		reason = reasonBusy
	} else if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		reason = reasonDeadline
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return &limiter.StoreError{Reason: reason, Err: err}
}

// Refund is [limiter.Store.Refund].
func (s *Store) Refund(context.Context, *limiter.Call) error {
	return &limiter.StoreError{Reason: reasonAnswer, Err: errors.ErrUnsupported}
}

// Reset is [limiter.Store.Reset].
func (s *Store) Reset(context.Context, *limiter.Call) error {
	return &limiter.StoreError{Reason: reasonAnswer, Err: errors.ErrUnsupported}
}
