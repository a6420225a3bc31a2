package campaign

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

const begin = 1000 * limit.Hour

// server is the store that all processes share, with a clock of its own. It notes what it does, so that a failover can
// forget the last of it.
type server struct {
	mu    sync.Mutex
	store *memory.Store
	front *fault.Store                     // of store, with the foreign values
	until map[limiter.Counter]limit.Micros // when they expire
	now   func() limit.Micros
	done  []serverOp
	marks []int // how much was done after each step
}

type serverOp struct {
	op    fault.Op // 0: a foreign value is put under the name of the one charge
	call  limiter.Call
	until limit.Micros // it lasts
}

func newServer(now func() limit.Micros) *server {
	s := &server{now: now}
	s.empty()
	return s
}

func (s *server) empty() {
	s.store, s.until = memory.New(10_000, nil), map[limiter.Counter]limit.Micros{}
	s.front = fault.New(s.store)
}

func (s *server) Take(ctx context.Context, c *limiter.Call) error { return s.do(ctx, fault.Take, c) }
func (s *server) Refund(ctx context.Context, c *limiter.Call) error {
	return s.do(ctx, fault.Refund, c)
}
func (s *server) Reset(ctx context.Context, c *limiter.Call) error { return s.do(ctx, fault.Reset, c) }

func (s *server) do(ctx context.Context, op fault.Op, c *limiter.Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := *c
	call.Now = s.now()
	s.spoilt(call.Now)
	s.done = append(s.done, serverOp{op: op, call: own(call)})
	return s.apply(ctx, op, &call)
}

// spoil puts a foreign value under a counter's name, for a while.
func (s *server) spoil(c limiter.Charge, during limit.Micros) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := serverOp{call: limiter.Call{Charges: []limiter.Charge{c}}, until: s.now().After(during)}
	s.done = append(s.done, o)
	s.put(o)
}

func (s *server) put(o serverOp) {
	c := o.call.Charges[0].Counter
	s.front.Spoil(c)
	s.until[c] = o.until
}

// spoilt forgets foreign values once they are over.
func (s *server) spoilt(now limit.Micros) {
	for c, until := range s.until {
		if now < until {
			continue
		}
		call := limiter.Call{Charges: []limiter.Charge{{Counter: c}}, Outcomes: make([]limiter.Outcome, 1)}
		s.done = append(s.done, serverOp{op: fault.Reset, call: own(call)})
		_ = s.apply(context.Background(), fault.Reset, &call)
	}
}

// own is a call with slices of its own.
func own(c limiter.Call) limiter.Call {
	c.Charges, c.Outcomes = slices.Clone(c.Charges), slices.Clone(c.Outcomes)
	return c
}

func (s *server) apply(ctx context.Context, op fault.Op, c *limiter.Call) error {
	defer s.front.Asked()
	switch op {
	case fault.Take:
		return s.front.Take(ctx, c)
	case fault.Refund:
		return s.front.Refund(ctx, c)
	}
	for _, charge := range c.Charges {
		delete(s.until, charge.Counter)
	}
	return s.front.Reset(ctx, c)
}

// undo forgets all but the first n things that were done.
func (s *server) undo(n int) {
	s.done = s.done[:n]
	s.empty()
	for _, o := range s.done {
		if o.op == 0 {
			s.put(o)
			continue
		}
		call := own(o.call)
		_ = s.apply(context.Background(), o.op, &call)
	}
}

// expire forgets counters that are over, as a server does by its own time.
func (s *server) expire() {
	s.mu.Lock()
	s.spoilt(s.now())
	seen := map[limiter.Counter]limiter.Charge{}
	for _, o := range s.done {
		for _, c := range o.call.Charges {
			if o.op == fault.Take {
				seen[c.Counter] = c
			}
		}
	}
	s.mu.Unlock()
	for _, c := range seen {
		c.Cost, c.Shadow, c.Existing = 0, true, true
		call := limiter.Call{Charges: []limiter.Charge{c}, Outcomes: make([]limiter.Outcome, 1)}
		s.do(context.Background(), fault.Take, &call)
		if call.Outcomes[0].Status == limiter.Unmade {
			s.do(context.Background(), fault.Reset, &call)
		}
	}
}

// link is a process's way to the server: where calls are held.
type link struct {
	*fault.Store
	mu    sync.Mutex
	asked int // takes with an enforced charge
	hold  *hold
}

// hold keeps one call on its way.
type hold struct {
	reply   bool // it was done, and its answer is under way
	arrived chan struct{}
	release chan struct{}
}

func (l *link) Take(ctx context.Context, c *limiter.Call) error {
	enforced := slices.ContainsFunc(c.Charges, func(c limiter.Charge) bool { return !c.Shadow })
	if !enforced {
		return l.Store.Behind().Take(ctx, c) // beside calls: no call's fault is its own
	}
	l.mu.Lock()
	l.asked++
	h := l.hold
	l.hold = nil
	l.mu.Unlock()
	if h == nil {
		return l.Store.Take(ctx, c)
	}
	if h.reply {
		err := l.Store.Behind().Take(ctx, c)
		close(h.arrived)
		<-h.release
		if ctx.Err() != nil {
			return &limiter.StoreError{Reason: "deadline", Err: ctx.Err()}
		}
		return err
	}
	close(h.arrived)
	<-h.release
	if ctx.Err() != nil {
		return &limiter.StoreError{Reason: "deadline", Err: ctx.Err()}
	}
	return l.Store.Behind().Take(ctx, c)
}

func (l *link) takes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.asked
	l.asked = 0
	return n
}

// world is what a history is played in.
type world struct {
	h         history
	now       limit.Micros // true time since begin, plus begin
	storeOff  limit.Micros
	server    *server
	processes []*process
	releases  []*rules.Release
	made      int // processes so far
	newsLost  bool
}

func newWorld(h history) (*world, error) {
	w := &world{h: h, now: begin}
	w.server = newServer(w.storeNow)
	for _, specs := range h.releases {
		r, err := rules.Parse("rules.yaml", []byte(yaml(specs)))
		if err != nil {
			return nil, fmt.Errorf("%s%w", yaml(specs), err)
		}
		w.releases = append(w.releases, r)
	}
	for place := range h.processes {
		w.processes = append(w.processes, w.process(place, 0))
	}
	w.tellLive()
	return w, nil
}

func (w *world) storeNow() limit.Micros { return w.now + w.storeOff }

func (w *world) close() {
	for _, p := range w.live() {
		p.Close()
	}
}

// request is a step's call.
func (s step) request() limiter.Request {
	return limiter.Request{Caller: callers[s.who].caller(), Method: "GET", Path: s.path, Cost: s.cost, ID: s.id, Refundable: true}
}

// charge is what a process would charge a call by a rule, in all but the cost.
func (p *process) charge(s step, name string) (c limiter.Charge, ok bool) {
	held, err := p.Holding(context.Background(), callers[s.who].caller(), rule.Request{Method: "GET", Path: s.path})
	p.link.takes()
	requests := p.link.Asked()
	for _, h := range held {
		if err != nil || h.Rule.Name != name {
			continue
		}
		for _, r := range requests {
			for _, c := range r.Call.Charges {
				if c.Counter == h.Counter {
					return c, true
				}
			}
		}
	}
	return c, false
}
