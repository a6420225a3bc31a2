package valkey

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// settle gives back, and remembers or forgets the call's ID, in a second round trip. It goes on past the call's deadline,
// for which it has to do without the call; the caller waits no longer than that, and not at all for shadow charges.
func (c *commands) settle(ctx context.Context, w *work) {
	var batches []*batch
	backs, wanted := 0, false
	for _, b := range w.batches {
		if len(b.todo) > 0 {
			batches = append(batches, b)
			backs++
		}
		for _, todo := range b.todo {
			wanted = wanted || todo.e == nil || !todo.e.charge.Shadow
		}
	}
	c.s.giveBack(ctx, backs, wanted, func(ctx context.Context) bool { return c.giveBack(ctx, batches) })
}

// giveBack sends what is planned. A counter that expired meanwhile was made anew by its DECRBY, below zero and for ever:
// it is lifted by that much and expires. It tells whether all of it was done.
func (c *commands) giveBack(ctx context.Context, batches []*batch) (ok bool) {
	for _, b := range batches {
		for _, e := range b.entries {
			e.lost, e.below = nil, 0
		}
	}
	c.round(ctx, batches)
	below := false
	for _, b := range batches {
		for _, e := range b.entries {
			if e.below > 0 {
				e.lacks = min(e.below, e.cost)
				e.do(opRestore)
				e.do(opExpire)
				below = true
			}
		}
	}
	if below {
		c.round(ctx, batches)
	}
	for _, b := range batches {
		if b.err != nil {
			return false
		}
		for _, e := range b.entries {
			if e.lost != nil {
				return false
			}
		}
	}
	return true
}

// owed are counters that may have been left without an expiry: the answer to a DECRBY, or to an INCRBY, never came, so
// nobody saw whether it made the counter anew, or was cut off from the PEXPIRE behind it.
type owed struct {
	some     atomic.Bool
	tried    atomic.Int64 // when, by the process's clock
	mu       sync.Mutex
	counters []owing
}

// owing is a counter with what it takes to send it a PEXPIRE.
type owing struct {
	slot    uint16
	current string
	ttl     int64
}

// maxOwed is what can be in flight to a few servers at once, which stopped. What lies beyond it is not remembered.
const maxOwed = 16 * maxInFlight

// add remembers a counter that a request of kind failed for with err, unless nothing was sent: what was to be lifted lacks its
// expiry all the same.
func (o *owed) add(err error, slot uint16, e *entry, kind op) {
	if e.current == "" || kind != opRestore && (errors.Is(err, errBusy) || errors.Is(err, errOpen) || errors.Is(err, errNotConnected) || errors.Is(err, errNobody)) {
		return
	}
	o.put([]owing{{slot, e.current, e.ttl}})
}

func (o *owed) put(counters []owing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counters = append(o.counters, counters[:min(len(counters), maxOwed-len(o.counters))]...)
	o.some.Store(len(o.counters) > 0)
}

func (o *owed) takeAll() []owing {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.counters
	o.counters = nil
	o.some.Store(false)
	return all
}

// mend gives the counters that are owed one their expiry, in the background. It is for whenever a server answered, and
// tries no more often than a server that does not answer is asked whether it does.
func (c *commands) mend() {
	if !c.owed.some.Load() {
		return
	}
	now, tried := int64(c.s.now()), c.owed.tried.Load()
	if now-tried < probeEvery.Microseconds() || !c.owed.tried.CompareAndSwap(tried, now) {
		return
	}
	select {
	case c.s.backs <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-c.s.backs }()
		ctx, cancel := context.WithTimeout(context.Background(), giveBackTime)
		defer cancel()
		c.expire(ctx, c.owed.takeAll())
	}()
}

// expire sends each a PEXPIRE, and owes it to those still that it fails for.
func (c *commands) expire(ctx context.Context, counters []owing) {
	w := &work{entries: make([]entry, len(counters))}
	for i, o := range counters {
		e := &w.entries[i]
		*e = entry{current: o.current, ttl: o.ttl, batch: w.batchOf(o.slot)}
		e.batch.placed = true
		e.do(opExpire)
	}
	c.round(ctx, w.batches)
	var left []owing
	for i := range w.entries {
		if w.entries[i].lost != nil {
			left = append(left, counters[i])
		}
	}
	c.owed.put(left)
}
