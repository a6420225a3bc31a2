package valkey

import (
	"strconv"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// entry is one charge on its way.
type entry struct {
	charge *limiter.Charge // of the call; not to be looked at while giving back
	batch  *batch

	at              limit.Micros // whose window it is about: when it was charged; until placed, Never for now
	start           limit.Micros // of that window
	current, before string       // names of that window's number and of the one before, "" where no algorithm looks at it
	cost, ttl       int64        // ttl in ms

	exists, unmade bool  // exists: looked at, and above zero, or foreign
	charged        bool  // by an INCRBY that was answered
	foreign        bool  // what is stored is no number
	held, previous int64 // by the windows, before this call
	lacks, below   int64 // by how much a number is to be lifted; how far a give-back left it below zero
	lost           error // why nothing is known, a [limiter.StoreError]
	status         limiter.Status
}

func (e *entry) sliding() bool { return e.charge.Algorithm == rule.SlidingWindow }

// never tells whether the cost can never pass.
func (e *entry) never() bool { return e.cost > e.charge.Limit.Count }

// place names the window that the entry is about. It expires when a counter that was charged in it alone equals a fresh
// one.
func (e *entry) place(now, switchAt limit.Micros) {
	c := e.charge
	if e.at == limit.Never {
		e.at = now
	}
	n := windowAt(c, e.at)
	e.start = limit.Micros(n)*c.Limit.Window + c.Offset
	e.current, e.before = windowName(c, n, switchAt), ""
	fresh := e.start + c.Limit.Window
	if e.sliding() {
		e.before = windowName(c, n-1, switchAt)
		fresh += c.Limit.Window
	}
	e.ttl = max(1, int64((fresh-now+limit.Millisecond-1)/limit.Millisecond))
}

// windowAt is the number of a counter's window at an instant.
func windowAt(c *limiter.Charge, at limit.Micros) int64 {
	n := (at - c.Offset) / c.Limit.Window
	if (at-c.Offset)%c.Limit.Window < 0 {
		n--
	}
	return int64(n)
}

// windowName is the name of a counter's n-th window: by the secret that is in force when the window starts, so that one
// window has one name.
func windowName(c *limiter.Charge, n int64, switchAt limit.Micros) string {
	name := &c.Counter
	if c.Former != (limiter.Counter{}) && limit.Micros(n)*c.Limit.Window+c.Offset < switchAt {
		name = &c.Former
	}
	return nameOf(name, n)
}

func nameOf(name *limiter.Counter, n int64) string {
	var b [limiter.CounterSize + 16]byte
	copy(b[:], name[:])
	b[limiter.CounterSize] = ':'
	return string(strconv.AppendInt(b[:limiter.CounterSize+1], n, 36))
}

// decide sets the status of an entry whose round trip is over.
func (e *entry) decide() {
	switch {
	case e.lost != nil:
		e.status = limiter.Lost
	case e.unmade:
		e.status = limiter.Unmade
	case e.foreign:
		e.status = limiter.Foreign
	case e.peek(e.batch.now).Allowed:
		e.status = limiter.Admitted
	default:
		e.status = limiter.Refused
	}
}

// peek is the decision as the counter stood before this call.
func (e *entry) peek(now limit.Micros) limit.Decision {
	c := e.charge
	if e.sliding() {
		return e.window().Peek(c.Limit, now, e.cost)
	}
	return limit.FixedWindow{Start: e.start, Used: e.held}.Peek(c.Limit, now, e.cost, c.Offset)
}

func (e *entry) window() limit.SlidingWindow {
	return limit.SlidingWindow{Start: e.start, Current: e.held, Previous: e.previous}
}

// outcome is what the caller is told; kept tells whether the charge stands.
func (e *entry) outcome(kept bool) limiter.Outcome {
	if e.status == limiter.Lost {
		return limiter.Outcome{Status: limiter.Lost, Err: e.lost}
	}
	c, now := e.charge, e.batch.now
	o := limiter.Outcome{Status: e.status, At: now}
	switch {
	case e.status != limiter.Admitted && e.status != limiter.Refused:
	case !kept:
		o.Decision = e.peek(now)
		o.AskAgain = askAgain(c.Limit, wait(o.Decision))
	default:
		o.Charged, o.Made = true, e.held == 0 && e.previous == 0
		if e.sliding() {
			var next limit.SlidingWindow
			next, o.Decision = e.window().Take(c.Limit, now, e.cost)
			o.Next = next.Peek(c.Limit, now, 1)
		} else {
			var next limit.FixedWindow
			next, o.Decision = limit.FixedWindow{Start: e.start, Used: e.held}.Take(c.Limit, now, e.cost, c.Offset)
			o.Next = next.Peek(c.Limit, now, 1, c.Offset)
		}
		o.AskAgain = askAgain(c.Limit, wait(o.Next))
	}
	return o
}

// wait is what a decision tells to wait for; 0 of one that admits.
func wait(d limit.Decision) limit.Micros {
	if d.Allowed {
		return 0
	}
	return d.RetryAfter
}

// askAgain is how long a refusal that tells to wait may be answered from memory where it may have counted a charge that is
// being given back: that wait, but no longer than one emission interval. One that never ends is due to no charge.
func askAgain(l limit.Limit, wait limit.Micros) limit.Micros {
	if wait == limit.Never || l.Count == 0 {
		return wait
	}
	count := limit.Micros(l.Count)
	return min(wait, max(1, (l.Window+count-1)/count))
}
