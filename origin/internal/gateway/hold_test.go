package gateway_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirproject/weir/shared/limit"
)

// queue lets one call out a second, and holds up to five.
const queue = "version: 1\nrules:\n- {name: q, where: origin, by: [address], match: {paths: [/q]}, algorithm: leaky-queue, limit: 1/1s, burst: 5}\n" +
	"- {name: other, where: origin, by: [address], limit: 1000/1h}\n"

// turns are held calls that wait until a test lets them go.
type turns struct {
	mu      sync.Mutex
	told    []limit.Micros
	waiting chan struct{} // one for each that begins to wait
	goOn    chan struct{}
}

func newTurns() *turns { return &turns{waiting: make(chan struct{}, 10), goOn: make(chan struct{})} }

func (w *turns) wait(ctx context.Context, d limit.Micros) bool {
	w.mu.Lock()
	w.told = append(w.told, d)
	w.mu.Unlock()
	w.waiting <- struct{}{}
	select {
	case <-w.goOn:
		return true
	case <-ctx.Done():
		return false
	}
}

// calling begins a call and tells its status when it is answered.
func (s *stand) calling(path string) <-chan int {
	status := make(chan int, 1)
	go func() {
		resp, err := s.client.Get(s.url + path)
		if err != nil {
			s.t.Error(err)
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	return status
}

func TestACallOfALeakyQueueWaitsForItsTurn(t *testing.T) {
	s := start(t, settings{rules: queue, inFlight: 1}, nil)
	w := newTurns()
	s.gateway.WaitBy(w.wait)
	if a := s.get("/q"); a.StatusCode != 200 {
		t.Fatalf("the first: %d", a.StatusCode)
	}
	first := s.calling("/q")
	<-w.waiting
	second := s.calling("/q")
	<-w.waiting
	if s.reached() != 1 || testutil.ToFloat64(s.metrics.Held) != 2 {
		t.Errorf("%d calls reached the API, %v are held", s.reached(), testutil.ToFloat64(s.metrics.Held))
	}
	// There is one place in flight, and those that wait have none.
	if a := s.get("/"); a.StatusCode != 200 {
		t.Errorf("a call beside: %d", a.StatusCode)
	}
	for i := range 2 { // one after the other: whichever the channel picks
		w.goOn <- struct{}{}
		var status int
		select {
		case status = <-first:
		case status = <-second:
		}
		if status != 200 {
			t.Errorf("held call %d: %d", i, status)
		}
	}
	if len(w.told) != 2 || w.told[0] != limit.Second || w.told[1] != 2*limit.Second || testutil.ToFloat64(s.metrics.Held) != 0 {
		t.Errorf("held for %v", w.told)
	}
}

// Whoever cannot wait pays nothing: the next call waits no longer for it.
func TestACallThatIsNotMadeIsGivenBack(t *testing.T) {
	s := start(t, settings{rules: queue, held: 1}, nil)
	w := newTurns()
	s.gateway.WaitBy(w.wait)
	s.get("/q")
	first := s.calling("/q")
	<-w.waiting
	if a := s.get("/q"); a.StatusCode != 503 || a.problem["code"] != "overloaded" || a.Header.Get("Retry-After") != "1" {
		t.Errorf("more than may be held: %d %v", a.StatusCode, a.problem)
	}
	w.goOn <- struct{}{}
	<-first
	// A client that goes away while it waits.
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte("GET /q HTTP/1.1\r\nHost: h\r\n\r\n"))
	<-w.waiting
	conn.Close()
	for end := time.Now().Add(patience); testutil.ToFloat64(s.metrics.Held) != 0; {
		if time.Now().After(end) {
			t.Fatal("held for a client that is gone")
		}
	}
	last := s.calling("/q")
	<-w.waiting
	w.goOn <- struct{}{}
	<-last
	// Not 2 s, 3 s for the third: the one over the bound was given back; nor for the last what the gone one was charged.
	if len(w.told) != 3 || w.told[1] != 2*limit.Second || w.told[2] != 2*limit.Second {
		t.Errorf("held for %v", w.told)
	}
	if n := testutil.ToFloat64(s.metrics.Overloaded); n != 1 {
		t.Errorf("%v overloads counted", n)
	}
}

func TestACallIsNotHeldForLongerThanTheBound(t *testing.T) {
	s := start(t, settings{rules: "version: 1\nrules:\n- {name: q, where: origin, by: [address], algorithm: leaky-queue, limit: 1/1m, burst: 5}\n"}, nil)
	w := newTurns()
	s.gateway.WaitBy(w.wait)
	s.get("/")
	for range 2 { // a minute each time, since the one before was given back
		if a := s.get("/"); a.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%d", a.StatusCode)
		}
	}
	if len(w.told) != 0 || s.reached() != 1 {
		t.Errorf("held for %v", w.told)
	}
}

// On the clock, with real timers: the calls reach the API no faster than they may leave.
func TestHeldCallsGoOnInTime(t *testing.T) {
	s := start(t, settings{rules: "version: 1\nrules:\n- {name: q, where: origin, by: [address], algorithm: leaky-queue, limit: 1/50ms, burst: 5}\n"}, nil)
	began := time.Now()
	var held []<-chan int
	for range 4 {
		held = append(held, s.calling("/"))
	}
	for _, each := range held {
		if status := <-each; status != 200 {
			t.Errorf("%d", status)
		}
	}
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("4 calls left within %v, want 150 ms at least", took)
	}
}
