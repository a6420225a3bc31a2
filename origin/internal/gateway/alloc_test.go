//go:build !race

// The race detector makes sync.Pool forget at random, so this is counted without it.

package gateway_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/limiter"
)

// canned is an API that costs nothing: it answers every request alike.
type canned struct{}

func (canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: 5,
		Header: http.Header{"Content-Type": {"text/plain"}, "Content-Length": {"5"}}, Body: io.NopCloser(strings.NewReader("hello")),
	}, nil
}

// sink is a response that nobody reads.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

// added are the allocations of a call beyond the bare proxy's and the limiter's, at most: the passage, its context, the
// request that carries it, how the limiter asks for headers, and 13 for the text of the fields that tell a client its limit.
const added = 17

func TestACallAllocatesAsStated(t *testing.T) {
	for rules, text := range ruleCounts {
		s := newStand(t, settings{rules: text, upstream: "http://api"})
		s.gateway.AnswerBy(canned{})
		proxy := bare(t, "http://api").(*httputil.ReverseProxy)
		proxy.Transport = canned{}
		ctx, cancel := context.WithCancel(t.Context()) // as a server's
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, "GET", "/search?q=1", nil)
		r.Header.Set("X-Api-Key", s.key)
		r.Header.Set("User-Agent", "test")
		w := &sink{http.Header{}}
		count := func(h http.Handler) float64 {
			return testing.AllocsPerRun(1000, func() {
				clear(w.header)
				h.ServeHTTP(w, r)
			})
		}
		call := limiter.Request{Caller: identity.Caller{Key: s.issued, Address: netip.IPv6Unspecified()}, Method: r.Method, Path: r.URL.Path, Host: r.Host}
		check := testing.AllocsPerRun(1000, func() { _, _ = s.limiter.Check(ctx, call) })
		if ours, theirs := count(s.gateway), count(proxy); ours-theirs-check > added {
			t.Errorf("%d rules: %v allocations beyond the proxy's %v and the limiter's %v, want at most %d", rules, ours-theirs-check, theirs, check, added)
		}
	}
}
