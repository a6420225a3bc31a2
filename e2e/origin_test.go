package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/stand"
)

// modeRules has one rule for each way to go on without a store.
const modeRules = `version: 1
rules:
- {name: local, where: origin, match: {paths: [/local]}, by: [key], algorithm: sliding-window, limit: 3/1d, on-store-failure: local}
- {name: open, where: origin, match: {paths: [/open]}, by: [key], algorithm: sliding-window, limit: 3/1d, on-store-failure: open}
- {name: closed, where: origin, match: {paths: [/closed]}, by: [key], algorithm: sliding-window, limit: 3/1d, on-store-failure: closed}
`

// faultDeadline is the store's deadline in fault tests: a call may not wait much longer for a store that is gone.
const faultDeadline = "100ms"

// answeredWithin is far above the deadline and far below anything that hangs.
const answeredWithin = 5 * time.Second

func TestUnreachableAPIIs502(t *testing.T) {
	stand.Need(t, stand.Weir)
	o := stand.StartOrigin(t, stand.OriginSettings{Upstream: "http://" + stand.Loopback(t), Rules: standardRules(t)})
	r := stand.NewClient(t, "127.0.0.2").Get(t, "http://"+o.Gateway+"/any")
	if r.Status != 502 || !strings.Contains(r.Body, `"upstream_unreachable"`) {
		t.Errorf("answer %d %s, want 502 upstream_unreachable", r.Status, r.Body)
	}
}

// degraded checks that each rule answers in its own mode while there is no store.
func degraded(t *testing.T, c *stand.Client, gateway, key string) {
	t.Helper()
	for path, want := range map[string]string{
		"/local": "200 200 200 429 429", "/open": "200 200 200 200 200", "/closed": "503 503 503 503 503",
	} {
		var got []string
		for range 5 {
			begin := time.Now()
			r := c.Get(t, "http://"+gateway+path, "X-Api-Key: "+key)
			if took := time.Since(begin); took > answeredWithin {
				t.Errorf("%s took %v without a store", path, took)
			}
			got = append(got, map[int]string{200: "200", 429: "429", 503: "503"}[r.Status])
			if r.Status == 503 && !strings.Contains(r.Body, `"limiter_unavailable"`) {
				t.Errorf("%s: body %s, want limiter_unavailable", path, r.Body)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s without a store: %v, want %s", path, got, want)
		}
	}
}

func TestStoreThatIsNotThereAtStart(t *testing.T) {
	stand.Need(t, stand.Weir, stand.Valkey)
	api, keyring, address := stand.StartAPI(t), stand.NewKeyring(t), stand.Loopback(t)
	early, late := keyring.Issue(t, "early"), keyring.Issue(t, "late")
	o := stand.StartOrigin(t, stand.OriginSettings{
		Upstream: api.URL, Rules: modeRules, Keys: keyring.File(), Valkey: address, Deadline: faultDeadline,
	})
	c := stand.NewClient(t, "127.0.0.2")
	if up, degraded, err := o.Store(); up || !degraded || err != nil {
		t.Errorf("/readyz without a store: up %v, degraded %v, %v", up, degraded, err)
	}
	if !strings.Contains(o.Log(), address) {
		t.Errorf("the log does not name the store %s:\n%s", address, o.Tail())
	}
	degraded(t, c, o.Gateway, early)

	valkey := stand.StartValkeyOn(t, address)
	o.UntilStore(t)
	for i, want := range []int{200, 200, 200, 429} {
		if r := c.Get(t, "http://"+o.Gateway+"/closed", "X-Api-Key: "+late); r.Status != want {
			t.Errorf("call %d once the store is there: %d, want %d", i+1, r.Status, want)
		}
	}
	if size := valkey.Do(t, "DBSIZE"); size == "0" {
		t.Error("the store holds no counter: the calls were not counted in it")
	}
}

func TestStoreThatStopsAnswering(t *testing.T) {
	stand.Need(t, stand.Weir, stand.Valkey)
	api, keyring, valkey := stand.StartAPI(t), stand.NewKeyring(t), stand.StartValkey(t)
	during, after := keyring.Issue(t, "during"), keyring.Issue(t, "after")
	o := stand.StartOrigin(t, stand.OriginSettings{
		Upstream: api.URL, Rules: modeRules, Keys: keyring.File(), Valkey: valkey.Address, Deadline: faultDeadline,
	})
	c := stand.NewClient(t, "127.0.0.2")
	if r := c.Get(t, "http://"+o.Gateway+"/closed", "X-Api-Key: "+after); r.Status != 200 {
		t.Fatalf("with a store: %d %s", r.Status, r.Body)
	}
	valkey.Signal(t, syscall.SIGSTOP)
	degraded(t, c, o.Gateway, during)
	if up, degraded, err := o.Store(); up || !degraded || err != nil {
		t.Errorf("/readyz with a store that stopped: up %v, degraded %v, %v", up, degraded, err)
	}
	valkey.Signal(t, syscall.SIGCONT)
	o.UntilStore(t)
	for i, want := range []int{200, 200, 429} { // one was charged before the stop
		if r := c.Get(t, "http://"+o.Gateway+"/closed", "X-Api-Key: "+after); r.Status != want {
			t.Errorf("call %d after the stop: %d, want %d", i+1, r.Status, want)
		}
	}
}

// A limit that changes in the middle of a window holds for the next call, up and down.
func TestLimitThatChangesInTheMiddleOfAWindow(t *testing.T) {
	stand.Need(t, stand.Weir)
	rules := func(limit string) string {
		return "version: 1\nrules:\n- {name: r, where: origin, by: [key], algorithm: sliding-window, limit: " + limit + "/1d}\n"
	}
	api, keyring := stand.StartAPI(t), stand.NewKeyring(t)
	alice, probe := keyring.Issue(t, "alice"), keyring.Issue(t, "probe")
	o := stand.StartOrigin(t, stand.OriginSettings{Upstream: api.URL, Rules: rules("3"), Keys: keyring.File()})
	c := stand.NewClient(t, "127.0.0.2")
	change := func(limit string) {
		t.Helper()
		o.Write(t, "weir.rules.yaml", rules(limit))
		o.Until(t, "enforces "+limit, func() error {
			r, err := c.Try("http://"+o.Gateway+"/", "X-Api-Key: "+probe)
			if err != nil {
				return err
			}
			return unless(r.Header.Get("X-RateLimit-Limit") == limit, "limit %s", r.Header.Get("X-RateLimit-Limit"))
		})
	}
	calls := func(want ...int) stand.Result {
		t.Helper()
		var r stand.Result
		for i, status := range want {
			if r = c.Get(t, "http://"+o.Gateway+"/", "X-Api-Key: "+alice); r.Status != status {
				t.Errorf("call %d: %d, want %d", i+1, r.Status, status)
			}
		}
		return r
	}
	calls(200, 200, 200, 429)
	change("5")
	calls(200, 200, 429) // the deny cache opened at once
	change("2")
	if r := calls(429, 429); r.Header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("remaining %q below zero's place, want 0", r.Header.Get("X-RateLimit-Remaining"))
	}
	change("7")
	calls(200, 200, 429)

	// A broken file changes nothing.
	o.Write(t, "weir.rules.yaml", "version: 1\nrules: [{name: r, limit: lots}]\n")
	o.Until(t, "says what is wrong with the file", func() error {
		return unless(strings.Contains(o.Log(), "weir.rules.yaml:2"), "nothing in the log yet")
	})
	calls(429)
}
