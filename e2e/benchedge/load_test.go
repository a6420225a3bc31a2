package benchedge

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// load is requests that are all alike but for the client: each connection has its own address and key.
type load struct {
	address string // host:port
	path    string
	keys    []string // of the connections; one sends no key where it is empty
	status  int
	// origin tells that the upstream answers. Where it does not, strays answers of its may come all the same: a hint ends
	// after 30 s, and each client then asks the origin once.
	origin bool
	strays int
	// until ends the load early once it is closed; nil: never.
	until <-chan struct{}

	conns []*conn // kept from one run to the next
}

// runTimeout bounds a run.
const runTimeout = 2 * time.Minute

// run sends n requests over each connection, after prepare of them that count for nothing: started is called between
// the two, when all connections wait, and done when all have their last answer. longest is the longest any one took of
// those that count.
func (l *load) run(prepare, n int, started, done func() error) (longest time.Duration, err error) {
	if err := l.open(); err != nil {
		return 0, err
	}
	if err := l.each(prepare, func(*conn, int, bool) error { return nil }); err != nil {
		return 0, err
	}
	if err := started(); err != nil {
		return 0, err
	}
	err = l.each(n, func(c *conn, status int, origin bool) error {
		switch {
		case status != l.status:
			return fmt.Errorf("%s %s: status %d, want %d", l.address, l.path, status, l.status)
		case origin && !l.origin:
			c.strays++
		case !origin && l.origin:
			return fmt.Errorf("%s %s: not answered by the upstream", l.address, l.path)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if err := done(); err != nil {
		return 0, err
	}
	strays := 0
	for _, c := range l.conns {
		longest, strays = max(longest, c.longest), strays+c.strays
	}
	if strays > l.strays {
		return 0, fmt.Errorf("%s %s: %d answers by the upstream, want at most %d", l.address, l.path, strays, l.strays)
	}
	return longest, nil
}

// open makes the connections, each once, from addresses of their own: 127.0.1.i.
func (l *load) open() error {
	for i := len(l.conns); i < len(l.keys); i++ {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}, Timeout: runTimeout}
		c, err := dialer.Dial("tcp", l.address)
		if err != nil {
			return err
		}
		request := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: bench/1\r\nAccept: */*\r\n", l.path)
		if l.keys[i] != "" {
			request = fmt.Appendf(request, "X-Api-Key: %s\r\n", l.keys[i])
		}
		l.conns = append(l.conns, &conn{Conn: c, in: bufio.NewReader(c), request: append(request, "\r\n"...)})
	}
	return nil
}

// close ends the connections; the next run makes new ones.
func (l *load) close() {
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// each sends n requests over each connection, all of them at once, and gives each answer to check.
func (l *load) each(n int, check func(c *conn, status int, origin bool) error) error {
	errs := make([]error, len(l.conns))
	var all sync.WaitGroup
	for i, c := range l.conns {
		all.Go(func() {
			c.longest, c.strays = 0, 0
			errs[i] = c.SetDeadline(time.Now().Add(runTimeout))
			for range n {
				if errs[i] != nil || l.over() {
					break
				}
				begin := time.Now()
				status, origin, err := c.send()
				c.longest = max(c.longest, time.Since(begin))
				if err == nil {
					err = check(c, status, origin)
				}
				errs[i] = err
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (l *load) over() bool {
	select {
	case <-l.until:
		return true
	default:
		return false
	}
}

// conn is one keep-alive connection that sends one request again and again.
type conn struct {
	net.Conn
	in      *bufio.Reader
	request []byte
	// Of the requests of one run: the longest that one took, and how many the upstream answered that it should not have.
	longest time.Duration
	strays  int
}

func (c *conn) send() (status int, origin bool, err error) {
	if _, err := c.Write(c.request); err != nil {
		return 0, false, err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, false, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header.Get(originMark) != "", err
}
