package gateway

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/weirproject/weir/origin/internal/identity"
)

// edgeNames are the names of edges in certificates.
type edgeNames struct {
	dns  []string
	uris []url.URL
}

// newEdgeNames sorts names, each a DNS name or a URI.
func newEdgeNames(names []string) (e edgeNames) {
	for _, name := range names {
		if u, err := url.Parse(name); err == nil && u.Scheme != "" {
			e.uris = append(e.uris, *u)
		} else {
			e.dns = append(e.dns, name)
		}
	}
	return e
}

// hold tells whether a connection is an edge's, by a certificate that was verified. A wildcard in a certificate is a name
// as any other: it stands for no edge.
func (e *edgeNames) hold(state *tls.ConnectionState) bool {
	if state == nil || len(state.VerifiedChains) == 0 {
		return false
	}
	leaf := state.VerifiedChains[0][0]
	for _, want := range e.dns {
		for _, name := range leaf.DNSNames {
			if strings.EqualFold(name, want) {
				return true
			}
		}
	}
	for i := range e.uris {
		for _, u := range leaf.URIs {
			if *u == e.uris[i] { // parsed by the same package
				return true
			}
		}
	}
	return false
}

// peer is the address that a request is taken to come from: that at the other end of the connection, or the one that an
// edge there tells. believed tells whether it is an edge.
func (g *Gateway) peer(r *http.Request) (address netip.Addr, believed bool) {
	address = remote(r)
	switch {
	case g.o.Resolver.Believes(address): // the resolver reads the edge's word itself
		return address, true
	case g.edges.hold(r.TLS):
		return identity.Told(r.Header, address), true
	}
	return address, false
}

// remote is the address at the other end of the connection.
func remote(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.IPv6Unspecified() // no TCP peer: all such share a counter
	}
	return ap.Addr().Unmap().WithZone("")
}
