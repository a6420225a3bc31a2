package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/scenario"
	"github.com/weirproject/weir/e2e/stand"
	"github.com/weirproject/weir/e2e/wasmhost"
)

// needs lists what each target is made of.
var needs = map[scenario.Target][]stand.Part{
	scenario.Wasmhost: {stand.Wasm, stand.Weir},
	scenario.Envoy:    {stand.Wasm, stand.Weir, stand.Envoy},
	scenario.Memory:   {stand.Weir},
	scenario.Valkey:   {stand.Weir, stand.Valkey},
}

// filter is the built module alone on a manual clock; what it lets on is answered with 200.
type filter struct {
	host *wasmhost.Host
}

func newFilter(t *testing.T, s *scenario.Scenario, keyring *stand.Keyring) *filter {
	t.Helper()
	bundle, err := os.ReadFile(stand.BuildBundle(t, s.Rules, keyring.File(), 1))
	if err != nil {
		t.Fatal(err)
	}
	return &filter{newHost(t, stand.Wasm, s.Workers, wasmhost.Config{Plugin: bundle})}
}

// goEnv is the environment of the VMs, as the rendered configuration sets it.
var goEnv = []string{"GOTRACEBACK=none"}

// newHost runs a built module on workers threads with a guard behind it.
func newHost(t testing.TB, module stand.Part, workers int, c wasmhost.Config) *wasmhost.Host {
	t.Helper()
	return newHostWith(t, module, wasmhost.Options{Workers: workers}, c)
}

// newHostWith is newHost with more options; the guard is always there.
func newHostWith(t testing.TB, module stand.Part, o wasmhost.Options, c wasmhost.Config) *wasmhost.Host {
	t.Helper()
	o.Guard = true
	code, err := os.ReadFile(stand.Path(t, module))
	if err != nil {
		t.Fatal(err)
	}
	h, err := wasmhost.New(code, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the filter's log:\n%s", h.LogText())
		}
	})
	c.Env = goEnv
	if err := h.Push(c); err != nil {
		t.Fatalf("%v\n%s", err, h.LogText())
	}
	return h
}

func (f *filter) send(r request) (answer, error) {
	from := r.from
	if ip := net.ParseIP(from); ip != nil {
		from = net.JoinHostPort(from, "40000")
	}
	req := wasmhost.Request{From: from, Method: r.method, Path: r.path}
	for _, line := range r.headers {
		name, value, _ := strings.Cut(line, ":")
		req.Headers.Add(name, value)
	}
	got := f.host.Send(r.worker, req)
	a := answer{status: got.Status, body: got.Body, details: got.Details, header: http.Header{}}
	for _, h := range got.Headers {
		a.header.Add(h.Name, h.Value)
	}
	return a, nil
}

func (f *filter) advance(d time.Duration) { f.host.Advance(d) }

func (f *filter) apiCalls() int { return f.host.Reached() }

// served is a system behind a URL.
type served struct {
	t       *testing.T
	url     string
	api     *stand.API
	mu      sync.Mutex
	clients map[string]*stand.Client
}

func newServed(t *testing.T, url string, api *stand.API) *served {
	return &served{t: t, url: url, api: api, clients: map[string]*stand.Client{}}
}

func (s *served) client(from string) *stand.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[from]
	if c == nil {
		c = stand.NewClient(s.t, from)
		s.clients[from] = c
	}
	return c
}

func (s *served) send(r request) (answer, error) {
	got, err := s.client(r.from).Do(r.method, s.url+r.path, r.headers...)
	return answer{status: got.Status, header: got.Header, body: got.Body}, err
}

func (s *served) advance(time.Duration) {
	panic("time is real here: the parser lets no such step through")
}

func (s *served) apiCalls() int { return s.api.Calls() }

// loopback is whom an origin behind the test's Envoy believes.
var loopback = []string{"127.0.0.0/8"}

// newOrigin is the origin alone; valkey is empty for counters in memory.
func newOrigin(t *testing.T, rules, keys, valkey string) *served {
	t.Helper()
	api := stand.StartAPI(t)
	o := stand.StartOrigin(t, stand.OriginSettings{Upstream: api.URL, Rules: rules, Keys: keys, Valkey: valkey})
	return newServed(t, "http://"+o.Gateway, api)
}

// newEdge is Envoy with the filter in front of an origin with counters in memory.
func newEdge(t *testing.T, rules, keys string) *served {
	t.Helper()
	api := stand.StartAPI(t)
	o := stand.StartOrigin(t, stand.OriginSettings{Upstream: api.URL, Rules: rules, Keys: keys, Trust: loopback})
	e := stand.StartEdge(t, stand.EdgeSettings{Origin: o.Gateway, Rules: rules, Keys: keys})
	return newServed(t, e.URL, api)
}

// homeOf moves 127.0.y.z to 127.i.y.z, so that scenarios on one system never share a client.
func homeOf(i int) func(string) string {
	return func(address string) string {
		rest, found := strings.CutPrefix(address, "127.0.")
		if !found {
			panic("not an address of 127.0.0.0/16: " + address)
		}
		return fmt.Sprintf("127.%d.%s", i, rest)
	}
}
