package gateway

import (
	"net/http"
	"slices"

	"github.com/weirproject/weir/origin/internal/identity"
)

// notInTrailers are fields that an API which merges trailers with headers would take for what the gateway has read, or has
// not: whom a call is from, where it goes, how long it is (RFC 9110 section 6.5.1).
var notInTrailers = append([]string{
	"Authorization", "Cookie", "Content-Length", "Content-Encoding", "Content-Type", "Content-Range", "Expect", "Forwarded", "Host", "Range",
	identity.KeyHeader,
}, hops...)

// announcedTrailers are the trailers of a request that may reach the API, without values yet.
func announcedTrailers(announced http.Header) http.Header {
	out := make(http.Header, len(announced))
	for name := range announced {
		if !internal(name) && !begins(name, forwardedPrefix) && !slices.Contains(notInTrailers, name) {
			out[name] = nil
		}
	}
	return out
}

// fillTrailers gives the trailers that were announced their values, now that the client has sent them.
func fillTrailers(out, sent http.Header) {
	for name := range out {
		out[name] = sent[name]
	}
}
