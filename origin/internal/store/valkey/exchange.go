package valkey

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/breaker"
)

// part is what one slot is asked in a round trip.
type part struct {
	slot uint16
	// ask makes the commands for the server that gets them, all for keys of the slot. It is called again, for another server
	// or later, when commands have to be sent anew: it gives as many, of which those are sent that were not executed.
	ask func(*node, valkey.Builder) []valkey.Completed

	node    *node                 // that answered last
	replies []valkey.ValkeyResult // to each command, some maybe errors of the server; without meaning beside err
	err     error                 // why nothing is known; one of the above, of a connection, or the context's

	open   bool   // to be sent
	todo   []int  // indexes of the commands that are to be sent; nil before the first round: all
	target string // address that they are sent to, where a server said so; "": by the slot
	asking bool   // that server has to be told that it was asked for a slot that it is taking over
}

var (
	errOpen    = errors.New("the server failed too often: it is left alone for a while")
	errStale   = errors.New("the server was asked after the deadline; nothing was charged")
	errNobody  = errors.New("no server is known for the slot")
	errHopping = errors.New("servers send each other's callers on without an end")
	// errUnreadable is a reply that makes no sense.
	errUnreadable = errors.New("unreadable reply")
)

// A slot that moves from server to server may send its callers on a few times, until the servers agree. From the third time
// on a short pause lets them.
const (
	maxHops  = 20
	hopPause = time.Millisecond
	maxPause = 50 * time.Millisecond
)

// exchange asks all parts at once, one request to each server, in one round trip. What a server did not execute, since the
// slot is another's by now, is sent on; nothing else is ever sent twice. It returns at the latest when ctx ends: then err
// of the unanswered parts is set.
func (s *Store) exchange(ctx context.Context, parts []*part) {
	for _, p := range parts {
		*p = part{slot: p.slot, ask: p.ask, open: true}
	}
	pause := hopPause
	for hop := 1; ; hop++ {
		if err := ctx.Err(); err != nil {
			for _, p := range parts {
				p.err = err
			}
			return
		}
		s.round(ctx, parts)
		var on []*part
		for _, p := range parts {
			if p.open {
				on = append(on, p)
			}
		}
		if len(on) == 0 {
			return
		}
		parts = on
		var err error
		if hop == maxHops {
			err = errHopping
		} else if hop >= 3 && !sleep(ctx, pause) {
			err = ctx.Err()
		}
		if err != nil {
			for _, p := range on {
				p.err = err
			}
			return
		}
		if hop >= 3 {
			pause = min(2*pause, maxPause)
		}
	}
}

// sleep waits for d, false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// trip is the request to one server in a round.
type trip struct {
	node     *node
	parts    []*part
	commands []valkey.Completed
	done     func(breaker.Result)
	replies  []valkey.ValkeyResult
	pending  bool
}

// round sends each part's todo and reads the answers.
func (s *Store) round(ctx context.Context, parts []*part) {
	var few [4]trip
	trips := few[:0]
	for _, p := range parts {
		p.open = false
		if p.node, p.err = s.nodeFor(ctx, p); p.err != nil {
			continue
		}
		n := p.node
		at := 0
		for at < len(trips) && trips[at].node != n {
			at++
		}
		if at == len(trips) {
			trips = append(trips, trip{node: n})
		}
		trips[at].parts = append(trips[at].parts, p)
	}
	type answer struct {
		trip    int
		replies []valkey.ValkeyResult
	}
	answers := make(chan answer, len(trips)) // roomy enough for all, so that one that comes too late holds nobody
	pending := 0
	for i := range trips {
		t := &trips[i]
		if err := t.start(func(replies []valkey.ValkeyResult) { answers <- answer{i, replies} }); err != nil {
			t.end(ctx, err)
			continue
		}
		pending++
	}
	for ; pending > 0; pending-- {
		select {
		case a := <-answers:
			t := &trips[a.trip]
			t.pending, t.replies = false, a.replies
			t.end(ctx, nil)
		case <-ctx.Done():
			for i := range trips {
				if trips[i].pending {
					trips[i].end(ctx, ctx.Err())
				}
			}
			return
		}
	}
}

