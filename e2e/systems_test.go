package e2e

import (
	"errors"
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
	scenario.Wasmhost:  {stand.Wasm, stand.FaultWasm, stand.Weir},
	scenario.Envoy:     {stand.Wasm, stand.FaultWasm, stand.Weir, stand.Envoy},
	scenario.Container: {stand.Engine, stand.WeirImage, stand.EdgeImage, stand.ValkeyImage, stand.Weir},
	scenario.Memory:    {stand.Weir},
	scenario.Valkey:    {stand.Weir, stand.Valkey},
}

// filter is the built module alone on a manual clock; what it lets on is answered with 200.
type filter struct {
	host *wasmhost.Host
	vm   string // vm_config.configuration
}

func newFilter(t *testing.T, s *scenario.Scenario, keyring *stand.Keyring) *filter {
	t.Helper()
	bundle, err := os.ReadFile(stand.BuildBundle(t, s.Rules, keyring.File(), 1))
	if err != nil {
		t.Fatal(err)
	}
	return &filter{newHost(t, moduleOf(s), s.Workers, wasmhost.Config{Plugin: bundle, VM: s.Fault}), s.Fault}
}

// moduleOf is the build of the filter that a scenario wants.
func moduleOf(s *scenario.Scenario) stand.Part {
	if s.Fault != "" {
		return stand.FaultWasm
	}
	return stand.Wasm
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

func (f *filter) push(t *testing.T, b pushed) {
	t.Helper()
	err := f.host.Push(wasmhost.Config{Plugin: b.bundle(t), VM: f.vm, Env: goEnv})
	switch {
	case b.Refused && !errors.Is(err, wasmhost.ErrPush):
		t.Errorf("%s: pushed: %v, want a refusal", b, err)
	case !b.Refused && err != nil:
		t.Errorf("%s: pushed: %v", b, err)
	}
}

const (
	virtualStep  = 100 * time.Millisecond
	virtualSteps = 600
)

func (f *filter) until(t *testing.T, what string, answer func() error) {
	t.Helper()
	var err error
	for range virtualSteps {
		if err = answer(); err == nil {
			return
		}
		f.host.Advance(virtualStep)
	}
	t.Fatalf("%s: not within %v: %v", what, virtualSteps*virtualStep, err)
}

// served is a system behind a URL.
type served struct {
	t       *testing.T
	url     string
	api     *stand.API
	process *stand.Process // that answers
	edge    *stand.Edge    // nil where there is none
	lone    *stand.Callers
	admin   *stand.Client
	mu      sync.Mutex
	clients map[string]*stand.Client
}

func newServed(t *testing.T, url string, api *stand.API, process *stand.Process) *served {
	return &served{
		t: t, url: url, api: api, process: process, lone: stand.NewCallers(), admin: stand.NewClient(t, ""),
		clients: map[string]*stand.Client{},
	}
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
	if r.alone {
		got, err := s.lone.Do(r.from, r.method, s.url+r.path, r.headers...)
		return answer{status: got.Status, header: got.Header, body: got.Body}, err
	}
	got, err := s.client(r.from).Do(r.method, s.url+r.path, r.headers...)
	return answer{status: got.Status, header: got.Header, body: got.Body}, err
}

func (s *served) advance(time.Duration) {
	panic("time is real here: the parser lets no such step through")
}

func (s *served) apiCalls() int { return s.api.Calls() }

func (s *served) until(t *testing.T, what string, answer func() error) {
	t.Helper()
	s.process.Until(t, what, answer)
}

// What tells which release an Envoy's VMs run, when each has said so: the first at the start, the others at a tick.
var releaseGauges = []string{releaseGauge, "wasmcustom.weir_edge_release_min", "wasmcustom.weir_edge_release_max"}

func (s *served) push(t *testing.T, b pushed) {
	t.Helper()
	_, before := s.edge.Updates(t, s.admin)
	s.edge.PushBytes(t, b.bundle(t))
	if b.Refused {
		s.edge.Until(t, b.String()+" is refused", func() error {
			_, refused := s.edge.Updates(t, s.admin)
			return unless(refused > before, "%d refused", refused)
		})
		return
	}
	s.edge.Until(t, b.String()+" runs on all workers", func() error {
		for _, name := range releaseGauges {
			if got := s.edge.Stat(t, s.admin, name); got != b.Release {
				return fmt.Errorf("%s = %d", name, got)
			}
		}
		return nil
	})
}

// loopback is whom an origin behind the test's Envoy believes.
var loopback = []string{"127.0.0.0/8"}

// newOrigin is the origin alone; valkey is empty for counters in memory, issuer where no user is known.
func newOrigin(t *testing.T, rules, keys, valkey, issuer string) *served {
	t.Helper()
	api := stand.StartAPI(t)
	o := stand.StartOrigin(t, stand.OriginSettings{Upstream: api.URL, Rules: rules, Keys: keys, Valkey: valkey, Issuer: issuer})
	return newServed(t, "http://"+o.Gateway, api, o.Process)
}

// newEdge is Envoy with the filter that a scenario wants, in front of an origin with counters in memory.
func newEdge(t *testing.T, s *scenario.Scenario, keys, issuer string) *served {
	t.Helper()
	api := stand.StartAPI(t)
	o := stand.StartOrigin(t, stand.OriginSettings{Upstream: api.URL, Rules: s.Rules, Keys: keys, Trust: loopback, Issuer: issuer})
	e := stand.StartEdge(t, stand.EdgeSettings{
		Origin: o.Gateway, Rules: s.Rules, Keys: keys, Module: moduleOf(s), VM: s.Fault, Hops: hops(s),
	})
	on := newServed(t, e.URL, api, e.Process)
	on.edge = e
	return on
}

// newContained is newEdge with each part in a container of its own, and counters in Valkey. The containers share the
// host's network, so that Envoy sees each client's own address of 127.0.0.0/8.
func newContained(t *testing.T, s *scenario.Scenario, keys, valkey, issuer string) *served {
	t.Helper()
	api := stand.StartAPI(t)
	o := stand.StartOrigin(t, stand.OriginSettings{
		Upstream: api.URL, Rules: s.Rules, Keys: keys, Valkey: valkey, Trust: loopback, Issuer: issuer, Contained: true,
	})
	e := stand.StartEdge(t, stand.EdgeSettings{Origin: o.Gateway, Rules: s.Rules, Keys: keys, Hops: hops(s), Contained: true})
	if n := stand.Containers(t); n != 3 {
		t.Fatalf("%d containers are running, want 3: Valkey, origin and Envoy", n)
	}
	on := newServed(t, e.URL, api, e.Process)
	on.edge = e
	return on
}

// hops is how many proxies Envoy believes.
func hops(s *scenario.Scenario) int {
	if s.Proxied {
		return 1
	}
	return 0
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
