package benchedge

import (
	"bufio"
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
}

// callTimeout bounds a whole round on a connection.
const callTimeout = 2 * time.Minute

// run sends n requests over each connection, after prepare of them that count for nothing: started is called between
// the two, when all connections wait, and done when all have their last answer. longest is the longest any one took of
// those that count.
func (l load) run(prepare, n int, started, done func() error) (longest time.Duration, err error) {
	var warm, all sync.WaitGroup
	gate := make(chan struct{})
	strays := make([]int, len(l.keys))
	longests := make([]time.Duration, len(l.keys))
	errs := make([]error, len(l.keys))
	for i := range l.keys {
		warm.Add(1)
		all.Go(func() {
			c, err := l.dial(i)
			if err == nil {
				defer c.Close()
				for range prepare {
					if _, _, err = c.send(); err != nil {
						break
					}
				}
			}
			warm.Done()
			<-gate
			for range n {
				if err != nil || l.over() {
					break
				}
				begin := time.Now()
				var status int
				var origin bool
				status, origin, err = c.send()
				longests[i] = max(longests[i], time.Since(begin))
				switch {
				case err != nil:
				case status != l.status:
					err = fmt.Errorf("%s %s: status %d, want %d", l.address, l.path, status, l.status)
				case origin && !l.origin:
					strays[i]++
				case !origin && l.origin:
					err = fmt.Errorf("%s %s: not answered by the upstream", l.address, l.path)
				}
			}
			errs[i] = err
		})
	}
	warm.Wait()
	err = started()
	close(gate)
	all.Wait()
	if err == nil {
		err = done()
	}
	stray := 0
	for i := range l.keys {
		longest, stray = max(longest, longests[i]), stray+strays[i]
		if err == nil {
			err = errs[i]
		}
	}
	if err == nil && stray > l.strays {
		err = fmt.Errorf("%s %s: %d answers by the upstream, want at most %d", l.address, l.path, stray, l.strays)
	}
	return longest, err
}

func (l load) over() bool {
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
}

// dial connects from an address of its own, 127.0.1.i.
func (l load) dial(i int) (*conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}, Timeout: callTimeout}
	c, err := dialer.Dial("tcp", l.address)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, err
	}
	request := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: bench/1\r\nAccept: */*\r\n", l.path)
	if l.keys[i] != "" {
		request = fmt.Appendf(request, "X-Api-Key: %s\r\n", l.keys[i])
	}
	return &conn{Conn: c, in: bufio.NewReader(c), request: append(request, "\r\n"...)}, nil
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
