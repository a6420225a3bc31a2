// Package gateway is the door for HTTP: a reverse proxy that lets through what the limiter admits.
package gateway

import (
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

const (
	// internalPrefix begins the headers that edges and origins say things to each other with.
	internalPrefix = "X-Weir-"
	// degradedHeader tells that a rule was answered without its counter.
	degradedHeader = "X-Ratelimit-Degraded"
	// DefaultInFlight bounds the requests at work at once: at some 50 kB each with buffers, half a gigabyte.
	DefaultInFlight = 10_000
	// overloadRetry is the wait told to a request over that bound.
	overloadRetry = limit.Second
)

// Options are what a gateway is made of. InFlight 0 stands for [DefaultInFlight]; the rest is required.
type Options struct {
	Upstream *url.URL
	Resolver *identity.Resolver
	Limiter  *limiter.Limiter
	Metrics  *telemetry.Metrics
	Log      *slog.Logger
	InFlight int
}

// Gateway is an [http.Handler].
type Gateway struct {
	o     Options
	proxy *httputil.ReverseProxy
	api   *api
	slots chan struct{}
}

// New makes a gateway.
//
// The API sees what the client sent, its API key and its query as written included, but for X-Weir-* headers.
// X-Forwarded-* of an edge are kept and continued; of anybody else's none passes, and the API is told the peer's.
// Answers of the API lose X-Weir-*, in early hints and trailers too, and where Weir has rate limit fields of its own,
// the API's of the same names give way. A gRPC call is refused as gRPC has it, by status. Upgrades to websockets pass; those to HTTP itself are not done, since calls
// in such a tunnel would go uncounted. gRPC reaches the API as HTTP/2, everything else by what an http URL means.
//
// An upgraded connection is in flight until it ends.
func New(o Options) *Gateway {
	if o.InFlight == 0 {
		o.InFlight = DefaultInFlight
	}
	g := &Gateway{o: o, api: newAPI(), slots: make(chan struct{}, o.InFlight)}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:        g.rewrite,
		Transport:      g.api,
		FlushInterval:  -1, // a stream is passed on as it comes
		ModifyResponse: g.answered,
		ErrorHandler:   g.failed,
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // client aborts, mostly
	}
	return g
}

// Close closes idle connections to the API.
func (g *Gateway) Close() { g.api.close() }

func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	default:
		g.o.Metrics.Overloaded.Inc()
		refuse(w, r, header.Problem{Code: header.Overloaded, RetryAfter: overloadRetry})
		return
	}
	if !understood(r) {
		refuse(w, r, header.Problem{Code: header.BadRequest})
		return
	}
	caller, refused := g.o.Resolver.Resolve(r.Context(), r.Header, peer(r))
	if refused != nil {
		g.o.Metrics.KeysRejected.WithLabelValues(string(refused.Code)).Inc()
		if refused.Challenge != "" {
			w.Header().Set("WWW-Authenticate", refused.Challenge)
		}
		refuse(w, r, header.Problem{Code: refused.Code})
		return
	}
	v, err := g.o.Limiter.Check(r.Context(), limiter.Request{
		Caller: caller, Method: r.Method, Path: r.URL.EscapedPath(), Host: r.Host,
		HasHeader: func(name string) bool { return len(r.Header[http.CanonicalHeaderKey(name)]) > 0 },
	})
	if err != nil { // it chooses neither cost nor id
		refuse(w, r, header.Problem{Code: header.BadRequest})
		return
	}
	if v.Allowed {
		g.pass(w, r, &v)
		return
	}
	// Answered even to a client that has closed its side: one that only half-closed still reads, and would be told 200.
	show(w.Header(), &v)
	decided := v.Views[v.Deciding]
	p := header.Problem{Code: v.Code, Mode: decided.Mode, Rule: decided.Rule, RetryAfter: decided.Decision.RetryAfter, Release: v.Release.Number}
	refuse(w, r, p)
}

// understood tells whether it is clear what a request asks for. The rest of the odd requests net/http refuses itself.
func understood(r *http.Request) bool {
	if r.Method == http.MethodConnect || r.URL.Opaque != "" || !plain(r.Header["Upgrade"]) {
		return false
	}
	for name := range r.Header {
		if strings.IndexByte(name, '_') >= 0 {
			return false // X_Api_Key is X-Api-Key to a CGI or WSGI server; the edge refuses these too
		}
	}
	return strings.HasPrefix(r.URL.Path, "/")
}

// plain tells whether a field holds visible ASCII and spaces only.
func plain(lines []string) bool {
	for _, line := range lines {
		for i := range len(line) {
			if line[i] < ' ' || line[i] > '~' {
				return false
			}
		}
	}
	return true
}

// peer is the address at the other end of the connection.
func peer(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.IPv6Unspecified() // no TCP peer: all such share a counter
	}
	return ap.Addr().Unmap().WithZone("")
}

// show sets the fields of the deciding view.
func show(h http.Header, v *limiter.Verdict) {
	if v.Deciding < 0 {
		return
	}
	decided := v.Views[v.Deciding]
	header.Each(decided, h.Set)
	if v.Degraded && decided.Mode == rule.Full {
		h.Set(degradedHeader, "true")
	}
}

// refuse answers r with a problem.
func refuse(w http.ResponseWriter, r *http.Request, p header.Problem) {
	p.Where = rule.Origin.String()
	if callsGRPC(r) {
		refuseGRPC(w, p)
		return
	}
	h := w.Header()
	h.Set("Content-Type", header.ProblemType)
	h.Set("Cache-Control", "no-store")
	if p.Code.Status() == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(p.Code.Status())
	_, _ = w.Write(p.Append(make([]byte, 0, 256))) // a client that is gone reads nothing
}
