package valkey

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
)

func TestPlainCommandsConformOnACluster(t *testing.T) {
	t.Parallel()
	cluster := valkeytest.StartCluster(t, 3)
	s, c := openCommands(t, Options{Addrs: cluster.Addrs(), Cluster: true})
	now := c.fixed(0)
	c.spare = madeUpSpare
	all := suite(func(*testing.T) (*Store, *atomic.Int64) {
		for _, node := range cluster.Nodes {
			node.Flush()
		}
		return s, now
	}, func() map[string]string { return contents(cluster.Nodes...) })
	all.Spread = true
	all.Foreign = foreignValues(ownerOf(cluster), func(c limiter.Charge) string { return windowKey(c, limit.Micros(now.Load())) })
	delete(all.Foreign, "nothing") // which reads as no value
	all.Run(t)
	t.Run("repeats at once are asked one after the other", func(t *testing.T) { repeatsAtOnce(t, cluster, s) })
}

// repeatsAtOnce: each of a hundred calls charges once and, but the first, gives back once. Those that met each other would
// charge again.
func repeatsAtOnce(t *testing.T, cluster *valkeytest.Cluster, s *Store) {
	l := limit.Limit{Count: 3, Window: limit.Hour}
	charges := []limiter.Charge{spreadCharge(1, l, 3), spreadCharge(0xfff1, l, 1)}
	before := make([]map[string]int64, len(cluster.Nodes))
	for i, node := range cluster.Nodes {
		node.Flush()
		before[i] = node.Calls()
	}
	var passed atomic.Int64
	var together sync.WaitGroup
	for range 100 {
		together.Go(func() {
			if admitted(call(t, s, &limiter.Call{ID: limiter.CallID{5}, Charges: charges})) {
				passed.Add(1)
			}
		})
	}
	together.Wait()
	ran := map[string]int64{}
	for i, node := range cluster.Nodes {
		for command, n := range node.Since(before[i]) {
			ran[command] += n
		}
	}
	delete(ran, "time") // the watch's
	if want := map[string]int64{"incrby": 200, "pexpire": 200, "getrange": 200, "decrby": 198, "set": 101}; passed.Load() != 100 || !maps.Equal(ran, want) {
		t.Errorf("%d of 100 repeats were admitted by %v, want all by %v", passed.Load(), ran, want)
	}
}

func TestPlainCommandsOnACluster(t *testing.T) {
	t.Parallel()
	cluster := valkeytest.StartCluster(t, 3)
	s, c := openCommands(t, Options{Addrs: cluster.Addrs(), Cluster: true})
	c.fixed(limit.MaxWindow)
	before := make([]map[string]int64, 3)
	for i, node := range cluster.Nodes {
		before[i] = node.Calls()
	}
	slots := map[int]int{} // node → a counter of it
	for n := 0; len(slots) < 3; n++ {
		key := spread(n)
		slots[cluster.Owner(cluster.SlotOf(string(key[:])))] = n
	}
	l := limit.Limit{Count: 50, Window: limit.Hour}
	charges := []limiter.Charge{spreadCharge(slots[0], l, 1), spreadCharge(slots[1], l, 1), spreadCharge(slots[2], limit.Limit{Count: 20, Window: limit.Hour}, 1)}
	var passed atomic.Int64
	var together sync.WaitGroup
	for range 100 {
		together.Go(func() {
			if admitted(ask(t, s, charges...)) {
				passed.Add(1)
			}
		})
	}
	together.Wait()
	if passed.Load() > 20 || passed.Load() == 0 {
		t.Errorf("%d of 100 parallel calls over three slots passed at a limit of 20", passed.Load())
	}
	for i, ch := range charges {
		ch.Cost = 0
		if o := ask(t, s, ch)[0]; ch.Limit.Count-o.Decision.Remaining != passed.Load() {
			t.Errorf("%d passed, but counter %d holds %d", passed.Load(), i, ch.Limit.Count-o.Decision.Remaining)
		}
		ran := cluster.Nodes[i].Since(before[i])
		if ran["incrby"] != 100 || ran["decrby"] != 100-passed.Load() {
			t.Errorf("node %d ran %v for 100 calls of which %d passed", i, ran, passed.Load())
		}
	}
	t.Logf("%d of 20 passed: %d false refusals by charges in flight", passed.Load(), 20-passed.Load())

	// A lost part: the rest is charged, and its own charge is told as lost.
	cluster.Nodes[2].Kill()
	var o []limiter.Outcome
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		o = make([]limiter.Outcome, 3)
		if err := s.Take(ctx, &limiter.Call{Charges: charges, Outcomes: o}); err != nil {
			t.Fatal(err)
		}
		cancel()
		var failed *limiter.StoreError
		if o[0].Status != limiter.Admitted || !o[0].Charged || o[1].Status != limiter.Admitted || o[2].Status != limiter.Lost || !errors.As(o[2].Err, &failed) {
			t.Errorf("with a part lost: %+v", o)
		}
	}
	// All of it lost.
	err := s.Take(context.Background(), &limiter.Call{Charges: charges[2:], Outcomes: make([]limiter.Outcome, 1)})
	var failed *limiter.StoreError
	if !errors.As(err, &failed) {
		t.Errorf("with all lost: %v", err)
	}
}
