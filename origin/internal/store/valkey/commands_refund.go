package valkey

import (
	"context"

	"github.com/weirproject/weir/origin/internal/limiter"
)

// refund is [limiter.Store.Refund]: it reads first, so that a window gives back no more than it holds. A call whose ID could
// not be forgotten is not given back: sent again, it would pass for nothing.
func (c *commands) refund(ctx context.Context, call *limiter.Call) error {
	w := c.newWork(call)
	for i := range w.entries {
		if e := &w.entries[i]; call.Outcomes[i].Charged && e.lost == nil {
			e.charged = true
			e.at = call.Outcomes[i].At
			e.do(opRead)
		}
	}
	if call.ID != (limiter.CallID{}) {
		w.ask(opForget)
	}
	c.round(ctx, w.batches)
	if w.id != nil && w.id.err != nil {
		return c.s.failed(ctx, w.id.node, w.id.err)
	}
	var lost error
	for i := range w.entries {
		e := &w.entries[i]
		if e.charged && e.lost != nil {
			lost = e.lost
		} else if e.cost = min(e.cost, e.held); e.charged && e.cost > 0 && !e.foreign && e.inView() {
			e.do(opGiveBack)
		}
	}
	c.giveBack(ctx, w.batches)
	for i := range w.entries {
		if e := &w.entries[i]; e.charged && e.lost != nil {
			lost = e.lost
		}
	}
	return lost
}

// inView tells whether what is charged in the entry's window counts still.
func (e *entry) inView() bool {
	end := e.start + e.charge.Limit.Window
	if e.sliding() {
		end += e.charge.Limit.Window
	}
	return e.batch.now < end
}

// reset is [limiter.Store.Reset]: it deletes the windows that are in view, and the one after, in which a process counts
// whose clock is ahead.
func (c *commands) reset(ctx context.Context, call *limiter.Call) error {
	return c.s.remove(ctx, call, func(n *node, ch *limiter.Charge) (keys []string) {
		at := windowAt(ch, c.clock(n))
		for window := at - 1; window <= at+1; window++ {
			keys = append(keys, nameOf(&ch.Counter, window))
			if ch.Former != (limiter.Counter{}) {
				keys = append(keys, nameOf(&ch.Former, window))
			}
		}
		return keys
	})
}
