package gateway

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// dialTimeout bounds how long the API may take to be reached, defaultHeaderTimeout to begin its answer.
	dialTimeout          = 5 * time.Second
	defaultHeaderTimeout = time.Minute
	// continueTimeout is how long a client that wants to be asked for its body waits for the API to do so.
	continueTimeout = time.Second
	// idlePerHost connections wait for their next request: enough for a burst not to dial anew, where the default of 2
	// would.
	idlePerHost = 256
	idleTimeout = 90 * time.Second
	// pingAfter is how long a gRPC connection may be silent before it is asked for a sign of life.
	pingAfter = 15 * time.Second
)

// api carries requests to the API: gRPC as HTTP/2, which an http URL cannot ask for, everything else as HTTP/1.1 or what
// TLS agrees on.
type api struct{ plain, grpc route }

// route is one way to the API.
type route struct {
	*http.Transport
	protocol string      // for the log
	down     atomic.Bool // the API did not answer when it was asked last
}

func newAPI(headerTimeout time.Duration) *api {
	a := &api{}
	a.plain.protocol, a.grpc.protocol = "http", "grpc"
	a.plain.Transport = &http.Transport{
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost:   idlePerHost,
		IdleConnTimeout:       idleTimeout,
		ResponseHeaderTimeout: headerTimeout,
		TLSHandshakeTimeout:   dialTimeout,
		ExpectContinueTimeout: continueTimeout,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // the client's encoding is the client's business
	}
	a.grpc.Transport = a.plain.Clone()
	a.grpc.ResponseHeaderTimeout = 0 // a stream may be silent for as long as it likes
	a.grpc.Protocols = &http.Protocols{}
	a.grpc.Protocols.SetHTTP2(true)
	a.grpc.Protocols.SetUnencryptedHTTP2(true)
	a.grpc.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter}
	return a
}

// callsGRPC tells whether a request is a gRPC call, which is HTTP/2 on the client's side already, or it is none.
func callsGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && isGRPC(r.Header.Get("Content-Type"))
}

// route is the way that a request takes.
func (a *api) route(r *http.Request) *route {
	if callsGRPC(r) {
		return &a.grpc
	}
	return &a.plain
}

// RoundTrip implements [http.RoundTripper].
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) { return a.route(r).RoundTrip(r) }

// isGRPC tells whether a media type is application/grpc or one of its +codecs; grpc-web is plain HTTP.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

func (a *api) close() {
	a.plain.CloseIdleConnections()
	a.grpc.CloseIdleConnections()
}
