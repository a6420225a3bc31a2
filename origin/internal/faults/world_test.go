package faults

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

const (
	user, password = "weir", "secret-of-the-store"
	otherPassword  = "secret-of-another-store" // which the store refuses
	// far is a line so long that a call is not answered within a deadline of 400 ms, but within the second after which a
	// connection is given up.
	far = 700 * time.Millisecond
	// home is the address whose counters a cluster's faults are about.
	home = "127.0.0.2"
)

// world is the store's servers with what lies between them and the origins.
type world struct {
	t        testing.TB
	servers  []*valkeytest.Server
	proxy    *valkeytest.Proxy // of the only server; nil in a cluster
	cluster  *valkeytest.Cluster
	stepping *valkeytest.Stepping
	at       int    // in a cluster, the index of the node with home's counters
	slot     int    // its slot
	password string // the origins' password-file
}

func newWorld(t testing.TB, kind string) *world {
	t.Helper()
	w := &world{t: t, password: filepath.Join(t.TempDir(), "password")}
	w.writePassword(password)
	switch kind {
	case "cluster":
		w.cluster = valkeytest.StartCluster(t, 3)
		w.servers = w.cluster.Nodes
	case "replicated":
		w.cluster = valkeytest.StartClusterWithReplicas(t, 3, 1)
		w.servers = w.cluster.Nodes
	case "stepping":
		w.stepping = valkeytest.StartStepping(t)
		w.servers = []*valkeytest.Server{w.stepping.Server}
	default:
		w.servers = []*valkeytest.Server{valkeytest.Start(t)}
	}
	for _, s := range w.servers {
		s.User(user, password, "~*", "&*", "+@all")
	}
	if w.cluster == nil {
		w.proxy = valkeytest.StartProxy(t, w.servers[0].Addr)
	}
	return w
}

// store is the text of store: {…} in weir.yaml.
func (w *world) store(strategy string, deadline time.Duration) string {
	at, more := []string(nil), ""
	if w.proxy != nil {
		at = []string{w.proxy.Addr}
	} else {
		at, more = w.cluster.Addrs(), ", cluster: true"
	}
	if strategy != "" {
		more += ", strategy: " + strategy
	}
	return fmt.Sprintf("{url: \"valkey://%s\", username: %s, password-file: %q, deadline: %v%s}", strings.Join(at, ","), user, w.password, deadline, more)
}

