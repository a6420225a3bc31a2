package valkey

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/storetest"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// leastRules are what an ACL user of weir needs at least, as the origin's README tells.
var leastRules = []string{"resetchannels", "&w1:forget", "~w1:*", "-@all",
	"+fcall", "+fcall_ro", "+function|load", "+getrange", "+set", "+setrange", "+del", "+exists", "+pexpire", "+rename", "+incrby", "+decrby",
	"+zadd", "+zcount", "+zrem", "+zremrangebyscore",
	"+time", "+info", "+cluster|slots", "+asking", "+publish", "+subscribe", "+unsubscribe",
	"+auth", "+hello", "+ping", "+select", "+client|setname", "+client|setinfo"}

func user(name, password string) func() (string, string, error) {
	return func() (string, string, error) { return name, password, nil }
}

func TestTheLeastUserIsEnough(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	server.User("weir", "secret", leastRules...)
	for _, strategy := range []Strategy{Function, Commands} {
		t.Run(strategy.String(), func(t *testing.T) {
			suite := storetest.Suite{GivesBack: strategy == Commands, Open: func(t *testing.T) limiter.Store {
				server.Flush()
				s := start(t, Options{Addrs: []string{server.Addr}, DB: 3, Credentials: user("weir", "secret"), Strategy: strategy})
				s.Announce([]limiter.Counter{name(1)})
				return settled{s}
			}}
			for a := rule.TokenBucket; a <= rule.SlidingLog; a++ {
				if strategy.Supports(a) {
					suite.Algorithms = append(suite.Algorithms, a)
				}
			}
			suite.Run(t)
		})
	}
	t.Run("rotation", func(t *testing.T) {
		s := start(t, Options{Addrs: []string{server.Addr}, Credentials: user("weir", "secret"), SwitchAt: 1})
		l := limit.Limit{Count: 10, Window: limit.MaxWindow / 2}
		for n, a := range []rule.Algorithm{rule.SlidingWindow, rule.SlidingLog} {
			c := charge(9000+2*n, l, 3)
			c.Algorithm = a
			take(t, s, -1, c)
			c.Former, c.Counter = c.Counter, name(9001+2*n)
			if o := take(t, s, -1, c); o[0].Decision.Remaining != 4 {
				t.Errorf("%v: under its new name a counter of 3 is left %+v by 3 more", a, o[0].Decision)
			}
		}
	})
	denied, err := server.Do("ACL", "LOG").ToArray()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range denied {
		fields, _ := entry.AsMap()
		object := fields["object"]
		text, _ := object.ToString()
		t.Errorf("the user was denied %q", text)
	}
}

