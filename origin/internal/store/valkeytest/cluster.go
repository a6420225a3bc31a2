package valkeytest

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// slots is the number of hash slots of every cluster.
const slots = 16384

// Cluster is a running Valkey Cluster, each node a process. It ends with its test.
type Cluster struct {
	// Nodes are the primaries, which part the slots evenly in this order, then their replicas: the first replica of each
	// primary in order, then the second. A failover changes roles, not this order. What a node held is gone when it is
	// killed; its place in the cluster is not.
	Nodes []*Server

	t         testing.TB
	primaries int
	ids       []string // of Nodes
}

// StartCluster starts a cluster of primaries without replicas on loopback; args are more options of every node. A node
// that is lost takes only its own slots with it, unless args say otherwise.
func StartCluster(t testing.TB, primaries int, args ...string) *Cluster {
	t.Helper()
	return StartClusterWithReplicas(t, primaries, 0, args...)
}

// StartClusterWithReplicas starts a cluster in which each primary has that many replicas. One of them takes over about
// two seconds after its primary was killed or stopped, or at once by [Cluster.Failover].
func StartClusterWithReplicas(t testing.TB, primaries, replicas int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, primaries: primaries}
	for range primaries * (1 + replicas) {
		_, bus, _ := net.SplitHostPort(freeAddr(t))
		// A test's options come last: the last one of a name holds.
		s := newServer(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port", bus, "--cluster-announce-ip", host,
			"--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no",
			"--repl-diskless-sync-delay", "0",
		}, args...)...)
		s.Run()
		c.Nodes = append(c.Nodes, s)
		c.ids = append(c.ids, s.text("CLUSTER", "MYID"))
		if n := len(c.Nodes); n <= primaries {
			from, to := c.slotsOf(n - 1)
			s.must(t, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to))
			s.must(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(n))
		}
		host, port, _ := net.SplitHostPort(s.Addr)
		for _, known := range c.Nodes[:len(c.Nodes)-1] {
			known.must(t, "CLUSTER", "MEET", host, port, bus)
		}
	}
	c.Await()
	for i := primaries; i < len(c.Nodes); i++ {
		c.Nodes[i].must(t, "CLUSTER", "REPLICATE", c.ids[i%primaries])
	}
	if replicas > 0 {
		c.await("every replica in step with its primary", func(s *Server) bool {
			info := s.Info("replication")
			return info["role"] == "master" && info["connected_slaves"] == strconv.Itoa(replicas) || info["master_link_status"] == "up"
		})
	}
	return c
}

