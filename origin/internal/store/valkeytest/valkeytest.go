// Package valkeytest runs real Valkey servers for a test.
package valkeytest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/store/moduletest"
)

// Server is a running Valkey. It ends with its test.
type Server struct {
	Addr string // host:port

	t       testing.TB
	binary  string
	dir     string
	args    []string
	env     []string // beside the test's own
	cmd     *exec.Cmd
	out     *bytes.Buffer
	console console
}

// Start starts a Valkey on a free loopback port, without persistence; args are more of its options. Without the binary
// the test is skipped, or fails where CI is set: WEIR_VALKEY names one, `make tools` fetches one.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, args...)
	s.Run()
	return s
}

// newServer is one that is yet to run.
func newServer(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{Addr: freeAddr(t), t: t, binary: find(t), dir: t.TempDir(), args: args}
	t.Cleanup(s.Kill)
	return s
}

func find(t testing.TB) string {
	t.Helper()
	path := os.Getenv("WEIR_VALKEY")
	if path == "" {
		path = filepath.Join(moduletest.Root(t), ".tools", "bin", "valkey-server")
	}
	if _, err := os.Stat(path); err != nil {
		message := fmt.Sprintf("MISSING PART: no Valkey at %q: run `make tools`, or name one in WEIR_VALKEY", path)
		if os.Getenv("CI") != "" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	return path
}

// host is the loopback address of this process's servers. Of 127.0.0.1 another process, or an outgoing connection, may take
// a port between its choice and its use.
var host = func() string {
	n := rand.Uint32()
	return net.IPv4(127, 64|byte(n>>16)&63, byte(n>>8), 1|byte(n)).String()
}()

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Run starts the server, again after [Server.Kill], waiting until it takes connections.
func (s *Server) Run() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	args := append([]string{"--bind", host, "--port", port, "--dir", s.dir, "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"}, s.args...)
	s.cmd = exec.Command(s.binary, args...)
	s.out = &bytes.Buffer{}
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	s.cmd.Env = append(os.Environ(), s.env...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start %s: %v", s.binary, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr); err == nil {
			conn.Close()
			return
		}
		select {
		case <-ctx.Done():
			s.Kill()
			s.t.Fatalf("Valkey at %s does not answer:\n%s", s.Addr, s.out)
		case <-time.After(10 * time.Millisecond): // another process: there is no event to wait for
		}
	}
}

// Kill ends the server at once; what it held is gone.
func (s *Server) Kill() {
	s.console.close()
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Signal(syscall.SIGCONT)
	s.cmd.Process.Kill()
	s.cmd.Wait()
	s.cmd = nil
}

// Stop keeps the server from running, connections open, until [Server.Continue].
func (s *Server) Stop() { s.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue lets a stopped server run on.
func (s *Server) Continue() { s.cmd.Process.Signal(syscall.SIGCONT) }
