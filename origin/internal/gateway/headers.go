package gateway

import (
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
)

const (
	// internalPrefix begins the headers that edges and origins say things to each other with.
	internalPrefix  = "X-Weir-"
	forwardedPrefix = "X-Forwarded-"
)

// hops are the fields that stand between two hops only, beside those that Connection names (RFC 9110 section 7.6.1).
var hops = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// begins tells whether name begins with prefix, in any case.
func begins(name, prefix string) bool {
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// internal tells whether only Weir may say a field, in a header or a trailer.
func internal(name string) bool {
	return begins(strings.TrimPrefix(name, http.TrailerPrefix), internalPrefix)
}

// strip removes what only Weir may say.
func strip(h http.Header) {
	for name := range h {
		if internal(name) {
			delete(h, name)
		}
	}
}

// stripHops removes what the API says to the gateway alone.
func stripHops(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hops {
		delete(h, name)
	}
}

// rewrite makes the request that the API sees. What Connection names is gone by now, and is added again below if Weir says
// it.
func (g *Gateway) rewrite(pr *httputil.ProxyRequest) {
	p := passageOf(pr.In)
	pr.SetURL(g.o.Upstream)
	pr.Out.Host = pr.In.Host
	// A query is the API's to read; without this, pairs with a semicolon or an odd escape would go missing.
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	believed := p != nil && p.believed
	for name := range pr.Out.Header {
		if internal(name) || !believed && begins(name, forwardedPrefix) || name == "Http2-Settings" {
			delete(pr.Out.Header, name)
		}
	}
	var host, proto []string
	if believed {
		if prior, ok := pr.In.Header["X-Forwarded-For"]; ok {
			pr.Out.Header["X-Forwarded-For"] = slices.Clone(prior)
		}
		host, proto = pr.In.Header["X-Forwarded-Host"], pr.In.Header["X-Forwarded-Proto"]
	}
	pr.SetXForwarded() // continues X-Forwarded-For, overwrites the others
	if len(host) > 0 {
		pr.Out.Header["X-Forwarded-Host"] = host
	}
	if len(proto) > 0 {
		pr.Out.Header["X-Forwarded-Proto"] = proto
	}
	pr.Out.Trailer = nil
	if p == nil || pr.Out.Body == nil || p.body.ReadCloser == nil {
		// A body that was said to be empty is not waited for, and HTTP/1.1 has trailers after a body alone.
		return
	}
	pr.Out.Body = &p.body // instead of the proxy's own, which nothing that it stands in can end
	if len(pr.In.Trailer) > 0 {
		p.out = announcedTrailers(pr.In.Trailer)
		pr.Out.Trailer = p.out
		if len(p.out) > 0 {
			pr.Out.ContentLength = -1 // HTTP/1.1 has trailers after chunks alone
		}
	}
}
