package stand

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Server is a running Valkey without persistence.
type Server struct {
	*Process
	Address string // host:port
}

// StartValkey starts a server on a free port and waits until it answers.
func StartValkey(t testing.TB) *Server {
	t.Helper()
	return StartValkeyOn(t, Loopback(t))
}

// StartValkeyOn starts a server on a chosen address.
func StartValkeyOn(t testing.TB, address string) *Server {
	t.Helper()
	return startValkey(t, address, func(args []string) *Process {
		return Start(t, t.TempDir(), "valkey", Path(t, Valkey), args, nil)
	})
}

// StartValkeyContained starts a server from its image, on the host's network.
func StartValkeyContained(t testing.TB) *Server {
	t.Helper()
	return startValkey(t, Loopback(t), func(args []string) *Process {
		return StartContainer(t, t.TempDir(), Container{Name: "valkey", Image: ValkeyImage, Args: args})
	})
}

func startValkey(t testing.TB, address string, start func(args []string) *Process) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Address: address}
	s.Process = start([]string{
		"--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction",
	})
	s.Until(t, "answers PING", func() error {
		answer, err := s.try("PING")
		if err == nil && answer != "PONG" {
			err = fmt.Errorf("PING = %q", answer)
		}
		return err
	})
	return s
}

// Do sends one command and returns its answer, a simple, bulk or integer reply, as text.
func (s *Server) Do(t testing.TB, command ...string) string {
	t.Helper()
	answer, err := s.try(command...)
	if err != nil {
		t.Fatalf("valkey: %s: %v", strings.Join(command, " "), err)
	}
	return answer
}

func (s *Server) try(command ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Address, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(command))
	for _, part := range command {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(part), part)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	switch line[0] {
	case '+', ':':
		return line[1:], nil
	case '$':
		size, err := strconv.Atoi(line[1:])
		if err != nil || size < 0 {
			return "", err
		}
		bulk := make([]byte, size)
		_, err = io.ReadFull(r, bulk)
		return string(bulk), err
	}
	return "", fmt.Errorf("answer %q", line)
}

// Commands counts the commands that clients made, by name in lower case, as INFO commandstats has them. Those that
// only look (info, ping, client, hello, command, config, time) are left out.
func (s *Server) Commands(t testing.TB) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for line := range strings.Lines(s.Do(t, "INFO", "commandstats")) {
		name, rest, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":calls=")
		if !found {
			continue
		}
		switch base, _, _ := strings.Cut(name, "|"); base {
		case "info", "ping", "client", "hello", "command", "config", "time":
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		n, err := strconv.Atoi(calls)
		if err != nil {
			t.Fatalf("commandstats line %q", line)
		}
		counts[name] = n
	}
	return counts
}