// tlsConfig trusts the test's authority; certificate adds the client's own.
func tlsConfig(t *testing.T, s *valkeytest.TLS, certificate bool) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(s.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AppendCertsFromPEM(pem)
	if certificate {
		pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

func TestTLSWithOnesOwnAuthority(t *testing.T) {
	t.Parallel()
	server := valkeytest.StartTLS(t, true)
	s := start(t, Options{Addrs: []string{server.TLSAddr}, TLS: tlsConfig(t, server, true)})
	l := limit.Limit{Count: 5, Window: limit.Hour}
	if o := take(t, s, -1, charge(1, l, 1)); o[0].Decision.Remaining != 4 {
		t.Errorf("%+v", o[0])
	}
	for what, c := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"no certificate of its own":        {tlsConfig(t, server, false), "certificate"},
		"an authority that is not trusted": {&tls.Config{}, "unknown authority"},
		"no TLS":                           {nil, ""},
	} {
		log := make(chan string, 16)
		bad := New(Options{Addrs: []string{server.TLSAddr}, TLS: c.config, Log: slog.New(slog.NewTextHandler(writer(log), nil))})
		line := awaitLine(t, log, "")
		if !strings.Contains(line, c.want) || bad.Up() {
			t.Errorf("%s: up %v, log %s", what, bad.Up(), line)
		}
		bad.Close()
	}
}

// awaitLine waits for a log line that holds text.
func awaitLine(t testing.TB, log <-chan string, text string) string {
	t.Helper()
	patience := time.After(20 * time.Second)
	for {
		select {
		case line := <-log:
			if strings.Contains(line, text) {
				return line
			}
		case <-patience:
			t.Fatalf("no line tells %q", text)
		}
	}
}

// A password is changed on the server first: connections that stand go on, the next one is told as what is wrong, and the
// process recovers when it learns the new password, without a restart.
func TestARotatedPasswordIsToldAndRecoveredFrom(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	server.User("weir", "old", leastRules...)
	var password atomic.Value
	password.Store("old")
	log, up := make(chan string, 64), make(chan bool, 64)
	s := New(Options{
		Addrs: []string{server.Addr}, OnUp: func(b bool) { up <- b }, Log: slog.New(slog.NewTextHandler(writer(log), nil)),
		Credentials: func() (string, string, error) { return "weir", password.Load().(string), nil },
	})
	defer s.Close()
	await(t, up, true)
	l := limit.Limit{Count: 100, Window: limit.Hour}
	take(t, s, -1, charge(1, l, 1))
	for _, words := range [][]string{{"ACL", "SETUSER", "weir", "resetpass", ">new"}, {"CLIENT", "KILL", "USER", "weir"}} {
		if err := server.Do(words...).Error(); err != nil {
			t.Fatal(err)
		}
	}
	var failed *limiter.StoreError
	within(t, "a call meets the wrong password", func() bool {
		return errors.As(s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{charge(1, l, 1)}, Outcomes: make([]limiter.Outcome, 1)}), &failed)
	})
	await(t, up, false)
	line := awaitLine(t, log, "WRONGPASS")
	if strings.Contains(line, "old") || strings.Contains(line, "new") {
		t.Errorf("a password is logged: %s", line)
	}
	password.Store("new")
	await(t, up, true)
	take(t, s, -1, charge(1, l, 1))
	if err := s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{charge(1, l, 0)}, Outcomes: make([]limiter.Outcome, 1)}); err != nil {
		t.Error(err)
	}
}

func TestAServerOfTheWrongKindIsToldAsThat(t *testing.T) {
	t.Parallel()
	c := valkeytest.StartCluster(t, 1)
	alone := valkeytest.Start(t)
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{Addrs: c.Addrs()}, "want store.cluster: true"},
		{Options{Addrs: []string{alone.Addr}, Cluster: true}, "want store.cluster: false"},
	} {
		log := make(chan string, 16)
		test.options.Log = slog.New(slog.NewTextHandler(writer(log), nil))
		s := New(test.options)
		awaitLine(t, log, test.want)
		s.Close()
	}
}

func TestAServerThatMayEvictIsWarnedOf(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t, "--maxmemory-policy", "allkeys-lru")
	log := make(chan string, 16)
	s := New(Options{Addrs: []string{server.Addr}, Log: slog.New(slog.NewTextHandler(writer(log), nil))})
	defer s.Close()
	if line := awaitLine(t, log, "noeviction"); !strings.Contains(line, "allkeys-lru") || !strings.Contains(line, "WARN") {
		t.Error(line)
	}
}

// A server without functions is kept counters on by commands, where that is left to the server.
func TestAutoIsCommandsWithoutFunctions(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t, "--rename-command", "FUNCTION", "")
	strategies := make(chan Strategy, 4)
	s := start(t, Options{Addrs: []string{server.Addr}, OnStrategy: func(st Strategy) { strategies <- st }})
	if st := <-strategies; st != Commands || s.Supports(rule.TokenBucket) || !s.Supports(rule.SlidingWindow) {
		t.Errorf("strategy %v", st)
	}
	l := limit.Limit{Count: 2, Window: limit.Hour}
	for i, want := range []limiter.Status{limiter.Admitted, limiter.Admitted, limiter.Refused} {
		if o := take(t, s, -1, charge(1, l, 1)); o[0].Status != want {
			t.Errorf("call %d: %+v", i, o[0])
		}
	}
}

func TestStrategiesAreReadByName(t *testing.T) {
	for _, s := range []Strategy{Auto, Function, Commands} {
		if got, err := ParseStrategy(s.String()); got != s || err != nil {
			t.Errorf("%v: %v, %v", s, got, err)
		}
	}
	if _, err := ParseStrategy("scripts"); err == nil || !strings.Contains(err.Error(), "want auto, function, commands") {
		t.Error(err)
	}
}
