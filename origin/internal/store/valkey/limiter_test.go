package valkey_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/limit"
)

// origin is a limiter on a cluster, as a process has one.
type origin struct {
	t       *testing.T
	cluster *valkeytest.Cluster
	limiter *limiter.Limiter
}

func openOrigin(t *testing.T, c *valkeytest.Cluster) origin {
	t.Helper()
	release, err := rules.Load("testdata/cluster.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan bool, 64)
	log := slog.New(slog.DiscardHandler)
	s := valkey.New(valkey.Options{Addrs: c.Addrs()[:1], Cluster: true, Log: log, OnUp: func(b bool) { up <- b }})
	t.Cleanup(s.Close)
	for ready, patience := false, time.After(20*time.Second); !ready; {
		select {
		case ready = <-up:
		case <-patience:
			t.Fatal("the store did not become up")
		}
	}
	l := limiter.New(limiter.Options{
		Store: s, Slot: s.Slot, Fallback: memory.New(100, nil), Secret: []byte(strings.Repeat("s", 32)),
		Now: func() limit.Micros { return limit.Micros(time.Now().UnixMicro()) }, Metrics: telemetry.New(), Log: log,
	}, release)
	t.Cleanup(l.Close)
	return origin{t, c, l}
}

// check is a call of a key, "" for none.
func (o origin) check(key, path string, peek bool) limiter.Verdict {
	request := limiter.Request{Method: "GET", Path: path, Peek: peek}
	if key != "" {
		request.Caller = identity.Caller{Key: &keys.Key{ID: key}}
	}
	v, err := o.limiter.Check(context.Background(), request)
	if err != nil || v.Degraded {
		o.t.Errorf("%s %s: degraded %v, %v", key, path, v.Degraded, err)
	}
	return v
}

// asked tells how many of a command each server ran while do ran.
func (o origin) asked(command string, do func()) (n []int64) {
	o.t.Helper()
	var before []map[string]int64
	for _, server := range o.cluster.Nodes {
		before = append(before, server.Calls())
	}
	do()
	for i, server := range o.cluster.Nodes {
		n = append(n, server.Since(before[i])[command])
	}
	return n
}

// The limiter on a cluster of three, by a file of rules.
func TestTheLimiterOnACluster(t *testing.T) {
	t.Parallel()
	c := valkeytest.StartCluster(t, 3)
	for _, test := range []struct {
		name string
		run  func(origin)
	}{
		{"ten thousand callers spread evenly", spreadEvenly},
		{"three rules of one principal are one call", oneCall},
		{"three principals on three servers are all-or-none under parallel callers", threeServers},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, server := range c.Nodes {
				server.Flush()
			}
			test.run(openOrigin(t, c))
		})
	}
}

// Counters as the limiter names them spread over the servers.
func spreadEvenly(o origin) {
	const callers, workers = 10_000, 50
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := w; n < callers; n += workers {
				o.check(fmt.Sprintf("customer-%d", n), "/alone", false)
			}
		})
	}
	wg.Wait()
	var sizes []int64
	all := int64(0)
	for i, server := range o.cluster.Nodes {
		size, err := server.Do("DBSIZE").AsInt64()
		if err != nil {
			o.t.Fatal(err)
		}
		sizes = append(sizes, size)
		if all += size; size < callers/3*9/10 || size > callers/3*11/10 {
			o.t.Errorf("server %d holds %d of %d counters, want a third ± 10 %%", i, size, callers)
		}
	}
	if all != callers {
		o.t.Errorf("%d counters, want %d", all, callers)
	}
	o.t.Logf("%d counters on three servers: %v", callers, sizes)
}

// The rules of one principal share a slot, whatever their algorithms: a call that meets three is one command.
func oneCall(o origin) {
	for n := range 20 {
		key := fmt.Sprintf("customer-%d", n)
		asked := o.asked("fcall", func() {
			if v := o.check(key, "/same", false); !v.Allowed || len(v.Views) != 3 {
				o.t.Errorf("%+v", v)
			}
		})
		if asked[0]+asked[1]+asked[2] != 1 {
			o.t.Errorf("%s: three rules of one principal were %v FCALL", key, asked)
		}
	}
}

