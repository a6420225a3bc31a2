package gateway

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// tunnels are the upgraded connections, which a server that shuts down neither waits for nor closes.
type tunnels struct {
	room  room
	gauge prometheus.Gauge

	mu    sync.Mutex
	open  map[*passage]func() // each cuts its tunnel off
	over  bool                // one that opens now is cut off at once
	empty chan struct{}       // closed by the last to leave; nil while nobody waits for it
}

func newTunnels(size int, gauge prometheus.Gauge) tunnels {
	return tunnels{room: make(room, size), gauge: gauge, open: map[*passage]func(){}}
}

// add notes that p is a tunnel now, which cut closes.
func (t *tunnels) add(p *passage, cut func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		cut()
	}
	t.open[p] = cut
	t.gauge.Set(float64(len(t.open)))
}

// remove notes that p has ended, if it was a tunnel at all.
func (t *tunnels) remove(p *passage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, p)
	t.gauge.Set(float64(len(t.open)))
	if len(t.open) == 0 && t.empty != nil {
		close(t.empty)
		t.empty = nil
	}
}

// drain waits for all to end, until ctx ends; then it cuts off the rest.
func (t *tunnels) drain(ctx context.Context) (cut int) {
	t.mu.Lock()
	if len(t.open) == 0 {
		t.mu.Unlock()
		return 0
	}
	if t.empty == nil {
		t.empty = make(chan struct{})
	}
	empty := t.empty
	t.mu.Unlock()
	select {
	case <-empty:
		return 0
	case <-ctx.Done():
	}
	t.mu.Lock()
	t.over, cut = true, len(t.open)
	for _, cutOff := range t.open {
		cutOff()
	}
	t.mu.Unlock()
	<-empty // both ends are closed: the copying ends at once
	return cut
}

// asksUpgrade tells whether a client asks to go on in a protocol that the gateway lets pass.
func asksUpgrade(r *http.Request) bool {
	lines := r.Header["Upgrade"]
	return len(lines) > 0 && r.ProtoMajor == 1 && names(r.Header["Connection"], "upgrade") && !upgradesHTTP(lines)
}

// upgradesHTTP tells whether a client asks to go on in a protocol that holds further HTTP requests.
func upgradesHTTP(lines []string) bool {
	for _, line := range lines {
		for protocol := range strings.SplitSeq(line, ",") {
			protocol = strings.ToLower(strings.TrimSpace(protocol))
			if strings.HasPrefix(protocol, "h2") || strings.HasPrefix(protocol, "http/") || strings.HasPrefix(protocol, "tls/") {
				return true
			}
		}
	}
	return false
}

// names tells whether a list of tokens has one, in any case.
func names(lines []string, token string) bool {
	for _, line := range lines {
		for each := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(each), token) {
				return true
			}
		}
	}
	return false
}
