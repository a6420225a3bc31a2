package envoyconfig_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirproject/weir/origin/internal/envoyconfig"
)

var guard = regexp.MustCompile(`(?s)\n          - name: weir-guard\n.*?(\n          - name: envoy.filters.http.router\n)`)

// unguarded lets what the stand-in passes get to the origin: these tests are of Envoy's own limits.
func unguarded(text string) string { return guard.ReplaceAllString(text, "$1") }

// replace is an edit.
func replace(old, with string) func(string) string {
	return func(text string) string { return strings.Replace(text, old, with, 1) }
}

// running is an Envoy without a guard, in front of an origin.
type running struct {
	envoyconfig.Edge
	url string
}

// start runs Envoy in front of a handler, on a bootstrap that change and edits have altered.
func start(t *testing.T, origin http.HandlerFunc, change func(*envoyconfig.Edge), edits ...func(string) string) running {
	t.Helper()
	behind := httptest.NewUnstartedServer(origin)
	behind.Config.Protocols = &http.Protocols{}
	behind.Config.Protocols.SetHTTP1(true)
	behind.Config.Protocols.SetUnencryptedHTTP2(true)
	behind.Start()
	t.Cleanup(behind.Close)
	e := envoyconfig.Edge{Listen: freeAddress(t), Admin: freeAddress(t), Origin: behind.Listener.Addr().String(), Filter: writeStandIn(t), AccessLog: "/dev/null"}
	if change != nil {
		change(&e)
	}
	startEnvoy(t, e, append(edits, unguarded)...)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return running{e, "http://" + e.Listen}
}

// stat is a counter or gauge of Envoy's; -1 for none.
func (r running) stat(t *testing.T, name string) (value int) {
	t.Helper()
	_, page := get(t, "http://"+r.Admin+"/stats?filter=^"+regexp.QuoteMeta(name)+"$")
	if _, err := fmt.Sscanf(page, name+": %d", &value); err != nil {
		return -1
	}
	return value
}

// await asks until the condition holds: Envoy tells its state only when asked.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func (r running) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", r.Listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// send writes raw HTTP/1.1 and reads one answer.
func (r running) send(t *testing.T, text string) (*http.Response, string) {
	t.Helper()
	conn := r.dial(t)
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%.60q: %v", text, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }

func TestConnectIsRefused(t *testing.T) {
	r := start(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the origin got %s %s", r.Method, r.URL)
	}, nil)
	response, body := r.send(t, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
	wantProblem(t, response, body, http.StatusBadRequest, "bad_request")
	response, body = r.send(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n")
	wantProblem(t, response, body, http.StatusBadRequest, "bad_request")

	// In HTTP/2, plain, and extended as for a websocket (RFC 8441), which Envoy does not offer.
	c := r.dialHTTP2(t)
	c.request(1, false, ":method", "CONNECT", ":authority", "example.com:443")
	if got := c.answer(1); got != "400" {
		t.Errorf("CONNECT in HTTP/2: %s, want 400", got)
	}
	c.request(3, false, ":method", "CONNECT", ":authority", "a", ":scheme", "http", ":path", "/", ":protocol", "websocket")
	if got := c.answer(3); got != "PROTOCOL_ERROR" && got != "closed" {
		t.Errorf("extended CONNECT: %s, want a reset", got)
	}
	if c.offersConnect {
		t.Error("Envoy offers extended CONNECT")
	}
}

// A client of a private network may not ask for retries, each of which would be charged.
func TestNoClientAsksForRetries(t *testing.T) {
	var calls atomic.Int64
	r := start(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}, nil)
	for _, address := range []string{"", "10.1.2.3", "192.168.0.1"} {
		response, _ := get(t, r.url, "X-Forwarded-For", address, "X-Envoy-Retry-On", "5xx", "X-Envoy-Max-Retries", "3", "X-Envoy-Internal", "true")
		if response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("status %d", response.StatusCode)
		}
	}
	// The circuit breaker allows no retry; but none must be asked for either.
	if asked := r.stat(t, "cluster.weir_origin.upstream_rq_retry_overflow"); calls.Load() != 3 || asked != 0 {
		t.Errorf("the origin was called %d times for 3 requests, %d retries were held back", calls.Load(), asked)
	}
}

