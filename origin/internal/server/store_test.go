package server_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

func TestAProcessOnAClusterShowsItsShards(t *testing.T) {
	c := valkeytest.StartCluster(t, 3)
	dir := settings(t, "store: {url: \"valkey://"+strings.Join(c.Addrs()[:2], ",")+"\", cluster: true, deadline: 5s}\nsecrets: {counter: [secret]}\n")
	write(t, filepath.Join(dir, "secret"), strings.Repeat("s", 32))
	p := start(t, dir)
	// Known before the first call is taken: one counted by this process alone would come on top of the limit.
	if _, r := p.readiness(); !r.Store.Up || len(r.Store.Shards) != 3 || r.Degraded {
		t.Errorf("takes calls before its store is known: %+v", r)
	}
	if n := p.passes(5); n != 3 {
		t.Errorf("%d of 5 calls passed at 3/h", n)
	}
	_, metrics := p.get("admin", "/metrics")
	for i, want := range c.Addrs() {
		if _, r := p.readiness(); r.Store.Shards[i].Breaker != "closed" || !r.Store.Shards[i].Up {
			t.Errorf("shard %+v", r.Store.Shards[i])
		}
		for _, metric := range []string{"weir_breaker_state", "weir_clock_offset_seconds"} {
			if !strings.Contains(metrics, metric+`{shard="`+want+`"}`) {
				t.Errorf("metrics lack %s of %s", metric, want)
			}
		}
	}
	if !strings.Contains(metrics, "weir_store_up 1") {
		t.Error("weir_store_up is not 1")
	}
}
