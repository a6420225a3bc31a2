// Package gateway is the door for HTTP: a reverse proxy that lets through what the limiter admits.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

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
	// dialTimeout and headerTimeout bound how long the API may take to be reached, and to begin its answer.
	dialTimeout   = 5 * time.Second
	headerTimeout = 60 * time.Second
	idlePerHost   = 256
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
	slots chan struct{}
	down  atomic.Bool // the API did not answer when it was asked last
}

// New makes a gateway.
//
// The API sees what the client sent, its API key included, but for X-Weir-* headers, and with X-Forwarded-For, -Host and
// -Proto: those of an edge are kept and continued, those of anybody else replaced. Answers of the API lose X-Weir-*,
// and where Weir has rate limit fields of its own, the API's of the same names give way.
func New(o Options) *Gateway {
	if o.InFlight == 0 {
		o.InFlight = DefaultInFlight
	}
	transport := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost:   idlePerHost,
		IdleConnTimeout:       90 * time.Second,
		ResponseHeaderTimeout: headerTimeout,
		TLSHandshakeTimeout:   dialTimeout,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // the client's encoding is the client's business
	}
	g := &Gateway{o: o, slots: make(chan struct{}, o.InFlight)}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:        g.rewrite,
		Transport:      transport,
		FlushInterval:  -1, // a stream is passed on as it comes
		ModifyResponse: g.answered,
		ErrorHandler:   g.failed,
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // client aborts, mostly
	}
	return g
}

// Close closes idle connections to the API.
func (g *Gateway) Close() { g.proxy.Transport.(*http.Transport).CloseIdleConnections() }

// verdictKey is the context key of the verdict on an admitted request.
type verdictKey struct{}

func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	default:
		g.o.Metrics.Overloaded.Inc()
		refuse(w, header.Problem{Code: header.Overloaded, RetryAfter: overloadRetry})
		return
	}
	if !understood(r) {
		refuse(w, header.Problem{Code: header.BadRequest})
		return
	}
	caller, code := g.o.Resolver.Resolve(r.Header, peer(r))
	if code != "" {
		g.o.Metrics.KeysRejected.WithLabelValues(string(code)).Inc()
		refuse(w, header.Problem{Code: code})
		return
	}
	v := g.o.Limiter.Check(r.Context(), limiter.Request{Caller: caller, Method: r.Method, Path: r.URL.EscapedPath(), Cost: 1})
	if v.Allowed {
		g.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), verdictKey{}, &v)))
		return
	}
	if r.Context().Err() != nil {
		return // the client is gone
	}
	show(w.Header(), &v)
	decided := v.Views[v.Deciding]
	p := header.Problem{Code: v.Code, Mode: decided.Mode, Rule: decided.Rule, RetryAfter: decided.Decision.RetryAfter, Release: v.Release.Number}
	refuse(w, p)
}

// understood tells whether it is clear what a request asks for. The rest of the odd requests net/http refuses itself.
func understood(r *http.Request) bool {
	if r.Method == http.MethodConnect || r.URL.Opaque != "" {
		return false
	}
	return strings.HasPrefix(r.URL.Path, "/")
}

// peer is the address at the other end of the connection.
func peer(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.IPv6Unspecified() // no TCP peer: all such share a counter
	}
	return ap.Addr().Unmap().WithZone("")
}

// rewrite makes the request that the API sees.
func (g *Gateway) rewrite(pr *httputil.ProxyRequest) {
	pr.SetURL(g.o.Upstream)
	pr.Out.Host = pr.In.Host
	strip(pr.Out.Header)
	if g.o.Resolver.Believes(peer(pr.In)) {
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			if values, ok := pr.In.Header[name]; ok {
				pr.Out.Header[name] = values
			}
		}
	}
	host, proto := pr.Out.Header["X-Forwarded-Host"], pr.Out.Header["X-Forwarded-Proto"]
	pr.SetXForwarded() // continues X-Forwarded-For, overwrites the others
	if len(host) > 0 {
		pr.Out.Header["X-Forwarded-Host"] = host
	}
	if len(proto) > 0 {
		pr.Out.Header["X-Forwarded-Proto"] = proto
	}
	if _, ok := pr.In.Header["User-Agent"]; !ok {
		pr.Out.Header.Set("User-Agent", "") // keeps net/http from putting its own in
	}
}

// strip removes what only Weir may say. Names are in canonical form in a header that net/http has read.
func strip(h http.Header) {
	for name := range h {
		if strings.HasPrefix(http.CanonicalHeaderKey(name), internalPrefix) {
			delete(h, name)
		}
	}
}

// answered completes the API's answer.
func (g *Gateway) answered(resp *http.Response) error {
	g.o.Metrics.Upstream.WithLabelValues(class(resp.StatusCode)).Inc()
	if g.down.Load() && g.down.CompareAndSwap(true, false) {
		g.o.Log.Info("the API answers again", "upstream", g.o.Upstream.Redacted())
	}
	strip(resp.Header)
	if v, ok := resp.Request.Context().Value(verdictKey{}).(*limiter.Verdict); ok {
		show(resp.Header, v)
	}
	return nil
}

func class(status int) string {
	if status < 100 || status > 599 {
		return "other"
	}
	return string([]byte{byte('0' + status/100), 'x', 'x'})
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

// failed answers a request that the API did not.
func (g *Gateway) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		// The client went away; nobody reads this, and nginx's 499 is what logs know it by.
		w.WriteHeader(499)
		return
	}
	g.o.Metrics.Upstream.WithLabelValues("unreachable").Inc()
	if g.down.CompareAndSwap(false, true) {
		if failed, ok := errors.AsType[*net.OpError](err); ok {
			err = failed // without the URL, which holds the client's query
		}
		g.o.Log.Error("the API does not answer: clients get 502 until it does", "upstream", g.o.Upstream.Redacted(), "reason", err.Error())
	}
	refuse(w, header.Problem{Code: header.UpstreamDown})
}

// refuse writes a problem.
func refuse(w http.ResponseWriter, p header.Problem) {
	p.Where = rule.Origin.String()
	h := w.Header()
	h.Set("Content-Type", header.ProblemType)
	h.Set("Cache-Control", "no-store")
	switch status := p.Code.Status(); {
	case status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case status == http.StatusServiceUnavailable && h.Get("Retry-After") == "":
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(p.Code.Status())
	_, _ = w.Write(p.Append(make([]byte, 0, 256))) // a client that is gone reads nothing
}
