package valkey

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"
)

// scriptedServer speaks as a Valkey does, but that it answers some commands as a test says.
type scriptedServer struct {
	addr   string
	answer func(words string) (reply string) // to a command that begins with these; "": as a Valkey, with success
	lines  sync.WaitGroup
}

// script starts a server that answers by answer.
func script(t *testing.T, answer func(words string) string) *scriptedServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scriptedServer{addr: l.Addr().String(), answer: answer}
	s.lines.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.lines.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() { // after the store on it was closed
		l.Close()
		s.lines.Wait()
	})
	return s
}

func (s *scriptedServer) serve(c net.Conn) {
	defer c.Close()
	var commands scanner
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return
		}
		var replies strings.Builder
		_ = commands.scan(buffer[:n], func(_ byte, words []byte) error {
			reply := s.answer(string(words))
			if reply == "" {
				reply = asValkey(string(words))
			}
			replies.WriteString(reply)
			return nil
		})
		if _, err := c.Write([]byte(replies.String())); err != nil {
			return
		}
	}
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// asValkey is what a standalone Valkey that is well says, but to FCALL.
func asValkey(words string) string {
	switch command, _, _ := strings.Cut(words, " "); command {
	case "HELLO":
		return "%2\r\n+version\r\n+8.1.0\r\n+proto\r\n:3\r\n"
	case "INFO":
		return bulk("redis_mode:standalone\r\nmaxmemory_policy:noeviction")
	case "TIME":
		now := time.Now().UnixMicro()
		return fmt.Sprintf("*2\r\n$%d\r\n%d\r\n:%d\r\n", 10, now/1e6, now%1e6)
	case "PING":
		return "+PONG\r\n"
	case "ZADD", "ZCOUNT", "PEXPIRE", "ZREMRANGEBYSCORE", "ZREM":
		return ":1\r\n"
	case "SUBSCRIBE":
		return ">3\r\n$9\r\nsubscribe\r\n$9\r\nw1:forget\r\n:1\r\n"
	}
	return "+OK\r\n"
}

// serverError is an error of this text as a server sends it.
func serverError(t *testing.T, text string) error {
	t.Helper()
	s := script(t, func(words string) string {
		if strings.HasPrefix(words, "GET ") {
			return "-" + text + "\r\n"
		}
		return ""
	})
	c, err := valkey.NewClient((&Store{}).clientOption(s.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Do(t.Context(), c.B().Get().Key("k").Build()).Error()
}
