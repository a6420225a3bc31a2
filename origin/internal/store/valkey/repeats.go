package valkey

import (
	"context"
	"sync"

	"github.com/weirproject/weir/origin/internal/limiter"
)

// repeats keeps calls of one ID apart that no server decides in one step: two functions over several slots could each charge
// what the other did not, and one of them go by a charge that the other gives back; two calls by plain commands could
// refuse each other. Those of other processes are not kept apart: all in all each counter is charged once by them. The zero
// value is ready.
type repeats struct {
	mu    sync.Mutex
	under map[limiter.CallID]chan struct{} // closed when the call has left
}

// enter waits until no other call of the ID is under way, at most until ctx ends.
func (r *repeats) enter(ctx context.Context, id limiter.CallID) (leave func(), err error) {
	for {
		r.mu.Lock()
		other, busy := r.under[id]
		if !busy {
			mine := make(chan struct{})
			if r.under == nil {
				r.under = map[limiter.CallID]chan struct{}{}
			}
			r.under[id] = mine
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				delete(r.under, id)
				r.mu.Unlock()
				close(mine)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
