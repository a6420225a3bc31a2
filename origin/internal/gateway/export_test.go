package gateway

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/http/httputil"

	"github.com/weirproject/weir/shared/limit"
)

// TrustAPI lets the API show a certificate of an authority in pool.
func (g *Gateway) TrustAPI(pool *x509.CertPool) {
	g.api.plain.TLSClientConfig.RootCAs = pool
	g.api.grpc.TLSClientConfig.RootCAs = pool
}

// WaitBy has held calls wait by a function instead of a timer.
func (g *Gateway) WaitBy(wait func(ctx context.Context, d limit.Micros) bool) { g.wait = wait }

// AnswerBy has calls answered by something else than an API.
func (g *Gateway) AnswerBy(t http.RoundTripper) { g.proxy.Transport = t }

// NewBuffers are what a gateway copies bodies through.
func NewBuffers() httputil.BufferPool { return &buffers{} }
