package limit_test

import (
	"testing"

	"github.com/weirproject/weir/shared/limit"
)

func TestDecisionsAllocateNothing(t *testing.T) {
	l := limit.Limit{Count: 100, Window: limit.Second}
	bucket, scheduler, meter := limit.FullTokenBucket(l, 0), limit.FullGCRA(l, 0), limit.LeakyBucket{}
	sliding, fixed, queue := limit.SlidingWindow{}, limit.FixedWindow{}, limit.LeakyQueue{}
	now, admitted := limit.Micros(0), 0
	var buffer [64]byte
	if n := testing.AllocsPerRun(1000, func() {
		now += 7919
		var d [6]limit.Decision
		bucket, d[0] = bucket.Take(l, now, 1)
		scheduler, d[1] = scheduler.Take(l, now, 1)
		meter, d[2] = meter.Take(l, now, 1)
		sliding, d[3] = sliding.Take(l, now, 1)
		fixed, d[4] = fixed.Take(l, now, 1, 0)
		queue, d[5] = queue.Take(l, now, 1)
		bucket, _ = limit.ReadTokenBucket(bucket.Append(buffer[:0]))
		scheduler, _ = limit.ReadGCRA(scheduler.Append(buffer[:0]))
		for _, each := range d {
			if each.Allowed {
				admitted++
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations a round of decisions, want 0", n)
	}
	if admitted == 0 {
		t.Error("nothing was admitted")
	}
}

// BenchmarkTake measures one decision: admitted is a counter that neither fills up nor runs dry, with 997 a second so that
// no division comes out even; refused is one that is hammered.
func BenchmarkTake(b *testing.B) {
	l := limit.Limit{Count: 997, Window: limit.Second}
	const start = limit.Micros(1_760_000_000_000_000) // a wall clock's size
	bench := func(name string, fresh func(now limit.Micros) func(now limit.Micros) limit.Decision) {
		for mode, step := range map[string]limit.Micros{"admitted": 1004, "refused": 1} {
			b.Run(name+"/"+mode, func(b *testing.B) {
				b.ReportAllocs()
				now, admitted := start, 0
				take := fresh(now)
				for range 500 {
					take(now)
				}
				for mode == "refused" && take(now).Allowed {
				}
				for b.Loop() {
					now += step
					if take(now).Allowed {
						admitted++
					}
				}
				if mode == "admitted" && admitted*10 < b.N*9 || mode == "refused" && admitted*10 > b.N && b.N > 1000 {
					b.Fatalf("%d of %d admitted", admitted, b.N)
				}
			})
		}
	}
	bench("token-bucket", func(now limit.Micros) func(limit.Micros) limit.Decision {
		s := limit.FullTokenBucket(l, now)
		return func(now limit.Micros) (d limit.Decision) { s, d = s.Take(l, now, 1); return d }
	})
	bench("gcra", func(now limit.Micros) func(limit.Micros) limit.Decision {
		s := limit.FullGCRA(l, now)
		return func(now limit.Micros) (d limit.Decision) { s, d = s.Take(l, now, 1); return d }
	})
	bench("sliding-window", func(now limit.Micros) func(limit.Micros) limit.Decision {
		var s limit.SlidingWindow
		return func(now limit.Micros) (d limit.Decision) { s, d = s.Take(l, now, 1); return d }
	})
	bench("fixed-window", func(now limit.Micros) func(limit.Micros) limit.Decision {
		var s limit.FixedWindow
		return func(now limit.Micros) (d limit.Decision) { s, d = s.Take(l, now, 1, 0); return d }
	})
	bench("leaky-bucket", func(now limit.Micros) func(limit.Micros) limit.Decision {
		var s limit.LeakyBucket
		return func(now limit.Micros) (d limit.Decision) { s, d = s.Take(l, now, 1); return d }
	})
	bench("leaky-queue", func(now limit.Micros) func(limit.Micros) limit.Decision {
		var s limit.LeakyQueue
		return func(now limit.Micros) (d limit.Decision) { s, d = s.Take(l, now, 1); return d }
	})
	bench("sliding-log", func(now limit.Micros) func(limit.Micros) limit.Decision {
		var s limit.SlidingLog
		return func(now limit.Micros) (d limit.Decision) { s, d = s.Take(l, now, 1); return d }
	})
}