func TestSlowRequestsEnd(t *testing.T) {
	hang := make(chan struct{})
	r := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/open" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = conn.Read(make([]byte, 1)) // until Envoy ends it
			return
		}
		select {
		case <-r.Context().Done():
		case <-hang:
		}
	}, func(e *envoyconfig.Edge) { e.RequestTimeout, e.StreamIdle = 2*time.Second, time.Second },
		replace("request_headers_timeout: 10s", "request_headers_timeout: 1s"))
	t.Cleanup(func() { close(hang) })

	for name, c := range map[string]struct {
		text   string
		status int
		stat   string
	}{
		"a head that does not end":   {"GET / HTTP/1.1\r\nHost: a\r\n", 408, "http.edge.downstream_rq_header_timeout"},
		"a body that does not come":  {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", 408, "http.edge.downstream_rq_idle_timeout"},
		"an answer that stays away":  {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 504, "http.edge.downstream_rq_idle_timeout"},
		"a websocket that stays off": {"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", 408, "http.edge.downstream_rq_idle_timeout"},
	} {
		before := r.stat(t, c.stat)
		response, _ := r.send(t, c.text)
		if after := r.stat(t, c.stat); response.StatusCode != c.status || after != before+1 {
			t.Errorf("%s: %d, want %d; %s %d, then %d", name, response.StatusCode, c.status, c.stat, before, after)
		}
	}

	// A websocket that is open and silent.
	socket := r.dial(t)
	fmt.Fprint(socket, "GET /open HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
	if text, err := io.ReadAll(socket); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 101") || strings.Count(string(text), "HTTP/") != 1 {
		t.Errorf("a silent websocket: %q, %v; want 101 and the end", text, err)
	}

	// A body that trickles is never idle, and ends all the same.
	conn := r.dial(t)
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
	trickle := time.NewTicker(100 * time.Millisecond)
	defer trickle.Stop()
	answered := make(chan string)
	go func() {
		line, _ := bufio.NewReader(conn).ReadString('\n')
		answered <- line
	}()
	for bytes := 0; ; bytes++ {
		select {
		case line := <-answered:
			if !strings.HasPrefix(line, "HTTP/1.1 408") || bytes < 5 || r.stat(t, "http.edge.downstream_rq_timeout") != 1 {
				t.Errorf("after %d bytes: %q, want 408 of the request's own time", bytes, line)
			}
			return
		case <-trickle.C:
			_, _ = conn.Write([]byte("x")) // fails once Envoy has closed, which the answer tells
		}
	}
}

func TestConnectionsAreBoundedForClientsAlone(t *testing.T) {
	const bound = 3
	r := start(t, hello, func(e *envoyconfig.Edge) { e.MaxConnections, e.Health = bound, freeAddress(t) })
	active := "listener." + strings.ReplaceAll(r.Listen, ":", "_") + ".downstream_cx_active"
	var open []net.Conn
	for range bound {
		open = append(open, r.dial(t))
	}
	await(t, "all are accepted", func() bool { return r.stat(t, active) == bound })
	if _, err := r.dial(t).Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one connection more: %v, want it closed", err)
	}
	if response, _ := get(t, "http://"+r.Health+"/healthz"); response.StatusCode != http.StatusOK {
		t.Errorf("health: %d", response.StatusCode)
	}
	open[0].Close()
	await(t, "one is gone", func() bool { return r.stat(t, active) == bound-1 })
	if response, _ := r.send(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); response.StatusCode != http.StatusOK {
		t.Errorf("in the free place: %d", response.StatusCode)
	}
}

func TestAConnectionEndsAfterItsRequests(t *testing.T) {
	r := start(t, hello, nil, replace("max_requests_per_connection: 10000", "max_requests_per_connection: 3"))
	conn := r.dial(t)
	answers := bufio.NewReader(conn)
	for i := range 3 {
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		if response.Close != (i == 2) {
			t.Errorf("answer %d says close: %v", i+1, response.Close)
		}
	}
	if _, err := answers.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v, want the end", err)
	}
}