// slotsOf are the first and the last slot that a primary gets.
func (c *Cluster) slotsOf(primary int) (from, to int) {
	return primary * slots / c.primaries, (primary+1)*slots/c.primaries - 1
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() (addrs []string) {
	for _, s := range c.Nodes {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// Primaries are the nodes that began as primaries.
func (c *Cluster) Primaries() []*Server { return c.Nodes[:c.primaries] }

// Await waits until every node that runs takes commands and knows all others.
func (c *Cluster) Await() {
	c.t.Helper()
	c.await("every node sees a whole cluster", func(s *Server) bool {
		info := s.clusterInfo()
		return info["cluster_state"] == "ok" && info["cluster_known_nodes"] == strconv.Itoa(len(c.Nodes)) &&
			info["cluster_slots_assigned"] == strconv.Itoa(slots) && info["cluster_slots_ok"] == strconv.Itoa(slots)
	})
}

// await asks every node that runs until all say yes.
func (c *Cluster) await(what string, ok func(*Server) bool) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for _, s := range c.Nodes {
		for s.cmd != nil && !ok(s) {
			if time.Now().After(deadline) {
				c.t.Fatalf("cluster: %s: not so at %s: %v\n%s", what, s.Addr, s.clusterInfo(), s.text("CLUSTER", "NODES"))
			}
			time.Sleep(20 * time.Millisecond) // other processes: there is no event to wait for
		}
	}
}

// clusterInfo is CLUSTER INFO by the names of its fields.
func (s *Server) clusterInfo() map[string]string {
	s.t.Helper()
	return fields(s.text("CLUSTER", "INFO"))
}

// SlotOf is the slot of a key.
func (c *Cluster) SlotOf(key string) int {
	c.t.Helper()
	for _, s := range c.Nodes {
		if s.cmd != nil {
			slot, err := s.Do("CLUSTER", "KEYSLOT", key).AsInt64()
			if err != nil {
				c.t.Fatalf("CLUSTER KEYSLOT: %v", err)
			}
			return int(slot)
		}
	}
	c.t.Fatal("no node of the cluster runs")
	return 0
}

// Owner is the index in Nodes of the primary that has a slot, as its own node sees it.
func (c *Cluster) Owner(slot int) int {
	c.t.Helper()
	for i, s := range c.Nodes {
		if s.cmd != nil && slices.ContainsFunc(s.ownSlots(), func(r [2]int) bool { return r[0] <= slot && slot <= r[1] }) {
			return i
		}
	}
	c.t.Fatalf("no node that runs has slot %d", slot)
	return 0
}

// ownSlots are the ranges of slots that a node has as a primary.
func (s *Server) ownSlots() (ranges [][2]int) {
	s.t.Helper()
	for line := range strings.Lines(s.text("CLUSTER", "NODES")) {
		f := strings.Fields(line)
		if len(f) < 8 || !strings.Contains(f[2], "myself") || !strings.Contains(f[2], "master") {
			continue
		}
		for _, r := range f[8:] {
			first, last, isRange := strings.Cut(r, "-")
			from, err := strconv.Atoi(first)
			if err != nil {
				continue // a slot on its way: [slot->-id]
			}
			to := from
			if isRange {
				to, _ = strconv.Atoi(last)
			}
			ranges = append(ranges, [2]int{from, to})
		}
	}
	return ranges
}

// Failover makes the first replica of a primary take over while all run, and waits until it has.
func (c *Cluster) Failover(primary int) {
	c.t.Helper()
	replica := c.Nodes[c.primaries+primary]
	replica.must(c.t, "CLUSTER", "FAILOVER")
	c.AwaitPrimary(c.primaries + primary)
}

// AwaitPrimary waits until the node of that index in Nodes is a primary that every node which runs knows of.
func (c *Cluster) AwaitPrimary(node int) {
	c.t.Helper()
	c.await(fmt.Sprintf("node %d is a primary", node), func(s *Server) bool {
		for line := range strings.Lines(s.text("CLUSTER", "NODES")) {
			f := strings.Fields(line)
			if len(f) > 8 && f[0] == c.ids[node] && strings.Contains(f[2], "master") && !strings.Contains(f[2], "fail") {
				return s.clusterInfo()["cluster_state"] == "ok"
			}
		}
		return false
	})
}

// BeginMove starts to move a slot to another primary: keys that the slot's owner lacks are answered with ASK from now
// on. [Cluster.FinishMove] moves the keys.
func (c *Cluster) BeginMove(slot, to int) {
	c.t.Helper()
	from := c.Owner(slot)
	c.Nodes[to].must(c.t, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "IMPORTING", c.ids[from])
	c.Nodes[from].must(c.t, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "MIGRATING", c.ids[to])
}

// FinishMove moves all keys of a slot that [Cluster.BeginMove] was called for, then the slot itself: its old owner
// answers with MOVED from now on.
func (c *Cluster) FinishMove(slot, to int) {
	c.t.Helper()
	from, number := c.Owner(slot), strconv.Itoa(slot)
	host, port, _ := net.SplitHostPort(c.Nodes[to].Addr)
	for {
		m := c.Nodes[from].must(c.t, "CLUSTER", "GETKEYSINSLOT", number, "100")
		keys, err := m.AsStrSlice()
		if err != nil {
			c.t.Fatalf("CLUSTER GETKEYSINSLOT: %v", err)
		}
		if len(keys) == 0 {
			break
		}
		c.Nodes[from].must(c.t, append([]string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}, keys...)...)
	}
	c.Nodes[to].must(c.t, "CLUSTER", "SETSLOT", number, "NODE", c.ids[to])
	c.Nodes[from].must(c.t, "CLUSTER", "SETSLOT", number, "NODE", c.ids[to])
	for i, s := range c.Primaries() {
		if i != to && i != from && s.cmd != nil {
			s.must(c.t, "CLUSTER", "SETSLOT", number, "NODE", c.ids[to])
		}
	}
}
