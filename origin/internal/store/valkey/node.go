package valkey

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

const (
	// ioTimeout bounds connecting, a write, and the answer to a ping on a silent connection, after which valkey-go
	// takes the connection for dead. Its own default is 10 s.
	ioTimeout = time.Second
	// maxInFlight bounds the requests that wait for one server: what a server that stopped can hold of this process's
	// memory, and what it finds in its sockets when it runs on. It stays below the 1,024 requests that valkey-go
	// queues a connection, with room for the watch's own.
	maxInFlight = 1000
)

// node is one server that counters are kept on: the only one, or a primary of a cluster. It connects in the background and
// is safe for concurrent use.
type node struct {
	addr     string
	s        *Store
	breaker  *breaker.Breaker
	client   atomic.Pointer[valkey.Client]
	ready    chan struct{} // closed once it is connected for the first time
	offset   atomic.Int64  // server time - process time, µs; never below the true one by more than a clock step
	up       atomic.Bool
	refused  atomic.Bool           // a request was answered by an error: the server is up again when one is not
	failure  atomic.Pointer[error] // the last that counted for the breaker, nil before the first
	inFlight chan struct{}
	loading  chan struct{} // held by the one who loads the library
	loads    atomic.Int64  // times that it was loaded
	unloaded atomic.Pointer[unloaded]

	cancel context.CancelFunc
	wake   chan struct{} // a request failed: look at the server now
	done   chan struct{}
	gone   atomic.Bool // it is no part of the cluster any more
}

// unloaded is why the library could not be loaded when it was missing, until it is.
type unloaded struct {
	err error
	at  limit.Micros // by the process's clock
}

