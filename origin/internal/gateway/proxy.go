package gateway

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/header"
)

// statusClientGone is what nginx's logs know a client by that did not wait; nobody reads it.
const statusClientGone = 499

// passage is a request on its way. It is made whole at once, since each part of it would cost an allocation.
type passage struct {
	verdict  limiter.Verdict
	in       *http.Request // as the server gave it: its trailers are filled in once its body has been read
	place    place         // among the requests in flight
	out      http.Header   // trailers that the API will see
	body     body
	answer   answer
	shown    shown
	believed bool // from an edge
	upgrade  bool // asks to become a tunnel
}

type passageKey struct{}

// pass hands an admitted request to the API.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request, p *passage) {
	ctx := context.WithValue(r.Context(), passageKey{}, p)
	if p.upgrade {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer g.tunnels.remove(p)
		p.answer.hijacked = func(client net.Conn) {
			p.place.leave()
			g.tunnels.add(p, func() {
				cancel()       // closes the API's side
				client.Close() // one that does not read holds the copying up
			})
		}
	}
	out := r.WithContext(ctx)
	p.answer.ResponseWriter, p.answer.expects = w, r.ProtoMajor == 1 && r.Header["Expect"] != nil
	if r.Body != nil && r.Body != http.NoBody {
		p.body.ReadCloser, p.body.of = r.Body, p
		if !p.upgrade && !callsGRPC(r) { // whose streams may be silent for as long as they like
			p.body.stall = g.o.StallTime
		}
		defer p.body.Close()
	}
	if !p.upgrade && r.Header["Upgrade"] != nil {
		out.Header = r.Header.Clone()
		out.Header.Del("Upgrade")
	}
	g.proxy.ServeHTTP(&p.answer, out)
	strip(w.Header()) // what came in trailers
}

// passageOf is the passage of a request that [Gateway.pass] made.
func passageOf(r *http.Request) *passage {
	p, _ := r.Context().Value(passageKey{}).(*passage)
	return p
}

// body is a client's body on its way to the API.
type body struct {
	io.ReadCloser
	of    *passage
	stall time.Duration // how long the client may send nothing of it; 0: for as long as it likes

	mu     sync.Mutex // so that no deadline is set once the server has the connection back
	until  time.Time  // the deadline of the read at hand, or of the one that failed; zero for none
	broken bool       // it could not be read: then the API is not to blame
	closed bool
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if !b.wait(b.stall) {
		return 0, http.ErrBodyReadAfterClose // the server's side of it is about to go, or gone
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.mu.Lock()
		b.broken = b.broken || !b.closed
		b.mu.Unlock()
		return n, err
	}
	b.wait(0)
	if err != nil {
		// Here, since whoever reads the body sends the trailers next.
		fillTrailers(b.of.out, b.of.in.Trailer)
	}
	return n, err
}

// wait bounds how long reading may wait, 0 for not at all; false if the body is closed.
func (b *body) wait(most time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.stall == 0 {
		return !b.closed
	}
	b.until = time.Time{}
	if most > 0 {
		b.until = time.Now().Add(most)
	}
	// A connection without deadlines is a test's.
	_ = http.NewResponseController(b.of.answer.ResponseWriter).SetReadDeadline(b.until)
	return true
}

// failed tells whether the body could not be read. A connection's deadline ends its requests before the read returns that
// it has ended, so that this must not wait for it.
func (b *body) failed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = b.broken || !b.until.IsZero() && time.Now().After(b.until)
	return b.broken
}

// Close ends what reads the body. An API that ends a stream of both directions first would be waited for otherwise until
// the client has ended its own, which waits for the API's last word. Only HTTP/2 has such streams; over HTTP/1.1 closing
// waits for what is read.
func (b *body) Close() error {
	b.failed() // said now, since it is not to be seen once the deadline is lifted
	b.wait(0)
	b.mu.Lock()
	was := b.closed
	b.closed = true
	b.mu.Unlock()
	if !was && b.of.in.ProtoMajor == 2 {
		return b.ReadCloser.Close()
	}
	return nil
}