// writePassword puts a password in the file's place in one step, as who rotates it does.
func (w *world) writePassword(text string) {
	w.t.Helper()
	next := w.password + ".next"
	if err := os.WriteFile(next, []byte(text+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(next, w.password); err != nil {
		w.t.Fatal(err)
	}
}

// locate finds where home's counters are, which by now are all that there are.
func (w *world) locate() {
	w.t.Helper()
	if w.cluster == nil {
		return
	}
	for i, s := range w.cluster.Primaries() {
		if keys := s.Keys(); len(keys) > 0 {
			w.at, w.slot = i, w.cluster.SlotOf(keys[0])
			return
		}
	}
	w.t.Fatal("no node of the cluster has a counter")
}

// do sends a command that must succeed to a server.
func (w *world) do(s *valkeytest.Server, words ...string) {
	w.t.Helper()
	if err := s.Do(words...).Error(); err != nil {
		w.t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
}

// faultCommand is something that goes wrong, or is mended.
type faultCommand struct {
	on  []string // kinds of servers
	run func(*world)
}

var (
	single    = []string{"one", "stepping"}
	clustered = []string{"cluster", "replicated"}
	copied    = []string{"replicated"}
)

// faultCommands are all that a scenario may command. Of a cluster they meet the node with home's counters.
var faultCommands = map[string]faultCommand{
	"stop":     {serverKinds, func(w *world) { w.servers[w.at].Stop() }},
	"continue": {serverKinds, func(w *world) { w.servers[w.at].Continue() }},
	"kill":     {serverKinds, func(w *world) { w.servers[w.at].Kill() }},
	"run":      {serverKinds, func(w *world) { w.servers[w.at].Run() }},

	"slow":         {single, func(w *world) { w.proxy.Delay(far/2, far/2) }},
	"fast":         {single, func(w *world) { w.proxy.Delay(0, 0) }},
	"drop":         {single, func(w *world) { w.proxy.Drop(true) }},
	"lose-replies": {single, func(w *world) { w.proxy.LoseReplies(true) }},
	// What was lost stays lost to a connection: it ends with the fault, as one that timed out.
	"carry": {single, func(w *world) {
		w.proxy.Drop(false)
		w.proxy.LoseReplies(false)
		w.proxy.Cut()
	}},
	"cut": {single, func(w *world) { w.proxy.Cut() }},

	"wrong-password": {single, func(w *world) {
		w.do(w.servers[0], "ACL", "SETUSER", user, "resetpass", ">"+otherPassword)
		w.do(w.servers[0], "CLIENT", "KILL", "USER", user)
	}},
	"right-password": {single, func(w *world) { w.do(w.servers[0], "ACL", "SETUSER", user, "resetpass", ">"+password) }},
	"wrong-file":     {serverKinds, func(w *world) { w.writePassword(otherPassword) }},
	"right-file":     {serverKinds, func(w *world) { w.writePassword(password) }},
	"no-file": {serverKinds, func(w *world) {
		if err := os.Remove(w.password); err != nil {
			w.t.Fatal(err)
		}
	}},
	"flush-functions": {serverKinds, func(w *world) {
		w.do(w.servers[w.at], "FUNCTION", "FLUSH")
	}},
	"full":       {single, func(w *world) { w.do(w.servers[0], "CONFIG", "SET", "maxmemory", "1") }},
	"room":       {single, func(w *world) { w.do(w.servers[0], "CONFIG", "SET", "maxmemory", "0") }},
	"read-only":  {single, func(w *world) { w.do(w.servers[0], "REPLICAOF", "127.0.0.1", "1") }},
	"read-write": {single, func(w *world) { w.do(w.servers[0], "REPLICAOF", "NO", "ONE") }},
	"lose-hints": {single, func(w *world) {
		w.do(w.servers[0], "ACL", "SETUSER", user, "resetchannels")
		w.do(w.servers[0], "CLIENT", "KILL", "TYPE", "pubsub")
	}},

	"clock-on":   {[]string{"stepping"}, func(w *world) { w.stepping.Step(time.Hour) }},
	"clock-back": {[]string{"stepping"}, func(w *world) { w.stepping.Step(-time.Hour) }},

	"begin-move":  {clustered, func(w *world) { w.cluster.BeginMove(w.slot, (w.at+1)%3) }},
	"finish-move": {clustered, func(w *world) { w.cluster.FinishMove(w.slot, (w.at+1)%3) }},
	"failover": {copied, func(w *world) {
		w.cluster.Failover(w.at)
		w.at += 3
	}},
	"part-replica": {copied, func(w *world) { w.partReplica() }},
	"await-replica": {copied, func(w *world) {
		w.cluster.AwaitPrimary(w.at + 3)
		w.at += 3
	}},
}

// partReplica keeps the replica from what its primary does from now on, as a link that is down does: what follows is the
// tail that a failover loses. What came before it has.
func (w *world) partReplica() {
	w.t.Helper()
	primary, replica := w.servers[w.at], w.servers[w.at+3]
	_, port, _ := net.SplitHostPort(replica.Addr)
	written := primary.Info("replication")["master_repl_offset"]
	awaitTrue(w.t, "the replica on port "+port+" has what was written", func() bool {
		read := replica.Info("replication")["slave_repl_offset"]
		return len(read) > len(written) || len(read) == len(written) && read >= written
	})
	w.do(primary, "ACL", "SETUSER", "default", "-psync", "-sync")
	w.do(primary, "CLIENT", "KILL", "TYPE", "replica")
	awaitTrue(w.t, "the replica on port "+port+" is cut off", func() bool {
		return primary.Info("replication")["connected_slaves"] == "0"
	})
	if had, has := len(primary.Keys()), len(replica.Keys()); has < had {
		w.t.Fatalf("the replica has %d keys of %d: %v", has, had, replica.Info("replication"))
	}
}

// awaitTrue asks another process again and again, which has no event to wait for.
func awaitTrue(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so within %v: %s", patience, what)
		}
	}
}

// count counts from now on what checks send through the proxy: each sends one of these, of one rule.
func (w *world) count(strategy string) {
	command := "FCALL"
	if strategy == "commands" {
		command = "INCRBY"
	}
	w.proxy.Count(command + "\r\n")
}

// asked is how many of those came by at the proxy.
func (w *world) asked() int { return w.proxy.Counted() }

// loads is how often the servers were given the function.
func (w *world) loads() (n int) {
	for _, s := range w.servers {
		n += int(s.Calls()["function|load"])
	}
	return n
}

// faultNames are all, for the README's sake.
func faultNames() (names []string) {
	for name := range faultCommands {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
