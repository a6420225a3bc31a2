package gateway_test

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// patience bounds every wait for an event.
const patience = 20 * time.Second

// echoing is an API that sends back what comes over a websocket, and answers anything else.
func echoing(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" || r.URL.Path == "/plain" {
			_, _ = w.Write([]byte("plain"))
			return
		}
		w.Header().Set("X-Weir-Hint", "1")
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"v2"}})
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.CloseNow() }()
		for {
			kind, b, err := c.Read(context.Background())
			if err != nil || c.Write(context.Background(), kind, b) != nil {
				return
			}
		}
	}
}

// dial opens a websocket through the gateway.
func (s *stand) dial(path string) (*websocket.Conn, *http.Response, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	return websocket.Dial(ctx, "ws"+strings.TrimPrefix(s.url, "http")+path, &websocket.DialOptions{Subprotocols: []string{"v1", "v2"}})
}

func (s *stand) echoes(c *websocket.Conn) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for _, text := range []string{"", "ping", strings.Repeat("long", 5000)} {
		if err := c.Write(ctx, websocket.MessageBinary, []byte(text)); err != nil {
			s.t.Fatal(err)
		}
		if kind, b, err := c.Read(ctx); err != nil || kind != websocket.MessageBinary || string(b) != text {
			s.t.Fatalf("%d bytes came back, %v", len(b), err)
		}
	}
}

// untilGone waits until the gateway has n tunnels.
func (s *stand) untilTunnels(n float64) {
	s.t.Helper()
	for end := time.Now().Add(patience); testutil.ToFloat64(s.metrics.Tunnels) != n; runtime.Gosched() {
		if time.Now().After(end) {
			s.t.Fatalf("%v tunnels, want %v", testutil.ToFloat64(s.metrics.Tunnels), n)
		}
	}
}

func TestAWebsocketPassesBothWaysAndIsOneCall(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, echoing(t))
	c, resp, err := s.dial("/socket")
	if err != nil {
		t.Fatal(err)
	}
	s.echoes(c)
	if c.Subprotocol() != "v2" || resp.Header.Get("X-Ratelimit-Remaining") != "999" || resp.Header.Get("X-Weir-Hint") != "" {
		t.Errorf("%q %v", c.Subprotocol(), resp.Header)
	}
	if err := c.Close(websocket.StatusNormalClosure, "bye"); err != nil {
		t.Errorf("the close handshake does not pass: %v", err)
	}
	s.untilTunnels(0)
	if a := s.get("/"); a.Header.Get("X-Ratelimit-Remaining") != "998" {
		t.Errorf("remaining %s", a.Header.Get("X-Ratelimit-Remaining"))
	}
}

// However many websockets are open, requests have their places; and websockets that there is no room for cost no call.
func TestWebsocketsHaveABoundOfTheirOwn(t *testing.T) {
	s := start(t, settings{rules: manyPerHour, inFlight: 1, tunnels: 2}, echoing(t))
	var open []*websocket.Conn
	for range 2 {
		c, _, err := s.dial("/")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if _, resp, err := s.dial("/"); err == nil || resp == nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("a third websocket: %v, %v", resp, err)
	}
	if a := s.get("/"); a.StatusCode != 200 || a.Header.Get("X-Ratelimit-Remaining") != "997" {
		t.Errorf("a request beside: %d, remaining %s", a.StatusCode, a.Header.Get("X-Ratelimit-Remaining"))
	}
	_ = open[0].CloseNow()
	s.untilTunnels(1)
	// The place is given back right after that.
	for end := time.Now().Add(patience); ; {
		c, resp, err := s.dial("/")
		if err == nil {
			s.echoes(c)
			_ = c.CloseNow()
			break
		}
		if resp == nil || resp.StatusCode != 503 || time.Now().After(end) {
			t.Fatalf("after one has left: %v, %v", resp, err)
		}
	}
	_ = open[1].CloseNow()
}

// One that the API does not make a websocket of is a request as any other.
func TestAnUpgradeThatTheAPIDeclinesLeavesNoTunnel(t *testing.T) {
	s := start(t, settings{rules: manyPerHour, tunnels: 1}, echoing(t))
	for range 3 {
		if _, resp, err := s.dial("/plain"); err == nil || resp == nil || resp.StatusCode != 200 {
			t.Errorf("%v, %v", resp, err)
		}
	}
	s.untilTunnels(0)
}

func TestDrainingWaitsForWebsocketsThenCutsThemOff(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, echoing(t))
	if cut := s.gateway.Drain(t.Context()); cut != 0 {
		t.Errorf("none is open, %d cut off", cut)
	}
	c, _, err := s.dial("/")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan int)
	go func() { ended <- s.gateway.Drain(context.Background()) }()
	s.echoes(c)
	_ = c.CloseNow()
	if cut := <-ended; cut != 0 {
		t.Errorf("it ended by itself, %d cut off", cut)
	}
	if c, _, err = s.dial("/"); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if cut := s.gateway.Drain(over); cut != 1 {
		t.Errorf("%d cut off, want 1", cut)
	}
	if _, _, err := c.Read(t.Context()); err == nil {
		t.Error("the client's side is open")
	}
}

// A client that does not read holds up what is copied to it: no reason to wait for it for ever.
func TestAWebsocketWhoseClientDoesNotReadIsCutOffToo(t *testing.T) {
	full := make(chan struct{})
	s := start(t, settings{rules: manyPerHour}, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"))
		piece := make([]byte, 1<<20)
		for {
			_ = conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := conn.Write(piece); err != nil {
				break
			}
		}
		close(full)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, _ = conn.Read(piece[:1]) // until the gateway closes
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"))
	<-full
	over, cancel := context.WithCancel(context.Background())
	cancel()
	cut := make(chan int)
	go func() { cut <- s.gateway.Drain(over) }()
	select {
	case n := <-cut:
		if n != 1 {
			t.Errorf("%d cut off, want 1", n)
		}
	case <-time.After(patience):
		t.Fatal("draining waits for a client that does not read")
	}
}
