package numbers

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

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

var full = flag.Bool("full", false, "make every call, in some minutes, instead of a share of them")

// share is part in unit tests, 1 for all of it.
func share(part int) int {
	if *full {
		return 1
	}
	return part
}

// table is what was measured, a line a row.
var table struct {
	sync.Mutex
	rows []string
}

// report adds a row to the table that is printed at the end.
func report(t *testing.T, row, expected, measured string) {
	t.Helper()
	table.Lock()
	defer table.Unlock()
	table.rows = append(table.rows, fmt.Sprintf("number: %-74s %-28s %s", row, expected, measured))
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if len(table.rows) > 0 {
		fmt.Printf("number: %-74s %-28s %s\n", "what", "expected", "measured")
		for _, row := range table.rows {
			fmt.Println(row)
		}
	}
	os.Exit(code)
}

// clock is one that a test sets.
type clock struct{ now atomic.Int64 }

func (c *clock) set(now limit.Micros) { c.now.Store(int64(now)) }
func (c *clock) read() limit.Micros   { return limit.Micros(c.now.Load()) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// plainCommands is a process's store of the strategy commands, by its own clock.
func plainCommands(t *testing.T, server *valkeytest.Server, c *clock) *valkey.Store {
	t.Helper()
	up := make(chan bool, 8)
	s := valkey.New(valkey.Options{Addrs: []string{server.Addr}, Strategy: valkey.Commands, Clock: c.read, Log: quiet, OnUp: func(b bool) { up <- b }})
	t.Cleanup(s.Close)
	for !<-up {
	}
	return s
}

// process is an origin over a store.
func process(t *testing.T, s limiter.Store, c *clock, text string) *limiter.Limiter {
	t.Helper()
	release, err := rules.Parse("numbers.rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l := limiter.New(limiter.Options{
		Store: s, Fallback: memory.New(1000, nil), Secret: make([]byte, 32), Now: c.read, Metrics: telemetry.New(), Log: quiet,
	}, release)
	t.Cleanup(l.Close)
	return l
}

func get(k *keys.Key) limiter.Request {
	return limiter.Request{Caller: identity.Caller{Key: k}, Method: "GET", Path: "/", Host: "api"}
}

// check is one call, told whether it passes. One that was answered without the store proves nothing.
func check(t *testing.T, l *limiter.Limiter, r limiter.Request) bool {
	t.Helper()
	v, err := l.Check(t.Context(), r)
	if err != nil || v.Degraded {
		t.Fatalf("check: %v, degraded %v", err, v.Degraded)
	}
	return v.Allowed
}

// ran is the number of commands of checks that the server ran since an earlier look. Any other would be one too many.
func ran(t *testing.T, server *valkeytest.Server, before map[string]int64) (sum int64) {
	t.Helper()
	for command, n := range server.Since(before) {
		switch command {
		case "incrby", "pexpire", "getrange", "decrby":
			sum += n
		case "time", "ping", "hello", "client|setinfo", "subscribe":
			// of a store's watch, and of a connection that it opens
		default:
			t.Errorf("the server ran %d × %s", n, command)
		}
	}
	return sum
}

func thousands(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
