package counters_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/origin/internal/counters"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

// Of two origins of one store each remembers its own refusals.
func TestAResetAtOneOriginOpensAtTheOthers(t *testing.T) {
	valkey := valkeytest.Start(t)
	dir, key := files(t, "store: {url: \"valkey://"+valkey.Addr+"\", deadline: 5s}\n")
	here, there := start(t, dir, key), start(t, dir, key)
	for _, o := range []*origin{here, there} {
		awaitStore(o)
		o.call(6, "GET", "/")
		if c := named(o.show("key-id=acme-prod"), "per-key")[0]; c.Status != counters.Refused || c.Used != 5 || !c.DenyCached {
			t.Fatalf("%+v", c)
		}
	}
	for began := time.Now(); ; { // both hear what the other tells
		listeners, err := valkey.Do("PUBSUB", "NUMSUB", "w1:forget").AsIntMap()
		if listeners["w1:forget"] == 2 {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("want 2 origins that listen to each other: %v, %v", listeners, err)
		}
	}
	status, text := here.ask("POST", "/counters/reset", counters.Reset{Rule: "per-key", Caller: acme, Reason: "r", By: "b"})
	if status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	// The other one hears of it, which takes a moment; its refusals are from memory until then, so they change nothing.
	for began := time.Now(); there.call(1, "GET", "/") == 0; {
		if time.Since(began) > 20*time.Second {
			t.Fatal("the other origin was not told")
		}
	}
	if n := here.call(6, "GET", "/"); n != 4 {
		t.Errorf("%d more calls passed, want the 4 that are left of 5", n)
	}
}

// awaitStore has an origin answer by its store: a call before it is connected is counted in its memory.
func awaitStore(o *origin) {
	o.t.Helper()
	for began := time.Now(); ; {
		if r := o.show("tenant=acme"); named(r, "per-tenant")[0].Status != counters.Lost {
			return
		}
		if time.Since(began) > 20*time.Second {
			o.t.Fatal("the store was not reached")
		}
	}
}

// Case 15: something else is stored under a counter's name.
func TestAForeignValueIsShownAndResetAway(t *testing.T) {
	valkey := valkeytest.Start(t)
	dir, key := files(t, "store: {url: \"valkey://"+valkey.Addr+"\", deadline: 5s}\n")
	o := start(t, dir, key)
	awaitStore(o)
	if n := o.call(1, "GET", "/"); n != 1 {
		t.Fatal("the first call is refused")
	}
	for _, name := range valkey.Keys() {
		if err := valkey.Do("SET", name, "not ours").Error(); err != nil {
			t.Fatal(err)
		}
	}
	for _, rule := range []string{"per-key", "per-tenant"} {
		if c := named(o.show("key-id=acme-prod"), rule)[0]; c.Status != counters.Foreign || c.Used != 0 {
			t.Errorf("%+v", c)
		}
		if status, text := o.ask("POST", "/counters/reset", counters.Reset{Rule: rule, Caller: acme, Reason: "r", By: "b"}); status != 200 {
			t.Errorf("%d %s", status, text)
		}
		if c := named(o.show("key-id=acme-prod"), rule)[0]; c.Status != counters.OK || c.Used != 0 {
			t.Errorf("after the reset: %+v", c)
		}
	}
}

// withStoppedStore is an origin whose server stands still until the test is over.
func withStoppedStore(t *testing.T) *origin {
	t.Helper()
	valkey := valkeytest.Start(t)
	dir, key := files(t, "store: {url: \"valkey://"+valkey.Addr+"\", deadline: 100ms}\n")
	o := start(t, dir, key)
	awaitStore(o)
	valkey.Stop()
	t.Cleanup(valkey.Continue)
	return o
}

// With the store gone nothing is known, and nothing is said to have been reset.
func TestWithoutItsStoreTheDoorSaysSo(t *testing.T) {
	o := withStoppedStore(t)
	if c := named(o.show("key-id=acme-prod"), "per-key")[0]; c.Status != counters.Lost || c.Error == "" {
		t.Errorf("%+v", c)
	}
	status, text := o.ask("POST", "/counters/reset", counters.Reset{Rule: "per-key", Caller: acme, Reason: "r", By: "b"})
	if status != 502 || !strings.Contains(text, "it may have been reset or not") {
		t.Errorf("%d %s, want 502", status, text)
	}
	if lines := o.audit(); len(lines) != 1 || lines[0]["error"] == nil {
		t.Errorf("audit: %v", lines)
	}
}

// A server that is left alone was not asked: nobody has to look whether the counter was reset.
func TestAResetThatAnOpenBreakerKeepsFromTheStoreSaysSo(t *testing.T) {
	o := withStoppedStore(t)
	for began := time.Now(); ; {
		var burst sync.WaitGroup
		for range 2 * breaker.MinSample {
			burst.Go(func() { o.call(1, "GET", "/") })
		}
		burst.Wait()
		status, text := o.ask("POST", "/counters/reset", counters.Reset{Rule: "per-key", Caller: acme, Reason: "r", By: "b"})
		if status == 502 && strings.Contains(text, "it was not reset") {
			return
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("the breaker is open: %d %s", status, text)
		}
	}
}
