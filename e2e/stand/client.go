package stand

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// callTimeout bounds one call; nothing here may take as long.
const callTimeout = 10 * time.Second

// Client sends requests from one source address over its own connections.
type Client struct {
	http      *http.Client
	transport *http.Transport
}

// NewClient uses a source address of 127.0.0.0/8; an empty one lets the system choose. The connections close with the
// test.
func NewClient(t testing.TB, from string) *Client {
	t.Helper()
	return newClient(t, &http.Transport{DialContext: Dialer(t, from).DialContext})
}

// NewClientHTTP2 is [NewClient] for HTTP/2, in clear text too.
func NewClientHTTP2(t testing.TB, from string, trust *tls.Config) *Client {
	t.Helper()
	transport := &http.Transport{DialContext: Dialer(t, from).DialContext, TLSClientConfig: trust, Protocols: &http.Protocols{}}
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	return newClient(t, transport)
}

// NewClientTLS is [NewClient] for HTTP/1.1 within TLS.
func NewClientTLS(t testing.TB, from string, trust *tls.Config) *Client {
	t.Helper()
	transport := &http.Transport{DialContext: Dialer(t, from).DialContext, TLSClientConfig: trust, Protocols: &http.Protocols{}}
	transport.Protocols.SetHTTP1(true)
	return newClient(t, transport)
}

// Dialer connects from a source address; an empty one lets the system choose.
func Dialer(t testing.TB, from string) *net.Dialer {
	t.Helper()
	dialer := &net.Dialer{Timeout: callTimeout}
	if from != "" {
		ip := net.ParseIP(from)
		if ip == nil {
			t.Fatalf("client address %q", from)
		}
		dialer.LocalAddr = &net.TCPAddr{IP: ip}
	}
	return dialer
}

func newClient(t testing.TB, transport *http.Transport) *Client {
	transport.MaxIdleConnsPerHost, transport.DisableCompression = 128, true
	t.Cleanup(transport.CloseIdleConnections)
	c := &Client{transport: transport}
	c.http = &http.Client{
		Transport: transport, Timeout: callTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// HTTP is what the client sends with, for protocols on top of HTTP.
func (c *Client) HTTP() *http.Client { return c.http }

// Result is an answer, read to its end.
type Result struct {
	Status int
	Proto  string // as HTTP/1.1
	Header http.Header
	Body   string
}

// Get sends a GET with header lines "Name: value", which may repeat.
func (c *Client) Get(t testing.TB, url string, headers ...string) Result {
	t.Helper()
	r, err := c.Try(url, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Try is Get without the test.
func (c *Client) Try(url string, headers ...string) (Result, error) {
	return c.Do(http.MethodGet, url, headers...)
}

// Do sends a request without a body.
func (c *Client) Do(method, url string, headers ...string) (Result, error) {
	return do(context.Background(), c.http, method, url, headers)
}

// Callers sends each request from an address of its own over a connection of its own, which is closed after the answer.
// It is for many addresses: no connection is left behind.
type Callers struct{ http *http.Client }

// callerKey is the context's key of the source address.
type callerKey struct{}

// NewCallers needs no end.
func NewCallers() *Callers {
	return &Callers{&http.Client{Timeout: callTimeout, Transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			from, _ := ctx.Value(callerKey{}).(net.IP)
			dialer := net.Dialer{Timeout: callTimeout, LocalAddr: &net.TCPAddr{IP: from}}
			return dialer.DialContext(ctx, network, address)
		},
	}}}
}

// Do sends a request without a body from an address of 127.0.0.0/8.
func (c *Callers) Do(from, method, url string, headers ...string) (Result, error) {
	ip := net.ParseIP(from)
	if ip == nil {
		return Result{}, fmt.Errorf("client address %q", from)
	}
	return do(context.WithValue(context.Background(), callerKey{}, ip), c.http, method, url, headers)
}

func do(ctx context.Context, client *http.Client, method, url string, headers []string) (Result, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return Result{}, err
	}
	for _, line := range headers {
		name, value, found := strings.Cut(line, ":")
		if !found {
			return Result{}, fmt.Errorf("header line %q: want Name: value", line)
		}
		value = strings.TrimPrefix(value, " ")
		if strings.EqualFold(name, "host") {
			req.Host = value
			continue
		}
		req.Header[name] = append(req.Header[name], value) // the case of the name stays
	}
	resp, err := client.Do(req)
	if err != nil {
		return Result{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Result{}, fmt.Errorf("read the answer: %w", err)
	}
	return Result{Status: resp.StatusCode, Proto: resp.Proto, Header: resp.Header, Body: string(body)}, nil
}

// Metric is the sum of a Prometheus metric's series whose labels contain all the given parts; 0 if there is none.
func Metric(t testing.TB, c *Client, url, name string, labels ...string) float64 {
	t.Helper()
	page := c.Get(t, url)
	if page.Status != http.StatusOK {
		t.Fatalf("%s: status %d", url, page.Status)
	}
	sum := 0.0
	for line := range strings.Lines(page.Body) {
		series, value, found := strings.Cut(strings.TrimSpace(line), " ")
		bare, set, _ := strings.Cut(series, "{")
		if !found || bare != name {
			continue
		}
		all := true
		for _, l := range labels {
			all = all && strings.Contains(set, l)
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil && all {
			sum += v
		}
	}
	return sum
}
