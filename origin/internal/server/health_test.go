package server_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/admin"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

// until waits until readiness is as ok wants it.
func (p *process) until(what string, ok func(admin.Readiness) bool) admin.Readiness {
	p.t.Helper()
	for end := time.Now().Add(patience); ; {
		_, r := p.readiness()
		if ok(r) {
			return r
		}
		if time.Now().After(end) {
			p.t.Fatalf("not in time: %s: %+v", what, r)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// alive tells that the process is to stay in service.
func (p *process) alive(when string) {
	p.t.Helper()
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, body := p.get("admin", path); status != http.StatusOK {
			p.t.Errorf("%s: %s is %d: %s", when, path, status, body)
		}
	}
}

func TestAStoreThatIsAwayMakesNoProcessUnready(t *testing.T) {
	valkey := valkeytest.Start(t)
	dir := settings(t, "store: {url: \"valkey://"+valkey.Addr+"\", deadline: 10ms}\nsecrets: {counter: [secret]}\n")
	write(t, filepath.Join(dir, "secret"), strings.Repeat("s", 32))
	p := start(t, dir)
	other := start(t, dir)
	p.until("two processes are counted", func(r admin.Readiness) bool { return r.Store.Processes == 2 })
	if _, r := other.readiness(); r.Degraded || r.Store.Processes != 2 || r.Rules.Error != "" {
		t.Errorf("%+v", r)
	}
	_, metrics := other.get("admin", "/metrics")
	if !strings.Contains(metrics, "\nweir_live_processes 2\n") {
		t.Error("weir_live_processes is not 2")
	}

	valkey.Stop()
	defer valkey.Continue()
	// The store is told apart from the rules, and of its server whether it is known to be away, or to fail.
	for p.passes(5); ; p.passes(5) {
		if _, r := p.readiness(); r.Store.Shards[0].Breaker != "closed" || !r.Store.Shards[0].Up {
			break
		}
	}
	r := p.until("the server is seen to be away", func(r admin.Readiness) bool { return !r.Store.Shards[0].Up })
	if r.Store.Up || !r.Degraded || !r.Ready || r.Rules.Error != "" || r.Keys.Error != "" || r.Store.Processes != 2 {
		t.Errorf("%+v", r)
	}
	p.alive("without the store")
	resp, err := p.client.Get("http://" + p.server.Address("gateway") + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if limit := resp.Header.Get("X-Ratelimit-Limit"); resp.Header.Get("X-Ratelimit-Degraded") != "true" || limit != "1" {
		t.Errorf("half of 3/h, degraded: %s, %v", resp.Status, resp.Header)
	}

	valkey.Continue()
	p.until("seen to be back, though no call closes the breaker", func(r admin.Readiness) bool { return r.Store.Up && !r.Degraded })
	p.until("recovered without a restart", func(r admin.Readiness) bool { p.passes(1); return r.Store.Shards[0].Breaker == "closed" })
}

// A process that cannot know how many share the limits would fall back to all of them: that is told while the store is well.
func TestProcessesThatAreNotCountedAreTold(t *testing.T) {
	valkey := valkeytest.Start(t)
	if err := valkey.Do("ACL", "SETUSER", "default", "-zadd").Error(); err != nil {
		t.Fatal(err)
	}
	dir := settings(t, "store: {url: \"valkey://"+valkey.Addr+"\"}\nsecrets: {counter: [secret]}\n")
	write(t, filepath.Join(dir, "secret"), strings.Repeat("s", 32))
	p := start(t, dir)
	r := p.until("it is told", func(r admin.Readiness) bool { return r.Store.Uncounted != "" })
	if !r.Ready || !r.Degraded || !r.Store.Up || !strings.Contains(r.Store.Uncounted, "NOPERM") {
		t.Errorf("%+v", r)
	}
	if _, metrics := p.get("admin", "/metrics"); !strings.Contains(metrics, "\nweir_processes_uncounted 1\n") {
		t.Error("weir_processes_uncounted is not 1")
	}
	if err := valkey.Do("ACL", "SETUSER", "default", "+zadd").Error(); err != nil {
		t.Fatal(err)
	}
	p.until("it is over", func(r admin.Readiness) bool { return r.Store.Uncounted == "" && !r.Degraded && r.Store.Processes == 1 })
	if _, metrics := p.get("admin", "/metrics"); !strings.Contains(metrics, "\nweir_processes_uncounted 0\n") {
		t.Error("weir_processes_uncounted is not 0")
	}
}

func TestAnIssuerThatIsAwayIsToldApart(t *testing.T) {
	away := httptest.NewServer(http.NotFoundHandler())
	defer away.Close()
	p := start(t, settings(t, "identity: {oidc: [{issuer: \""+away.URL+"\", audience: [a]}]}\n"))
	_, r := p.readiness()
	if len(r.Issuers) != 1 || r.Issuers[0] != (admin.Issuer{Issuer: away.URL}) || !r.Degraded || !r.Ready || !r.Store.Up {
		t.Errorf("%+v", r)
	}
	p.alive("without its issuer")
}
