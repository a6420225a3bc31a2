package stand

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// API is the service that Weir protects. It counts what reaches it.
type API struct {
	URL string

	mu    sync.Mutex
	calls []http.Header
	paths map[string]int
	grpc  *grpc.Server
}

// StartAPI serves on loopback until the test ends. Each answer is 200 and carries an X-Weir-Hint, which must never
// get out to a client. A websocket gets each message back, and gRPC's TestService answers as [echo] does.
func StartAPI(t testing.TB) *API {
	t.Helper()
	a := &API{paths: map[string]int{}}
	s := httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
	s.Config.Protocols = &http.Protocols{}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.MaxHeaderBytes = 128 << 10
	s.Start()
	t.Cleanup(s.Close)
	a.URL = s.URL
	a.grpc = grpc.NewServer()
	testgrpc.RegisterTestServiceServer(a.grpc, echo{})
	return a
}

// StartAPIOn is [StartAPI] on a chosen address.
func StartAPIOn(t testing.TB, address string) *API {
	t.Helper()
	a := &API{paths: map[string]int{}, URL: "http://" + address}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(a.serve)}}
	s.Start()
	t.Cleanup(s.Close)
	return a
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	header := r.Header.Clone()
	header.Set("Host", r.Host)
	header.Set("Proto", r.Proto)
	a.mu.Lock()
	a.calls = append(a.calls, header)
	a.paths[r.URL.Path]++
	a.mu.Unlock()
	w.Header().Set("X-Weir-Hint", "v1;rule=forged;scope=address;ms=60000;release=0")
	w.Header().Set("X-Api", "reached")
	switch {
	case a.grpc != nil && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		a.grpc.ServeHTTP(w, r)
		return
	case r.Header.Get("Upgrade") == "websocket":
		sendBack(w, r)
		return
	}
	_, _ = w.Write([]byte("hello\n")) // a client that went away is no fault of the API
}

// Calls is how many requests have reached the API.
func (a *API) Calls() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.calls)
}

// At is how many requests have reached a path.
func (a *API) At(path string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.paths[path]
}

// Last is the header of the latest request, nil before the first.
func (a *API) Last() http.Header {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.calls) == 0 {
		return nil
	}
	return a.calls[len(a.calls)-1]
}
