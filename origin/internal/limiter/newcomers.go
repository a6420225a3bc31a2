package limiter

import (
	"sync/atomic"

	"github.com/weirproject/weir/shared/limit"
)

// Bounds of the counters that a process makes a second for one rule, where clients choose their principals by their
// addresses. A counter takes some 160 bytes of a store for up to two windows: 1,000 a second are 19 MB of a rule by the
// minute and 1.2 GB of one by the hour. In short windows everybody's counter is new all the time, so that these have more
// room: as many a second as keep keptNewcomers alive for a window, which is less memory still.
const (
	minNewcomers  = 1_000
	maxNewcomers  = 10_000
	keptNewcomers = 100_000
	// networkShare of them, one in four, is left for networks: so callers that come too late for a counter of their own
	// share one with their neighbours, rather than with everybody.
	networkShare = 4
)

// roomFor is how many counters a rule of a window may have made a second.
func roomFor(window limit.Micros) uint64 {
	return min(max(uint64(keptNewcomers*limit.Second/window), minNewcomers), maxNewcomers)
}

// newcomers bounds how many counters of a rule are made a second. A call that may make one reserves room for it first, and
// gives that back if it made none: so the bound holds for calls at once too. While there is no room, counters that exist are
// asked all the same. The zero value has counted none.
type newcomers struct {
	state atomic.Uint64 // the second, and how many were reserved in it in the low bits
}

const reservedBits = 16 // more than maxNewcomers

// reserve reserves one of room counters at now. It gives the second that giveBack wants, 0 where there is no room.
func (n *newcomers) reserve(now limit.Micros, room uint64) (second uint64) {
	second = uint64(max(now, 0)/limit.Second) + 1
	for {
		old := n.state.Load()
		if old>>reservedBits > second {
			second = old >> reservedBits // another call read the clock later
		}
		next := second << reservedBits
		if old>>reservedBits == second {
			if next = old; next&(1<<reservedBits-1) >= room {
				return 0
			}
		}
		if n.state.CompareAndSwap(old, next+1) {
			return second
		}
	}
}

// giveBack returns what was reserved in a second, while it lasts.
func (n *newcomers) giveBack(second uint64) {
	for {
		old := n.state.Load()
		if old>>reservedBits != second || old&(1<<reservedBits-1) == 0 {
			return
		}
		if n.state.CompareAndSwap(old, old-1) {
			return
		}
	}
}
