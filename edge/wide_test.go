package edge

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir/shared/limit"
)

// Each address of a /48 pays two buckets, and what one gives back when the other refuses is spent again. Over every
// interval both stay within the stated bound, for workers that disagree by 2 ms of what time it is.
func TestNoInterleavingExceedsTheBoundOfAnAddressAndItsNetwork(t *testing.T) {
	const skew = 2 * limit.Millisecond
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, name) }
		inner, outer := per(draw("count", 1, 40), draw("burst", 1, 60)), per(draw("outer count", 1, 100), draw("outer burst", 1, 200))
		b := testRule(inner, inner)
		b.Rule.OuterV6, b.Rule.OuterAnonymous, b.Rule.OuterValid = 48, outer, outer
		slots, engines := newSlots(), make([]*Engine, draw("workers", 1, 4))
		for i := range engines {
			engines[i] = worker(slots, b)
		}
		now := limit.Micros(limit.Hour)
		var admitted [4][]limit.Micros // of the /48, then of its three /64
		for range 300 {
			now += limit.Micros(draw("moves", 0, 1) * draw("gap", 0, 60_000))
			network, late := draw("network", 1, 3), limit.Micros(draw("late", 0, 1))*skew
			for range draw("calls", 1, 8) {
				e := engines[draw("worker", 0, int64(len(engines))-1)]
				if decide(e, from(fmt.Sprintf("[2001:db8:0:%d::1]:1", network), now-late)).Allowed {
					admitted[0], admitted[network] = append(admitted[0], now), append(admitted[network], now)
				}
			}
		}
		for i, list := range admitted {
			l := inner
			if i == 0 {
				l = outer
			}
			most := l.Burst + int64(len(engines))*LeaseMax(l)
			for from := range list {
				for to := from; to < len(list); to++ {
					t1 := int64(list[to] - list[from] + skew)
					if over := int64(to-from+1) - most; over*int64(l.Window) > l.Count*t1 {
						t.Fatalf("bucket %d: %d admitted in %d µs at %+v", i, to-from+1, list[to]-list[from], l)
					}
				}
			}
		}
	})
}