// newNode makes a node that does nothing before it is started.
func (s *Store) newNode(addr string) *node {
	n := &node{
		addr: addr, s: s, ready: make(chan struct{}), inFlight: make(chan struct{}, maxInFlight), loading: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	n.breaker = breaker.New(func(state breaker.State) { s.breakerChanged(n, state) })
	s.breakerChanged(n, breaker.Closed)
	return n
}

// start starts connecting, until the node is stopped.
func (n *node) start() {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go n.watch(ctx)
}

// stop closes all connections, and waits for what was sent on them to be answered or given up.
func (n *node) stop() {
	n.gone.Store(true)
	n.cancel()
	<-n.done
	if c := n.client.Swap(nil); c != nil {
		(*c).Close()
	}
	for range maxInFlight {
		n.inFlight <- struct{}{}
	}
	n.s.forgetMetrics(n)
}

var (
	errNotConnected = errors.New("not connected yet")
	errBusy         = fmt.Errorf("%d requests are waiting for the server", maxInFlight)
)

// enter takes a place among those in flight, for one send; false if there is none.
func (n *node) enter() bool {
	select {
	case n.inFlight <- struct{}{}:
		return true
	default:
		return false
	}
}

// send sends commands in one go, by a place that was taken, in a goroutine of its own, and has answered told of all replies. valkey-go minds no
// deadline while it connects, nor while its queue of 1,024 commands a connection is full, which a server that stopped
// fills at once: of 6,400 checks with a deadline of 5 ms, 1,236 were held for seconds. The goroutine keeps its place among
// those in flight until the commands are answered or their connection given up, so that the queue never fills.
func (n *node) send(client valkey.Client, commands []valkey.Completed, answered func([]valkey.ValkeyResult)) {
	go func() {
		replies := client.DoMulti(context.Background(), commands...)
		<-n.inFlight
		answered(replies)
	}()
}

// now is the server's time.
func (n *node) now() limit.Micros { return n.s.now() + limit.Micros(n.offset.Load()) }

// notAfter is ctx's deadline in server time, the largest double if there is none.
func (n *node) notAfter(ctx context.Context) limit.Micros {
	deadline, ok := ctx.Deadline()
	if !ok {
		return limit.Micros(limit.MaxCount)
	}
	return n.now() + limit.Micros(time.Until(deadline).Microseconds())
}

// learnTime corrects the offset by what the server's clock was a moment ago.
func (n *node) learnTime(server limit.Micros) { n.setOffset(server - n.s.now()) }

func (n *node) setOffset(offset limit.Micros) {
	n.offset.Store(int64(offset))
	if g := n.s.options.ClockOffset; g != nil {
		g.WithLabelValues(n.addr).Set(float64(offset) / float64(limit.Second))
	}
}

// loadAfter loads the library for a caller that found it missing when it had been loaded so many times. Of callers that
// find it missing at the same time one loads it: the others wait for that one, at most until their deadline. Where it could
// not be loaded, nobody tries again for a while.
func (n *node) loadAfter(ctx context.Context, loads int64) error {
	select {
	case n.loading <- struct{}{}:
		defer func() { <-n.loading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if n.loads.Load() != loads {
		return nil
	}
	if u := n.unloaded.Load(); u != nil && n.s.now()-u.at < limit.Micros(probeEvery.Microseconds()) {
		return u.err
	}
	client := n.client.Load()
	if client == nil {
		return errNotConnected
	}
	return n.load(ctx, *client)
}

// load gives the server the library.
func (n *node) load(ctx context.Context, client valkey.Client) error {
	n.s.count("function load")
	err := client.Do(ctx, client.B().FunctionLoad().FunctionCode(n.s.library.code).Build()).Error()
	switch {
	case err == nil, strings.Contains(err.Error(), "already exists"):
		// A name that exists is the content's hash: it is the same, loaded by another process.
		n.loads.Add(1)
		n.unloaded.Store(nil)
		return nil
	case strings.Contains(err.Error(), "unknown command"):
		err = fmt.Errorf("%w: %w", errNoFunctions, err)
	}
	return n.cannotLoad(err)
}

// cannotLoad notes that err keeps the server without the library.
func (n *node) cannotLoad(err error) error {
	err = fmt.Errorf("load function library %s: %w", n.s.library.name, err)
	n.unloaded.Store(&unloaded{err, n.s.now()})
	return err
}

func isFunctionMissing(err error) bool {
	return strings.Contains(err.Error(), "Function not found")
}

// failed makes an error of err, which a request to n, nil if to nobody, met, and has the server looked at where it may be
// gone.
func (s *Store) failed(ctx context.Context, n *node, err error) *limiter.StoreError {
	e := storeError(ctx, err)
	if n == nil || e.Reason == reasonOpen {
		return e
	}
	if e.Reason == reasonAnswer {
		n.refused.Store(true)
	}
	n.look()
	return e
}

// look has the watch look at the server now.
func (n *node) look() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// storeError classifies an error.
func storeError(ctx context.Context, err error) *limiter.StoreError {
	e := &limiter.StoreError{Reason: reasonUnreachable, Err: err}
	if _, answered := errors.AsType[*valkey.ValkeyError](err); answered || errors.Is(err, errUnreadable) {
		// It answers, but not this: out of memory, read-only, no permission.
		e.Reason = reasonAnswer
	} else if errors.Is(err, errBusy) {
		e.Reason = reasonBusy
	} else if errors.Is(err, errOpen) {
		e.Reason = reasonOpen
	} else if errors.Is(err, errStale) {
		e.Reason = reasonStale
	} else if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		e.Reason = reasonDeadline
	}
	return e
}

// clientOption is how to connect to a server.
func (s *Store) clientOption(addr string) valkey.ClientOption {
	o := valkey.ClientOption{
		InitAddress:       []string{addr},
		SelectDB:          s.options.DB,
		TLSConfig:         s.options.TLS,
		Dialer:            net.Dialer{Timeout: ioTimeout},
		DialCtxFn:         dialGuarded,
		ConnWriteTimeout:  ioTimeout,
		DisableCache:      true, // counters are never read but to be changed
		DisableRetry:      true, // a check is not repeated behind our back: it may have charged
		AlwaysPipelining:  true, // a lone Do with a deadline would close its connection on expiry
		ForceSingleClient: true,
		ClientName:        "weir",
	}
	if s.options.Credentials != nil {
		o.AuthCredentialsFn = func(valkey.AuthCredentialsContext) (valkey.AuthCredentials, error) {
			user, password, err := s.options.Credentials()
			return valkey.AuthCredentials{Username: user, Password: password}, err
		}
	}
	return o
}
