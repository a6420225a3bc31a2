package valkey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

// batch is what one slot is sent in a round trip.
type batch struct {
	part
	placed  bool         // its entries know their windows
	now     limit.Micros // of the server that was asked first
	entries []*entry
	todo    []command
	id      string       // key of the call's ID; "" in all batches but one, and without an ID
	until   limit.Micros // when its call is decided at the latest, in the server's time
	claim   claim
}

// claim says whose a call's ID is, by what was stored under it. That is until when its call is decided, or that it was
// admitted: one that is past its time was answered to nobody, and counts as if it had not been.
type claim uint8

const (
	unknown    claim = iota // its server did not answer
	ours                    // this call's
	others                  // another call's that is being decided
	remembered              // of a call that was admitted
)

// work is a call on its way. Entries hold copies of what giving back needs: that may go on when the call is its caller's
// again.
type work struct {
	call    *limiter.Call
	entries []entry // as many as charges
	batches []*batch
	id      *batch // that asks for the call's ID; nil without one
}

// newWork sorts a call's charges by slot. One by an algorithm that plain commands do not keep is lost.
func (c *commands) newWork(call *limiter.Call) *work {
	w := &work{call: call, entries: make([]entry, len(call.Charges))}
	for i := range call.Charges {
		ch := &call.Charges[i]
		e := &w.entries[i]
		*e = entry{charge: ch, cost: ch.Cost, at: limit.Never}
		if !c.supports(ch.Algorithm) {
			e.lost = &limiter.StoreError{Reason: reasonAnswer, Err: fmt.Errorf("plain commands keep no %s: %w", ch.Algorithm, errors.ErrUnsupported)}
			continue
		}
		e.batch = w.batchOf(uint16(c.s.Slot(&ch.Counter)))
		e.batch.entries = append(e.batch.entries, e)
	}
	return w
}

func (w *work) batchOf(slot uint16) *batch {
	for _, b := range w.batches {
		if b.slot == slot {
			return b
		}
	}
	b := &batch{part: part{slot: slot}}
	w.batches = append(w.batches, b)
	return b
}

// do adds a command to the next round trip.
func (e *entry) do(o op) { e.batch.todo = append(e.batch.todo, command{op: o, e: e}) }

// round sends what is to be done, to all slots at once, and reads the answers.
func (c *commands) round(ctx context.Context, batches []*batch) {
	var few [8]*part
	parts := few[:0]
	for _, b := range batches {
		if len(b.todo) == 0 {
			continue
		}
		b.ask = func(n *node, builder valkey.Builder) []valkey.Completed {
			if !b.placed {
				b.placed, b.now = true, c.clock(n)
				b.until = b.now + patience(ctx)
				for _, e := range b.entries {
					e.place(b.now, c.s.options.SwitchAt)
					e.ttl += c.spare
				}
			}
			built := make([]valkey.Completed, len(b.todo))
			for i := range b.todo {
				built[i] = b.todo[i].build(builder, b)
				c.s.count(b.todo[i].op.name())
			}
			return built
		}
		parts = append(parts, &b.part)
	}
	if len(parts) == 0 {
		return
	}
	c.s.exchange(ctx, parts)
	for _, b := range batches {
		if len(b.todo) > 0 {
			c.read(ctx, b)
		}
	}
}

// patience is how long a call can be waiting for its answer.
func patience(ctx context.Context) limit.Micros {
	wait := giveBackTime
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	return limit.Micros(wait.Microseconds())
}

// read reads the answers to a batch.
func (c *commands) read(ctx context.Context, b *batch) {
	if b.err != nil {
		lost := c.s.failed(ctx, b.node, b.err)
		for _, t := range b.todo {
			if t.e != nil {
				t.e.lost = lost
			}
			if t.op == opCharge || t.op == opGiveBack || t.op == opRestore {
				c.owed.add(b.err, b.slot, t.e, t.op)
			}
		}
	} else {
		for i, t := range b.todo {
			if err := t.read(b, b.replies[i]); err != nil {
				e := c.s.failed(ctx, b.node, err)
				if t.e != nil {
					t.e.lost = e
				}
			}
		}
	}
	b.todo = b.todo[:0]
}
