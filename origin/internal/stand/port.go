package stand

import (
	"fmt"
	"net"
	"strconv"
)

// loopback is the only address that a stand listens on.
const loopback = "127.0.0.1"

// ports hands out loopback ports: the preferred one, or a free one when it is taken.
type ports struct {
	given map[int]bool
	moved func(name string, from, to int)
}

// take finds a port for name. The port is free now; whoever is to listen on it may still lose it to another process,
// and then says so itself.
func (p *ports) take(name string, preferred int) (string, error) {
	if !p.given[preferred] {
		if port, err := probe(preferred); err == nil {
			return p.give(port), nil
		}
	}
	for range 16 { // a free port may be one that was handed out already
		port, err := probe(0)
		if err != nil {
			return "", fmt.Errorf("find a free port for %s: %w", name, err)
		}
		if p.given[port] {
			continue
		}
		p.moved(name, preferred, port)
		return p.give(port), nil
	}
	return "", fmt.Errorf("find a free port for %s: none left", name)
}

func (p *ports) give(port int) string {
	p.given[port] = true
	return net.JoinHostPort(loopback, strconv.Itoa(port))
}

// probe listens on a port for a moment, 0 for any, to learn that it can be had.
func probe(port int) (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
