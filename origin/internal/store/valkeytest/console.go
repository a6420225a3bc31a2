package valkeytest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/shared/limit"
)

// patience bounds what a test waits for before it fails: generous, since the machine may be busy.
const patience = 30 * time.Second

// console is a test's own connection to a server, made at its first command and again after a failed one.
type console struct {
	mu     sync.Mutex
	client valkey.Client
}

// do sends a command to the server at addr.
func (c *console) do(addr string, words ...string) valkey.ValkeyResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if c.client == nil {
		client, err := valkey.NewClient(valkey.ClientOption{
			InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, AlwaysPipelining: true,
			DisableRetry: true, ClientSetInfo: valkey.DisableClientSetInfo, AlwaysRESP2: true, PipelineMultiplex: -1,
		})
		if err != nil {
			return valkey.NewErrorResult(fmt.Errorf("connect to %s: %w", addr, err))
		}
		c.client = client
	}
	result := c.client.Do(ctx, c.client.B().Arbitrary(words[0]).Args(words[1:]...).Build())
	if result.NonValkeyError() != nil {
		c.client.Close()
		c.client = nil
	}
	return result
}

func (c *console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		c.client.Close()
		c.client = nil
	}
}

// Do sends the server a command as its default user, on a connection of the test's own. Its answer may be an error; a
// server that does not answer gives one as well.
func (s *Server) Do(words ...string) valkey.ValkeyResult { return s.console.do(s.Addr, words...) }

// must sends a command whose failure ends the test.
func (s *Server) must(t testing.TB, words ...string) valkey.ValkeyMessage {
	t.Helper()
	m, err := s.Do(words...).ToMessage()
	if err != nil && !valkey.IsValkeyNil(err) {
		t.Fatalf("Valkey at %s: %s: %v", s.Addr, strings.Join(words, " "), err)
	}
	return m
}

// text is the answer to a command, which is one text.
func (s *Server) text(words ...string) string {
	s.t.Helper()
	m := s.must(s.t, words...)
	text, err := m.ToString()
	if err != nil {
		s.t.Fatalf("Valkey at %s: %s: %v", s.Addr, strings.Join(words, " "), err)
	}
	return text
}

// Flush empties the server.
func (s *Server) Flush() {
	s.t.Helper()
	s.must(s.t, "FLUSHALL")
}

// Calls is how often the server has run each command since it started, by the names of INFO commandstats: lower case,
// subcommands as in "function|load". Commands that it refused to run, as with MOVED, are not among them.
func (s *Server) Calls() map[string]int64 {
	s.t.Helper()
	calls := map[string]int64{}
	for name, value := range s.Info("commandstats") {
		command, ok := strings.CutPrefix(name, "cmdstat_")
		count, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		n, err := strconv.ParseInt(count, 10, 64)
		if !ok || err != nil {
			s.t.Fatalf("INFO commandstats has %s:%s", name, value)
		}
		calls[command] = n
	}
	return calls
}

// Since is what the server ran after an earlier [Server.Calls], without the commands of which there were none and
// without INFO, which asks for it.
func (s *Server) Since(before map[string]int64) map[string]int64 {
	s.t.Helper()
	calls := s.Calls()
	for command, n := range before {
		calls[command] -= n
	}
	for command, n := range calls {
		if n == 0 || command == "info" {
			delete(calls, command)
		}
	}
	return calls
}

// CPU is what the server has used of the processor since it started, user and system.
func (s *Server) CPU() time.Duration {
	s.t.Helper()
	info := s.Info("cpu")
	seconds := 0.0
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		n, err := strconv.ParseFloat(info[name], 64)
		if err != nil {
			s.t.Fatalf("INFO cpu: %s: %v", name, err)
		}
		seconds += n
	}
	return time.Duration(seconds * float64(time.Second))
}

// Time is the server's clock.
func (s *Server) Time() limit.Micros {
	s.t.Helper()
	parts := s.must(s.t, "TIME")
	n, err := parts.AsIntSlice()
	if err != nil || len(n) != 2 {
		s.t.Fatalf("TIME: %v, %v", n, err)
	}
	return limit.Micros(n[0])*limit.Second + limit.Micros(n[1])
}

// Keys are all names that the server holds.
func (s *Server) Keys() []string {
	s.t.Helper()
	keys := s.must(s.t, "KEYS", "*")
	names, err := keys.AsStrSlice()
	if err != nil {
		s.t.Fatalf("KEYS: %v", err)
	}
	return names
}

// User makes an ACL user, as in User("weir", "secret", "~w1:*", "+fcall"), that is there again when the server is
// [Server.Run] again.
func (s *Server) User(name, password string, rules ...string) {
	s.t.Helper()
	user := append([]string{name, "reset", "on", ">" + password}, rules...)
	s.must(s.t, append([]string{"ACL", "SETUSER"}, user...)...)
	s.args = append(append(s.args, "--user", name, "on", ">"+password), rules...)
}

// Info is a section of INFO by the names of its fields.
func (s *Server) Info(section string) map[string]string {
	s.t.Helper()
	return fields(s.text("INFO", section))
}

// fields are the lines NAME:VALUE of a text.
func fields(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.HasPrefix(name, "#") {
			all[name] = value
		}
	}
	return all
}
