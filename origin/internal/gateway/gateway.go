// Package gateway is the door for HTTP: a reverse proxy that lets through what the limiter admits.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
)

// Defaults of the bounds of what a gateway does at once.
const (
	// DefaultInFlight requests are at work: at some 50 kB each with buffers, half a gigabyte.
	DefaultInFlight = 10_000
	// DefaultTunnels upgraded connections are open: at two copying goroutines and two buffers of 32 kB, 700 MB.
	DefaultTunnels = 10_000
	// DefaultHeld calls wait for their turn in a leaky queue: each is a connection that somebody keeps open meanwhile.
	DefaultHeld = 1_000
	// DefaultMaxHold is how long one waits at most: what waits for longer has been given up by most clients.
	DefaultMaxHold = 30 * limit.Second
	// DefaultStallTime is what other proxies allow: a client that goes on with its body at the rate of a byte now and then
	// would keep a place of the requests in flight for ever.
	DefaultStallTime = time.Minute
)

// overloadRetry is the wait told to a request over a bound.
const overloadRetry = limit.Second

// Options are what a gateway is made of. A bound or a time of 0 stands for its default; EdgeNames may be empty; the rest is
// required.
type Options struct {
	Upstream *url.URL
	Resolver *identity.Resolver
	// EdgeNames are the DNS names and URIs of certificates whose peers are edges, beside those that Resolver believes by
	// their address. A certificate counts if the port's TLS has verified it.
	EdgeNames []string
	Limiter   *limiter.Limiter
	Metrics   *telemetry.Metrics
	Log       *slog.Logger
	InFlight  int
	Tunnels   int
	Held      int
	MaxHold   limit.Micros
	// UpstreamTimeout bounds the wait for the head of the API's answer.
	UpstreamTimeout time.Duration
	// StallTime is how long a client may send nothing of a body that it has begun, but of a gRPC stream.
	StallTime time.Duration
}

// Gateway is an [http.Handler].
type Gateway struct {
	o        Options
	proxy    *httputil.ReverseProxy
	api      *api
	edges    edgeNames
	requests room
	held     room
	tunnels  tunnels
	wait     func(ctx context.Context, d limit.Micros) bool // until d has passed: true; false if ctx ended first

	answers     [6]prometheus.Counter // of the API by class; 0: odd
	unreachable prometheus.Counter
	slow        prometheus.Counter
}

// New makes a gateway.
//
// The API sees what the client sent, its API key and its query as written included, but for what stands between two hops
// only, and for X-Weir-*. X-Forwarded-* of an edge are kept and continued; of anybody else's none passes, and the API is
// told the peer's. Forwarded never passes, since edges write none. Answers of the API lose X-Weir-*, in early hints and
// trailers too, and where Weir has rate limit fields of its own, the API's of the same names give way. A gRPC call is
// refused as gRPC has it, by status. Upgrades to websockets pass; those to HTTP itself are not done, since calls in such a
// tunnel would go uncounted. gRPC reaches the API as HTTP/2, everything else by what an http URL means.
//
// A websocket takes no place of the requests in flight once it is one: it has a bound of its own.
func New(o Options) *Gateway {
	o.InFlight = cmp.Or(o.InFlight, DefaultInFlight)
	o.Tunnels = cmp.Or(o.Tunnels, DefaultTunnels)
	o.Held = cmp.Or(o.Held, DefaultHeld)
	o.MaxHold = cmp.Or(o.MaxHold, DefaultMaxHold)
	o.UpstreamTimeout = cmp.Or(o.UpstreamTimeout, defaultHeaderTimeout)
	o.StallTime = cmp.Or(o.StallTime, DefaultStallTime)
	g := &Gateway{
		o: o, api: newAPI(o.UpstreamTimeout), edges: newEdgeNames(o.EdgeNames),
		requests: make(room, o.InFlight), held: make(room, o.Held), tunnels: newTunnels(o.Tunnels, o.Metrics.Tunnels), wait: waitFor,
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:        g.rewrite,
		Transport:      g.api,
		ModifyResponse: g.answered,
		ErrorHandler:   g.failed,
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // client aborts, mostly
		BufferPool:     &buffers{},
	}
	for i, class := range []string{"other", "1xx", "2xx", "3xx", "4xx", "5xx"} {
		g.answers[i] = o.Metrics.Upstream.WithLabelValues(class)
	}
	g.unreachable = o.Metrics.Upstream.WithLabelValues("unreachable")
	g.slow = o.Metrics.Upstream.WithLabelValues("timeout")
	return g
}

// Drain waits until no websocket is left, and at the end of ctx cuts those off that are, of which it tells the number. The
// port must take no new connection any more.
func (g *Gateway) Drain(ctx context.Context) (cut int) { return g.tunnels.drain(ctx) }

// Close closes idle connections to the API.
func (g *Gateway) Close() { g.api.close() }

func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := &passage{in: r, place: place{room: g.requests}}
	if !p.place.take() {
		g.overloaded(w, r)
		return
	}
	defer p.place.leave()
	if field := misunderstood(r); field != "" {
		refuse(w, r, header.Problem{Code: header.BadRequest, Field: field})
		return
	}
	if p.upgrade = asksUpgrade(r); p.upgrade {
		// Before the call is counted: one that there is no room for costs nothing.
		if !g.tunnels.room.enter() {
			g.overloaded(w, r)
			return
		}
		defer g.tunnels.room.leave()
	}
	var peer netip.Addr
	peer, p.believed = g.peer(r)
	caller, refused := g.o.Resolver.Resolve(r.Context(), r.Header, peer)
	if refused != nil {
		g.unknown(w, r, refused, p.believed && caller.Key == nil)
		return
	}
	var err error
	p.verdict, err = g.o.Limiter.Check(r.Context(), limiter.Request{
		Caller: caller, Method: r.Method, Path: r.URL.EscapedPath(), Host: r.Host,
		HasHeader: func(name string) bool { return len(r.Header[http.CanonicalHeaderKey(name)]) > 0 },
	})
	if err != nil {
		var field string
		if bad, ok := errors.AsType[*limiter.RequestError](err); ok {
			field = bad.Field
		}
		refuse(w, r, header.Problem{Code: header.BadRequest, Field: field})
		return
	}
	if !p.verdict.Allowed {
		g.denied(w, r, &p.verdict, p.believed)
		return
	}
	if p.verdict.Hold > 0 && !g.hold(w, r, &p.verdict, &p.place) {
		return
	}
	g.pass(w, r, p)
}