func TestAFullHeapRefusesRequestsAndHealthStands(t *testing.T) {
	r := start(t, hello, func(e *envoyconfig.Edge) { e.MaxHeap, e.Health = 128<<20, freeAddress(t) },
		replace("max_heap_size_bytes: 134217728", "max_heap_size_bytes: 1048576"),
		// With this Envoy would not even accept the connection of the request that is to be refused.
		replace(`  - name: envoy.overload_actions.stop_accepting_connections
    triggers: [{name: envoy.resource_monitors.fixed_heap, threshold: {value: 0.98}}]
`, ""))
	const name = "overload.envoy.overload_actions.%s.active"
	await(t, "the heap is full", func() bool { return r.stat(t, fmt.Sprintf(name, "stop_accepting_requests")) == 1 })
	for _, action := range []string{"shrink_heap", "disable_http_keepalive", "reduce_timeouts"} {
		if got := r.stat(t, fmt.Sprintf(name, action)); got != 1 {
			t.Errorf("%s: %d", action, got)
		}
	}
	response, body := get(t, r.url)
	wantProblem(t, response, body, http.StatusServiceUnavailable, "overloaded")
	if response.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q, want 1", response.Header.Get("Retry-After"))
	}
	if response, _ := get(t, "http://"+r.Health+"/healthz"); response.StatusCode != http.StatusOK {
		t.Errorf("health: %d", response.StatusCode)
	}
}

func TestAFullOriginIsToldApartFromABrokenLimiter(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	r := start(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	}, nil, replace("max_connections: 4096, max_pending_requests: 1024", "max_connections: 1, max_pending_requests: 1"))
	done := make(chan int, 2)
	ask := func() {
		response, err := http.Get(r.url)
		if err != nil {
			t.Error(err)
			done <- 0
			return
		}
		response.Body.Close()
		done <- response.StatusCode
	}
	go ask()
	select {
	case <-arrived:
	case status := <-done:
		t.Fatalf("the first was answered %d", status)
	}
	go ask()
	await(t, "the second waits", func() bool { return r.stat(t, "cluster.weir_origin.upstream_rq_pending_active") == 1 })
	response, body := get(t, r.url)
	wantProblem(t, response, body, http.StatusServiceUnavailable, "overloaded")
	release <- struct{}{}
	<-arrived
	release <- struct{}{}
	for range 2 {
		if status := <-done; status != http.StatusOK {
			t.Errorf("one that was there before: %d", status)
		}
	}
}

func TestHealthHasAPortOfItsOwn(t *testing.T) {
	r := start(t, hello, func(e *envoyconfig.Edge) { e.Health = freeAddress(t) })
	if response, body := get(t, r.url+"/healthz"); body != "hello" {
		t.Errorf("the API's own /healthz: %d %q", response.StatusCode, body)
	}
	status := func(path string) int {
		response, _ := get(t, "http://"+r.Health+path)
		return response.StatusCode
	}
	if got := status("/healthz"); got != http.StatusOK {
		t.Errorf("/healthz: %d", got)
	}
	if got := status("/other"); got != http.StatusNotFound {
		t.Errorf("/other: %d", got)
	}
	response, err := http.Post("http://"+r.Admin+"/healthcheck/fail", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := status("/healthz"); got != http.StatusServiceUnavailable {
		t.Errorf("/healthz once an operator has failed it: %d", got)
	}
}

// http2Conn is a client that writes whatever frames it likes.
type http2Conn struct {
	t             *testing.T
	conn          net.Conn
	frames        *http2.Framer
	heads         bytes.Buffer
	encoder       *hpack.Encoder
	offersConnect bool
}

func (r running) dialHTTP2(t *testing.T) *http2Conn {
	t.Helper()
	c := &http2Conn{t: t, conn: r.dial(t)}
	c.frames = http2.NewFramer(c.conn, c.conn)
	c.frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.heads)
	if _, err := io.WriteString(c.conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := c.frames.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *http2Conn) head(fields ...string) []byte {
	c.heads.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // a buffer takes all
	}
	return c.heads.Bytes()
}

// request sends a request's head.
func (c *http2Conn) request(stream uint32, end bool, fields ...string) error {
	return c.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.head(fields...), EndStream: end, EndHeaders: true})
}

// answer is the status of a stream, the name of the error that reset it, or "closed" for the connection's end.
func (c *http2Conn) answer(stream uint32) string {
	for {
		frame, err := c.frames.ReadFrame()
		if err != nil {
			return "closed"
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if v, ok := f.Value(http2.SettingEnableConnectProtocol); ok && v == 1 {
				c.offersConnect = true
			}
		case *http2.MetaHeadersFrame:
			if f.StreamID == stream {
				return f.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return f.ErrCode.String()
			}
		}
	}
}

