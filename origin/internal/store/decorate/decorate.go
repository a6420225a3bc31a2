// Package decorate puts around a store what is the same for every store: a bound on time, metrics, spans.
//
// Each function gives a store that asks another. Put Deadline innermost, so that what the others see includes it.
package decorate

import (
	"context"
	"errors"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
)

// Deadline bounds all requests to next for one call, from when the first is made: a wait for a connection counts.
func Deadline(next limiter.Store, bound time.Duration) limiter.Store { return &deadline{next, bound} }

type deadline struct {
	next  limiter.Store
	bound time.Duration
}

// within is a context for one request for c. It has not the caller's cancellation: a client that goes away is no failure of the
// store, and would have its call charged to the fallback instead.
func (d *deadline) within(ctx context.Context, c *limiter.Call) (context.Context, context.CancelFunc) {
	if c.By.IsZero() {
		c.By = time.Now().Add(d.bound)
	}
	return context.WithDeadline(context.WithoutCancel(ctx), c.By)
}

func (d *deadline) Take(ctx context.Context, c *limiter.Call) error {
	ctx, cancel := d.within(ctx, c)
	defer cancel()
	return d.next.Take(ctx, c)
}

func (d *deadline) Refund(ctx context.Context, c *limiter.Call) error {
	ctx, cancel := d.within(ctx, c)
	defer cancel()
	return d.next.Refund(ctx, c)
}

func (d *deadline) Reset(ctx context.Context, c *limiter.Call) error {
	ctx, cancel := d.within(ctx, c)
	defer cancel()
	return d.next.Reset(ctx, c)
}

// reason is an error as metrics and spans name it: one of a few words.
func reason(err error) string {
	if failed, ok := errors.AsType[*limiter.StoreError](err); ok {
		return failed.Reason
	}
	return "other"
}

// statusWords are the words for a status, as spans have them.
var statusWords = [...]string{limiter.Admitted: "admitted", limiter.Refused: "refused", limiter.Foreign: "foreign", limiter.Unmade: "unmade", limiter.Lost: "lost"}

// standing is the status of a whole call: the worst that an enforced charge has.
func standing(c *limiter.Call) (worst limiter.Status) {
	for i := range c.Charges {
		if !c.Charges[i].Shadow {
			worst = max(worst, c.Outcomes[i].Status)
		}
	}
	return worst
}
