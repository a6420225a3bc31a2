package valkeytest

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy on loopback, in front of a server, whose line can be made long or broken. It ends with its test.
type Proxy struct {
	Addr string // host:port to connect to

	target   string
	listener net.Listener
	done     sync.WaitGroup

	mu       sync.Mutex
	toServer time.Duration
	toClient time.Duration
	dropping bool
	deaf     bool // replies are dropped
	closed   bool
	lines    map[net.Conn]bool // both ends of all connections: true, the client's
	word     []byte            // counted on its way to the server
	counted  int
}

// StartProxy starts a proxy in front of target, a host:port, that hands everything on at once.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, lines: map[net.Conn]bool{}}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		l.Close()
		p.Cut()
		p.done.Wait()
	})
	return p
}

// Delay holds what goes to the server, and what comes back, for so long from now on, whatever else is on its way: a
// long line, not a narrow one. On Linux it is late by less than 0.1 ms on a machine that is not busy.
func (p *Proxy) Delay(toServer, toClient time.Duration) {
	p.mu.Lock()
	p.toServer, p.toClient = toServer, toClient
	p.mu.Unlock()
}

// Drop loses whatever either side sends while on, leaving connections open.
func (p *Proxy) Drop(on bool) {
	p.mu.Lock()
	p.dropping = on
	p.mu.Unlock()
}

// LoseReplies loses what the server answers while on: commands still reach it. What was lost is missing from the stream,
// so [Proxy.Cut] is to follow, as a line that breaks before the answer is through.
func (p *Proxy) LoseReplies(on bool) {
	p.mu.Lock()
	p.deaf = on
	p.mu.Unlock()
}

// Count counts from now on how often word comes by on its way to the server, dropped or not, which [Proxy.Counted] tells.
func (p *Proxy) Count(word string) {
	p.mu.Lock()
	p.word, p.counted = []byte(word), 0
	p.mu.Unlock()
}

// Counted is how often the word of [Proxy.Count] came by.
func (p *Proxy) Counted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counted
}

// Say sends all clients words that the server did not.
func (p *Proxy) Say(words string) {
	p.mu.Lock()
	var clients []net.Conn
	for c, client := range p.lines {
		if client {
			clients = append(clients, c)
		}
	}
	p.mu.Unlock()
	for _, c := range clients {
		_, _ = c.Write([]byte(words)) // a client that leaves hears nothing
	}
}

// Cut closes all connections; new ones can be made.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.lines {
		c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(client, server) {
			client.Close()
			if err == nil {
				server.Close()
			}
			continue
		}
		p.carry(client, server, true)
		p.carry(server, client, false)
	}
}

// keep remembers a connection's ends, the client's first, false if the proxy is closed.
func (p *Proxy) keep(ends ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range ends {
		if !p.closed {
			p.lines[c] = i == 0
		}
	}
	return !p.closed
}

// piece is what was read at once, with when it is due.
type piece struct {
	bytes []byte
	due   time.Time
}

// carry hands on what comes from one end until either closes, then closes both. Reading and writing are apart, so that
// a piece does not wait for the one before it to be due.
func (p *Proxy) carry(from, to net.Conn, toServer bool) {
	delay := &p.toClient
	if toServer {
		delay = &p.toServer
	}
	var end []byte // of what was read before: a word may lie over two reads
	line := make(chan piece, 1024)
	p.done.Go(func() {
		defer close(line)
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			p.mu.Lock()
			wait, lose := *delay, p.dropping || p.deaf && !toServer
			if toServer && len(p.word) > 0 {
				end = append(end, buffer[:n]...)
				p.counted += bytes.Count(end, p.word)
				end = append(end[:0], end[max(0, len(end)-len(p.word)+1):]...)
			}
			p.mu.Unlock()
			if n > 0 && !lose {
				line <- piece{append([]byte(nil), buffer[:n]...), time.Now().Add(wait)}
			}
			if err != nil {
				return
			}
		}
	})
	p.done.Go(func() {
		for next := range line {
			SleepUntil(next.due)
			if _, err := to.Write(next.bytes); err != nil {
				break
			}
		}
		from.Close()
		to.Close()
		for range line { // lets the reader end
		}
		p.mu.Lock()
		delete(p.lines, from)
		delete(p.lines, to)
		p.mu.Unlock()
	})
}