var get200 = []string{":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"}

func TestFloodsOfFramesEndTheConnection(t *testing.T) {
	// An answer would close the stream, and Envoy counts no frames of a closed one: it comes after the request's end.
	r := start(t, func(w http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body) // which a flood's connection cuts off
		hello(w, request)
	}, nil)
	const most = 1_000_000 // frames, or writes, of one flood
	for name, c := range map[string]struct {
		stat  string
		begin func(*http2Conn) error
		frame func(c *http2Conn, i uint32) error
		// few is how many frames are enough; 0: as many as it takes, nothing being read
		few int
	}{
		"rapid reset": {stat: "http.edge.downstream_rq_too_many_premature_resets", few: 2000,
			frame: func(c *http2Conn, i uint32) error {
				if err := c.request(2*i+1, false, get200...); err != nil {
					return err
				}
				return c.frames.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
			}},
		"pings": {stat: "http2.outbound_control_flood",
			frame: func(c *http2Conn, _ uint32) error { return c.frames.WritePing(false, [8]byte{}) }},
		"settings": {stat: "http2.outbound_control_flood",
			frame: func(c *http2Conn, _ uint32) error { return c.frames.WriteSettings() }},
		"empty data": {stat: "http2.inbound_empty_frames_flood", few: 2,
			begin: func(c *http2Conn) error { return c.request(1, false, get200...) },
			frame: func(c *http2Conn, _ uint32) error { return c.frames.WriteData(1, false, nil) }},
		"priorities": {stat: "http2.inbound_priority_frames_flood", few: 1000,
			begin: func(c *http2Conn) error { return c.request(1, false, get200...) },
			frame: func(c *http2Conn, _ uint32) error {
				return c.frames.WritePriority(1, http2.PriorityParam{StreamDep: 0, Weight: 1})
			}},
		"windows": {stat: "http2.inbound_window_update_frames_flood", few: 1000,
			begin: func(c *http2Conn) error { return c.request(1, false, get200...) },
			frame: func(c *http2Conn, _ uint32) error { return c.frames.WriteWindowUpdate(1, 1) }},
		"headers without an end": {stat: "http2.header_overflow", few: 1000,
			begin: func(c *http2Conn) error {
				return c.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.head(get200...)})
			},
			frame: func(c *http2Conn, i uint32) error {
				return c.frames.WriteContinuation(1, false, c.head(fmt.Sprint("a", i), "1"))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			before := max(0, r.stat(t, c.stat))
			conn := r.dialHTTP2(t)
			sent := make(chan int)
			go func() {
				var err error
				if c.begin != nil {
					err = c.begin(conn)
				}
				n := 0
				for ; err == nil && (c.few == 0 && n < most || n < c.few); n++ {
					err = c.frame(conn, uint32(n))
				}
				sent <- n
			}()
			// Envoy tells sooner than a socket whose buffers are full that it has closed the connection.
			await(t, c.stat, func() bool { return r.stat(t, c.stat) > before })
			await(t, "the connection is closed", func() bool { return r.stat(t, "http.edge.downstream_cx_http2_active") == 0 })
			conn.conn.Close()
			if n := <-sent; n == most {
				t.Errorf("Envoy read all of %d frames", n)
			}
		})
	}
	if response, body := get(t, r.url); response.StatusCode != http.StatusOK || body != "hello" {
		t.Errorf("after the floods: %d %q", response.StatusCode, body)
	}
}

// A listener for every address of the host serves both families, and an IPv4 client is the same one there as elsewhere.
func TestOneListenerServesBothFamilies(t *testing.T) {
	r := start(t, func(w http.ResponseWriter, request *http.Request) {
		_, _ = io.WriteString(w, request.Header.Get("x-weir-address"))
	}, func(e *envoyconfig.Edge) {
		free, err := net.Listen("tcp", "[::]:0") // a port that is free at 127.0.0.1 may be in use at another address
		if err != nil {
			t.Fatal(err)
		}
		defer free.Close()
		e.Listen = free.Addr().String()
	})
	_, port, _ := net.SplitHostPort(r.Listen)
	for _, host := range []string{"127.0.0.1", "::1"} {
		if _, from := get(t, "http://"+net.JoinHostPort(host, port)); from != host {
			t.Errorf("a client at %s is %q to the origin", host, from)
		}
	}
}