// only is the one server that ran an FCALL while do ran, -1 if not one did.
func (o origin) only(do func()) (server int) {
	o.t.Helper()
	server = -1
	for i, n := range o.asked("fcall", do) {
		switch {
		case n == 1 && server < 0:
			server = i
		case n != 0:
			return -1
		}
	}
	return server
}

// apart finds an endpoint and keys whose counters are on servers apart from each other's and from everybody's.
func (o origin) apart(want int) (path string, keys []string) {
	o.t.Helper()
	everybody := o.only(func() { o.check("", "/everybody", false) })
	endpoint := -1
	for _, last := range "abcdefghij" {
		path = "/three/" + string(last)
		asked := o.asked("fcall", func() { o.check("", path, false) })
		for i, n := range asked {
			if i != everybody && n == 1 {
				endpoint = i
			}
		}
		if endpoint >= 0 {
			break
		}
	}
	if everybody < 0 || endpoint < 0 {
		o.t.Fatalf("everybody's counter is on server %d, of ten endpoints one on %d", everybody, endpoint)
	}
	for n := 0; len(keys) < want; n++ {
		key := fmt.Sprintf("customer-%d", n)
		if server := o.only(func() { o.check(key, "/alone", false) }); server >= 0 && server != everybody && server != endpoint {
			keys = append(keys, key)
		}
	}
	return path, keys
}

// A call that meets rules by key, by endpoint and of everybody is one command on each of three servers, or, refused, one more
// on those that charged. A hundred callers at once are never admitted beyond a limit, and what one rule refuses no other is
// charged for.
func threeServers(o origin) {
	path, keys := o.apart(3)
	for _, server := range o.cluster.Nodes { // what apart charged
		server.Flush()
	}
	o = openOrigin(o.t, o.cluster)
	if asked := o.asked("fcall", func() { o.check(keys[0], path, false) }); fmt.Sprint(asked) != "[1 1 1]" {
		o.t.Errorf("a call that meets three principals was %v FCALL", asked)
	}
	const callers, each = 100, 10
	perKey, endpoint, everybody := int64(150), int64(400), int64(600)
	passed := make([]atomic.Int64, len(keys))
	passed[0].Store(1)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range each {
				if o.check(keys[i%len(keys)], path, false).Allowed {
					passed[i%len(keys)].Add(1)
				}
			}
		})
	}
	all.Wait()
	// Another process remembers no refusal: it finds what is charged, and gets what was refused falsely.
	other := openOrigin(o.t, o.cluster)
	sum := int64(0)
	charged := func(when string) {
		o.t.Helper()
		sum = 0
		for i := range keys {
			sum += passed[i].Load()
		}
		for i, key := range keys {
			for _, view := range other.check(key, path, true).Views {
				used := view.Limit.Count - view.Decision.Remaining
				if want := map[string]int64{"per-key": passed[i].Load(), "per-endpoint": sum, "everybody": sum}[view.Rule]; used != want {
					o.t.Errorf("%s, %s: %d charged for %d calls that passed", when, view.Rule, used, want)
				}
			}
			if n := passed[i].Load(); n > perKey {
				o.t.Errorf("%s: %d calls of %s passed a limit of %d", when, n, key, perKey)
			}
		}
		if sum > endpoint || sum > everybody {
			o.t.Errorf("%s: %d calls passed limits of %d and %d", when, sum, endpoint, everybody)
		}
	}
	charged("in parallel")
	parallel := sum
	for i, key := range keys {
		for other.check(key, path, false).Allowed {
			passed[i].Add(1)
		}
	}
	charged("alone")
	if sum != endpoint {
		o.t.Errorf("%d calls passed in all, want %d", sum, endpoint)
	}
	if parallel < endpoint-callers {
		o.t.Errorf("%d calls were refused falsely, want at most the %d in flight", endpoint-parallel, callers)
	}
	o.t.Logf("%d parallel calls of three keys: %d passed, %d were refused falsely (bound %d)", callers*each, parallel, endpoint-parallel, callers)
}
