package valkey

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
)

// lines are what was logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	return len(b), nil
}

// What breaks off each connection is told once, not with the port of each try.
func TestAnOutageIsToldOnceHoweverOftenItIsMet(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const tries = 6
	tried := make(chan struct{}, 64)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1024))
			_ = c.(*net.TCPConn).SetLinger(0) // a reset, which the error names with both ends
			c.Close()
			tried <- struct{}{}
		}
	})
	var log lines
	s := New(Options{Addrs: []string{l.Addr().String()}, OnForget: func(limiter.Counter) {}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range tries {
		<-tried
	}
	s.Close()
	l.Close()
	accepting.Wait()
	for i, line := range log.all {
		for _, other := range log.all[:i] {
			if _, now, _ := strings.Cut(line, " "); strings.HasSuffix(other, now) {
				t.Errorf("told twice: %s", line)
			}
		}
	}
	if n := len(log.all); n == 0 || n > 3 { // reset on reading, on writing, or closed
		t.Errorf("%d lines of %d tries:\n%s", n, tries, strings.Join(log.all, ""))
	}
}

func TestTroublesAreBoundedAndEnd(t *testing.T) {
	t.Parallel()
	var told troubles
	news := 0
	for i := range 3 * maxTroubles {
		if _, is := told.add(fmt.Errorf("trouble %d", i)); is {
			news++
		}
	}
	if news != maxTroubles {
		t.Errorf("%d were told, want %d", news, maxTroubles)
	}
	if !told.over() || told.over() {
		t.Error("an outage does not end once")
	}
	for _, from := range []string{"127.0.0.1:1", "127.0.0.1:2", "[::1]:3"} {
		text, is := told.add(errors.New("read tcp " + from + "->127.0.0.1:6379: reset"))
		if text != "read tcp 127.0.0.1:6379: reset" || is != (from == "127.0.0.1:1") {
			t.Errorf("%q, news: %v", text, is)
		}
	}
}
