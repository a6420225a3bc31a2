package valkeytest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"

	"github.com/weirproject/weir/shared/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect makes a client of a test.
func connect(t *testing.T, o valkey.ClientOption) (valkey.Client, error) {
	t.Helper()
	o.DisableCache, o.AlwaysPipelining, o.DisableRetry = true, true, true
	client, err := valkey.NewClient(o)
	if err == nil {
		t.Cleanup(client.Close)
	}
	return client, err
}

func ping(c valkey.Client) error { return c.Do(context.Background(), c.B().Ping().Build()).Error() }

func TestAServerTellsWhatItRan(t *testing.T) {
	s := Start(t)
	before, cpu, now := s.Calls(), s.CPU(), s.Time()
	for range 7 {
		s.must(t, "INCR", "n")
	}
	s.must(t, "CONFIG", "GET", "port")
	if got := s.Since(before); !maps.Equal(got, map[string]int64{"incr": 7, "config|get": 1, "time": 1}) {
		t.Errorf("ran %v", got)
	}
	if s.CPU() < cpu || cpu <= 0 || s.Time() <= now {
		t.Errorf("CPU %v then %v, time %d then %d", cpu, s.CPU(), now, s.Time())
	}
	if keys := s.Keys(); !slices.Equal(keys, []string{"n"}) {
		t.Errorf("keys %q", keys)
	}
	s.Flush()
	if len(s.Keys()) != 0 {
		t.Error("not empty after a flush")
	}
}

func TestAUserIsThereAfterARestart(t *testing.T) {
	s := Start(t)
	s.User("weir", "secret", "~w1:*", "+get", "+ping", "+hello")
	for range 2 {
		c, err := connect(t, valkey.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true, Username: "weir", Password: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Do(context.Background(), c.B().Get().Key("w1:x").Build()).Error(); !valkey.IsValkeyNil(err) {
			t.Errorf("a permitted command: %v", err)
		}
		if err := c.Do(context.Background(), c.B().Get().Key("x").Build()).Error(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("a forbidden key: %v", err)
		}
		s.Kill()
		s.Run()
	}
}

func TestAClusterServesAllSlotsAndMovesThem(t *testing.T) {
	c := StartCluster(t, 3)
	client, err := connect(t, valkey.ClientOption{InitAddress: c.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	incr := func(key string) {
		t.Helper()
		if err := client.Do(context.Background(), client.B().Incr().Key(key).Build()).Error(); err != nil {
			t.Error(err)
		}
	}
	for _, key := range []string{"{a}", "{b}", "{c}", "{d}", "{e}", "{f}"} {
		incr(key)
	}
	for i, s := range c.Nodes {
		if len(s.Keys()) == 0 {
			t.Errorf("node %d of 3 holds none of 6 keys", i)
		}
	}
	slot := c.SlotOf("{a}")
	from := c.Owner(slot)
	to := (from + 1) % 3
	c.BeginMove(slot, to)
	incr("{a}")
	incr("{a}new") // by ASK
	if keys := c.Nodes[to].Keys(); !slices.Contains(keys, "{a}new") || slices.Contains(keys, "{a}") {
		t.Errorf("the new owner holds %q in the middle of a move", keys)
	}
	c.FinishMove(slot, to)
	incr("{a}") // by MOVED
	if n, err := c.Nodes[to].Do("GET", "{a}").AsInt64(); n != 3 || err != nil {
		t.Errorf("3 calls over a move left %d, %v", n, err)
	}

	dead := c.Nodes[(from+2)%3]
	dead.Kill()
	incr("{a}") // other parts live on
	dead.Run()
	c.Await()
}

func TestAReplicaTakesOver(t *testing.T) {
	c := StartClusterWithReplicas(t, 3, 1)
	c.Failover(0)
	if owner := c.Owner(0); owner != 3 {
		t.Errorf("slot 0 is node %d's after a failover, want 3", owner)
	}
	c.Nodes[1].Kill()
	c.AwaitPrimary(4)
	if owner := c.Owner(slots / 2); owner != 4 {
		t.Errorf("slot %d is node %d's after its primary was killed, want 4", slots/2, owner)
	}
}

func TestTLSWantsTheRightAuthority(t *testing.T) {
	s := StartTLS(t, true)
	pem, err := os.ReadFile(s.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(config *tls.Config) error {
		c, err := connect(t, valkey.ClientOption{InitAddress: []string{s.TLSAddr}, ForceSingleClient: true, TLSConfig: config})
		if err != nil {
			return err
		}
		return ping(c)
	}
	if err := dial(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}); err != nil {
		t.Errorf("a client of the right authority: %v", err)
	}
	if dial(&tls.Config{RootCAs: roots}) == nil {
		t.Error("a client without a certificate was served")
	}
	if dial(&tls.Config{Certificates: []tls.Certificate{pair}}) == nil {
		t.Error("a client that does not know the authority went on")
	}
}

func TestAProxyDelaysAndBreaksTheLine(t *testing.T) {
	s := Start(t)
	p := StartProxy(t, s.Addr)
	dial := func() valkey.Client {
		c, err := connect(t, valkey.ClientOption{InitAddress: []string{p.Addr}, ForceSingleClient: true, DisableRetry: true, ConnWriteTimeout: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := dial()
	const trip = 20 * time.Millisecond
	p.Delay(trip/2, trip/2)
	for range 5 {
		if sent := time.Now(); ping(c) != nil || time.Since(sent) < trip {
			t.Errorf("a round trip of %v took %v", trip, time.Since(sent))
		}
	}
	p.Delay(0, 0)
	p.Drop(true)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if c.Do(ctx, c.B().Incr().Key("dropped").Build()).Error() == nil || len(s.Keys()) != 0 {
		t.Error("a dropped command arrived")
	}
	p.Drop(false)
	p.Cut()

	// Without a client, which may send again, or nothing once its time is over.
	line, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close()
	p.Count("INCR")
	p.LoseReplies(true)
	if _, err := line.Write([]byte("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n")); err != nil {
		t.Fatal(err)
	}
	arrived := func() bool { n, _ := s.Do("GET", "n").AsInt64(); return n == 1 }
	for deadline := time.Now().Add(patience); !arrived(); time.Sleep(time.Millisecond) { // another process: there is no event to wait for
		if time.Now().After(deadline) {
			t.Fatal("the command whose reply was lost did not arrive")
		}
	}
	line.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := line.Read(make([]byte, 64)); err == nil {
		t.Errorf("a lost reply of %d bytes came", n)
	}
	if p.Counted() != 1 {
		t.Errorf("%d commands were counted, want 1", p.Counted())
	}
	p.LoseReplies(false)
	p.Cut()
	if err := ping(dial()); err != nil {
		t.Errorf("a new connection after a cut: %v", err)
	}
}

func TestAServersClockSteps(t *testing.T) {
	s := StartStepping(t)
	before := s.Time()
	s.Step(time.Hour)
	if moved := s.Time() - before; moved < limit.Hour || moved > limit.Hour+limit.Minute {
		t.Errorf("a step of 1h moved the clock by %v µs", moved)
	}
	s.Step(-time.Hour)
	if moved := s.Time() - before; moved < 0 || moved > limit.Minute {
		t.Errorf("after a step there and back the clock is off by %v µs", moved)
	}
}
