package users

import (
	"context"
	"sync/atomic"
)

// gate lets so many in at once, and so many wait before it.
type gate struct {
	slots   chan struct{}
	most    int64
	waiting atomic.Int64
}

func newGate(slots int, waiting int64) *gate {
	return &gate{slots: make(chan struct{}, slots), most: waiting}
}

// enter waits for a slot, which the caller leaves. It is false where too many wait already, or ctx ends.
func (g *gate) enter(ctx context.Context) bool {
	select {
	case g.slots <- struct{}{}:
		return true
	default:
	}
	if g.waiting.Add(1) > g.most {
		g.waiting.Add(-1)
		return false
	}
	defer g.waiting.Add(-1)
	select {
	case g.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *gate) leave() { <-g.slots }
