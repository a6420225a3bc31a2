package demo

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/shared/keyfilter"
)

const (
	// inFlight bounds a client's open requests: a slow system slows the client, nothing piles up.
	inFlight = 32
	// patience bounds one request.
	patience = 5 * time.Second
	// maxProblem bounds what is read of a refusal.
	maxProblem = 4 << 10
)

// client sends requests at a fixed rate from an address of its own.
type client struct {
	name   string
	from   net.IP // source address; loopback has 127.0.0.0/8 on Linux
	target string // URL
	every  time.Duration
	key    func() string // the x-api-key of each request; nil for none
	tally  tally
	policy atomic.Pointer[string] // RateLimit-Policy of a refusal by the origin
}

// tally counts one client's requests by outcome.
type tally struct {
	sent, allowed, unauthorized, edge, origin, other atomic.Int64
}

// counts is a tally at one instant.
type counts struct {
	sent, allowed, unauthorized, edge, origin, other int64
}

func (t *tally) read() counts {
	return counts{t.sent.Load(), t.allowed.Load(), t.unauthorized.Load(), t.edge.Load(), t.origin.Load(), t.other.Load()}
}

func (c counts) plus(d counts) counts {
	return counts{c.sent + d.sent, c.allowed + d.allowed, c.unauthorized + d.unauthorized, c.edge + d.edge, c.origin + d.origin, c.other + d.other}
}

// run sends until ctx ends, then returns once the last answer is in.
func (c *client) run(ctx context.Context) {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{LocalAddr: &net.TCPAddr{IP: c.from}}).DialContext,
		MaxIdleConnsPerHost: inFlight,
		DisableCompression:  true,
	}
	defer transport.CloseIdleConnections()
	http := &http.Client{Transport: transport, Timeout: patience}
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	var open sync.WaitGroup
	defer open.Wait()
	slots := make(chan struct{}, inFlight)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case slots <- struct{}{}:
			open.Go(func() {
				defer func() { <-slots }()
				c.send(http)
			})
		default: // all in flight: this beat is left out
		}
	}
}

// send makes one request, counting its outcome. A request under way is not cut off when the demo ends: it would have
// been counted by the system, but not here.
func (c *client) send(http *http.Client) {
	c.tally.sent.Add(1)
	request, err := newRequest(c)
	if err != nil {
		c.tally.other.Add(1)
		return
	}
	response, err := http.Do(request)
	if err != nil {
		c.tally.other.Add(1)
		return
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxProblem)) // what is short of a problem counts as other
	c.count(response, body)
}

func newRequest(c *client) (*http.Request, error) {
	request, err := http.NewRequest(http.MethodGet, c.target, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set(clientHeader, c.name)
	if c.key != nil {
		request.Header.Set("x-api-key", c.key())
	}
	return request, nil
}

func (c *client) count(response *http.Response, body []byte) {
	switch response.StatusCode {
	case http.StatusOK:
		c.tally.allowed.Add(1)
	case http.StatusUnauthorized:
		c.tally.unauthorized.Add(1)
	case http.StatusTooManyRequests:
		var problem struct {
			Where string `json:"where"`
		}
		_ = json.Unmarshal(body, &problem) // no problem: neither tier
		switch problem.Where {
		case "edge":
			c.tally.edge.Add(1)
		case "origin":
			c.tally.origin.Add(1)
			policy := response.Header.Get("ratelimit-policy")
			c.policy.Store(&policy)
		default:
			c.tally.other.Add(1)
		}
	default:
		c.tally.other.Add(1)
	}
}

// forge makes a key that has the right shape and was never issued.
func forge(random io.Reader) func() string {
	var mu sync.Mutex
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		key, err := keyfilter.Format{}.New(random)
		if err != nil {
			return "" // crypto/rand does not fail; an empty key is refused as well
		}
		return key
	}
}