// answer is a response that never holds X-Weir-*, nor in early hints, which a proxy passes on by itself, what stands
// between two hops only. A body of known length is passed on as it comes, with its head; the proxy does so only for one of
// unknown length. Nothing is flushed that is whole: a gRPC status without a body would fall apart into a head and an end,
// which is no status.
type answer struct {
	http.ResponseWriter
	left     int64          // of the body, if that is known
	expects  bool           // the client waits for 100 Continue, over HTTP/1.1
	hijacked func(net.Conn) // told the client's side of a tunnel; nil where there is to be none
}

// WriteHeader implements [http.ResponseWriter]. The server says 100 Continue by itself once the body is read, as it is when
// the API says it: passed on as well, it would be said twice. Nor does the server hold the two apart from another interim
// answer, which is only a hint and goes no further then.
func (a *answer) WriteHeader(status int) {
	if status == http.StatusContinue || a.expects && status < http.StatusOK && status != http.StatusSwitchingProtocols {
		clear(a.Header())
		return
	}
	h := a.Header()
	strip(h)
	if status < http.StatusOK {
		stripHops(h)
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (a *answer) Write(b []byte) (int, error) {
	n, err := a.ResponseWriter.Write(b)
	if a.left <= 0 || err != nil {
		return n, err
	}
	if a.left -= int64(n); a.left > 0 {
		err = http.NewResponseController(a.ResponseWriter).Flush()
	}
	return n, err
}

// Hijack implements [http.Hijacker].
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil && a.hijacked != nil {
		a.hijacked(conn)
	}
	return conn, buffered, err
}

// Unwrap lets the proxy flush.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// errNoAnswer is an answer without a status that HTTP has: net/http would panic at passing it on.
var errNoAnswer = errors.New("the answer's status is below 100")

// answered completes the API's answer.
func (g *Gateway) answered(resp *http.Response) error {
	if resp.StatusCode < 100 {
		return errNoAnswer
	}
	g.answers[class(resp.StatusCode)].Inc()
	if way := g.api.route(resp.Request); way.down.Load() && way.down.CompareAndSwap(true, false) {
		g.o.Log.Info("the API answers again", "upstream", g.o.Upstream.Redacted(), "protocol", way.protocol)
	}
	strip(resp.Header)
	strip(resp.Trailer) // announced ones
	p := passageOf(resp.Request)
	if p == nil {
		return nil
	}
	show(resp.Header, &p.verdict, &p.shown)
	p.answer.left = resp.ContentLength
	return nil
}

// class is a status as an index of Gateway.answers.
func class(status int) int {
	if status < 100 || status > 599 {
		return 0
	}
	return status / 100
}

// failed answers a request that the API did not.
func (g *Gateway) failed(w http.ResponseWriter, r *http.Request, err error) {
	p := passageOf(r)
	switch {
	case p != nil && p.body.failed():
		refuse(w, r, header.Problem{Code: header.BadRequest, Field: "body"}) // or the client went away in the middle of it
		return
	case r.Context().Err() != nil:
		w.WriteHeader(statusClientGone)
		return
	}
	code := header.UpstreamDown
	if timedOut(err) {
		// It lives, and may be slow in one place only: no state of the whole API, and no line in the log for each call.
		code = header.UpstreamSlow
		g.slow.Inc()
	} else {
		g.unreachable.Inc()
		g.down(r, err)
	}
	if p != nil {
		show(w.Header(), &p.verdict, &p.shown) // the call was charged
	}
	refuse(w, r, header.Problem{Code: code})
}

// timedOut tells whether the API took a request and did not begin its answer in time.
func timedOut(err error) bool {
	if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "dial" {
		return false
	}
	slow, ok := errors.AsType[net.Error](err)
	return ok && slow.Timeout()
}

// down notes that the API cannot be reached: by protocol, else gRPC calls at an API that has none would cry wolf each time.
func (g *Gateway) down(r *http.Request, err error) {
	way := g.api.route(r)
	if !way.down.CompareAndSwap(false, true) {
		return
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok {
		err = failed // without the URL, which holds the client's query
	}
	g.o.Log.Error("the API does not answer: clients get 502 until it does", "upstream", g.o.Upstream.Redacted(), "protocol", way.protocol, "reason", err.Error())
}