func (t *trip) start(answered func([]valkey.ValkeyResult)) error {
	client := t.node.client.Load()
	if client == nil {
		return errNotConnected // costs nobody any time: not the breaker's business
	}
	var ok bool
	if t.done, ok = t.node.breaker.Allow(); !ok {
		return errOpen
	}
	if !t.node.enter() {
		if t.node.breaker.State() != breaker.Closed {
			return errOpen // those who have the room wait for a server that fails: this is no overload
		}
		return errBusy
	}
	for _, p := range t.parts {
		commands := p.ask(t.node, (*client).B())
		if p.replies == nil {
			p.replies, p.todo = make([]valkey.ValkeyResult, len(commands)), make([]int, len(commands))
			for i := range p.todo {
				p.todo[i] = i
			}
		}
		for _, i := range p.todo {
			if p.asking {
				t.node.s.count("asking")
				t.commands = append(t.commands, (*client).B().Asking().Build())
			}
			t.commands = append(t.commands, commands[i])
		}
	}
	t.pending = true
	t.node.send(*client, t.commands, answered)
	return nil
}

// end gives the parts their replies, or err, and tells the breaker how it went.
func (t *trip) end(ctx context.Context, err error) {
	result, failure, at := breaker.OK, err, 0
	for _, p := range t.parts {
		if err != nil {
			// Nothing was sent to a server that left the cluster just now: another has the slot.
			p.open = t.node.gone.Load() && !t.pending
			p.err = err
			if p.open {
				p.err, p.target, p.asking = nil, "", false
			}
			continue
		}
		todo, asking := p.todo, p.asking
		p.todo = p.todo[:0]
		for _, i := range todo {
			if asking {
				at++
			}
			p.replies[i] = t.replies[at]
			at++
			p.read(i)
			if answer := p.replies[i].Error(); failing(answer) || answer != nil && t.node.unloaded.Load() != nil && isFunctionMissing(answer) {
				result, failure = breaker.Failed, answer
			}
		}
		p.open = p.err == nil && len(p.todo) > 0
	}
	if errors.Is(err, context.Canceled) || err != nil && (!t.pending || t.node.gone.Load()) {
		result = breaker.Void // nothing was sent, for want of room, or to nobody: it says nothing about the server
	} else if err != nil {
		result = breaker.Failed
	}
	if t.done != nil {
		if result == breaker.Failed {
			t.node.failure.Store(&failure) // told if it opens the breaker
		}
		t.done(result)
	}
}

// read looks at the reply to a command: one that was not executed is still to be done.
func (p *part) read(i int) {
	err := p.replies[i].Error()
	if err == nil {
		return
	}
	e, answered := valkey.IsValkeyErr(err)
	if !answered {
		if !valkey.IsValkeyNil(err) {
			p.err = err
		}
		return
	}
	if addr, ask, ok := p.node.s.redirection(err); ok {
		if p.target, p.asking = resolve(addr, p.node), ask; !ask {
			p.node.s.moved(p.slot, p.target)
		}
	} else if e.IsClusterDown() {
		p.target, p.asking = "", false
		p.node.s.refreshSoon()
	} else {
		return
	}
	p.todo = append(p.todo, i)
}

// resolve is the address of a redirection: without a host it is the host of who answered.
func resolve(addr string, from *node) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host != "" {
		return addr
	}
	host, _, _ = net.SplitHostPort(from.addr)
	return net.JoinHostPort(host, port)
}

// failing tells whether an error is about the server, not about one key or where it is.
func failing(err error) bool {
	if err == nil || valkey.IsValkeyNil(err) {
		return false
	}
	e, answered := valkey.IsValkeyErr(err)
	if !answered {
		return true
	}
	if strings.HasPrefix(e.Error(), "ACL failure in script") { // NOPERM, of a command within the function
		return true
	}
	code, _, _ := strings.Cut(e.Error(), " ")
	switch code {
	case "OOM", "READONLY", "NOPERM", "NOAUTH", "WRONGPASS", "LOADING", "MISCONF", "BUSY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN":
		return true
	}
	return false
}
