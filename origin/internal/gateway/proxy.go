package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/header"
)

const (
	forwardedPrefix = "X-Forwarded-"
	// statusClientGone is what nginx's logs know a client by that did not wait; nobody reads it.
	statusClientGone = 499
)

// passage is an admitted request on its way.
type passage struct {
	verdict *limiter.Verdict
	body    body
}

type passageKey struct{}

// pass hands an admitted request to the API.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request, v *limiter.Verdict) {
	p := &passage{verdict: v}
	out := r.WithContext(context.WithValue(r.Context(), passageKey{}, p))
	if r.Body != nil && r.Body != http.NoBody {
		p.body.ReadCloser = r.Body
		out.Body = &p.body
	}
	if upgradesHTTP(r.Header["Upgrade"]) {
		out.Header = r.Header.Clone()
		out.Header.Del("Upgrade")
		out.Header.Del("HTTP2-Settings")
	}
	g.proxy.ServeHTTP(answer{w}, out)
	strip(w.Header()) // what came in trailers
}

// passageOf is the passage of a request that [Gateway.pass] made.
func passageOf(r *http.Request) *passage {
	p, _ := r.Context().Value(passageKey{}).(*passage)
	return p
}

// upgradesHTTP tells whether a client asks to go on in a protocol that holds further HTTP requests.
func upgradesHTTP(lines []string) bool {
	for _, line := range lines {
		for protocol := range strings.SplitSeq(line, ",") {
			protocol = strings.ToLower(strings.TrimSpace(protocol))
			if strings.HasPrefix(protocol, "h2") || strings.HasPrefix(protocol, "http/") || strings.HasPrefix(protocol, "tls/") {
				return true
			}
		}
	}
	return false
}

// body is a client's body that remembers whether it could be read: if not, the API is not to blame.
type body struct {
	io.ReadCloser
	broken atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.broken.Store(true)
	}
	return n, err
}

// answer is a response that never holds X-Weir-*, not even in the early hints that a proxy passes on by itself.
type answer struct{ http.ResponseWriter }

func (a answer) WriteHeader(status int) {
	strip(a.Header())
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap lets the proxy flush, or take the connection over.
func (a answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// rewrite makes the request that the API sees.
func (g *Gateway) rewrite(pr *httputil.ProxyRequest) {
	pr.SetURL(g.o.Upstream)
	pr.Out.Host = pr.In.Host
	// A query is the API's to read; without this, pairs with a semicolon or an odd escape would go missing.
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	strip(pr.Out.Header)
	believed := g.o.Resolver.Believes(peer(pr.In))
	for name := range pr.Out.Header {
		if !believed && strings.HasPrefix(name, forwardedPrefix) {
			delete(pr.Out.Header, name)
		}
	}
	if believed {
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			if values, ok := pr.In.Header[name]; ok {
				pr.Out.Header[name] = slices.Clone(values)
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
}

// strip removes what only Weir may say.
func strip(h http.Header) {
	for name := range h {
		if strings.HasPrefix(http.CanonicalHeaderKey(strings.TrimPrefix(name, http.TrailerPrefix)), internalPrefix) {
			delete(h, name)
		}
	}
}

// answered completes the API's answer.
func (g *Gateway) answered(resp *http.Response) error {
	g.o.Metrics.Upstream.WithLabelValues(class(resp.StatusCode)).Inc()
	if way := g.api.route(resp.Request); way.down.Load() && way.down.CompareAndSwap(true, false) {
		g.o.Log.Info("the API answers again", "upstream", g.o.Upstream.Redacted(), "protocol", way.protocol)
	}
	strip(resp.Header)
	strip(resp.Trailer) // announced ones
	if p := passageOf(resp.Request); p != nil {
		show(resp.Header, p.verdict)
	}
	return nil
}

func class(status int) string {
	if status < 100 || status > 599 {
		return "other"
	}
	return string([]byte{byte('0' + status/100), 'x', 'x'})
}

// failed answers a request that the API did not.
func (g *Gateway) failed(w http.ResponseWriter, r *http.Request, err error) {
	p := passageOf(r)
	switch {
	case r.Context().Err() != nil:
		w.WriteHeader(statusClientGone)
		return
	case p != nil && p.body.broken.Load():
		refuse(w, r, header.Problem{Code: header.BadRequest}) // or the client went away in the middle of it
		return
	}
	g.o.Metrics.Upstream.WithLabelValues("unreachable").Inc()
	// One state for each protocol: else gRPC calls at an API that has none would cry wolf each time.
	if way := g.api.route(r); way.down.CompareAndSwap(false, true) {
		if failed, ok := errors.AsType[*net.OpError](err); ok {
			err = failed // without the URL, which holds the client's query
		}
		g.o.Log.Error("the API does not answer: clients get 502 until it does", "upstream", g.o.Upstream.Redacted(), "protocol", way.protocol, "reason", err.Error())
	}
	if p != nil {
		show(w.Header(), p.verdict) // the call was charged
	}
	refuse(w, r, header.Problem{Code: header.UpstreamDown})
}
