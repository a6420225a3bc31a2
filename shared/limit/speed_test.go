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
	b.Run("token-bucket", func(b *testing.B) { benchmark(b, limit.FullTokenBucket(busy, start), limit.TokenBucket.Take) })
	b.Run("gcra", func(b *testing.B) { benchmark(b, limit.FullGCRA(busy, start), limit.GCRA.Take) })
	b.Run("sliding-window", func(b *testing.B) { benchmark(b, limit.SlidingWindow{}, limit.SlidingWindow.Take) })
	b.Run("fixed-window", func(b *testing.B) {
		benchmark(b, limit.FixedWindow{}, func(s limit.FixedWindow, l limit.Limit, now limit.Micros, cost int64) (limit.FixedWindow, limit.Decision) {
			return s.Take(l, now, cost, 0)
		})
	})
	b.Run("leaky-bucket", func(b *testing.B) { benchmark(b, limit.LeakyBucket{}, limit.LeakyBucket.Take) })
	b.Run("leaky-queue", func(b *testing.B) { benchmark(b, limit.LeakyQueue{}, limit.LeakyQueue.Take) })
	b.Run("sliding-log", func(b *testing.B) { benchmark(b, limit.SlidingLog{}, limit.SlidingLog.Take) })
}

var busy = limit.Limit{Count: 997, Window: limit.Second}

const start = limit.Micros(1_760_000_000_000_000) // a wall clock's size

func benchmark[S any](b *testing.B, fresh S, take func(S, limit.Limit, limit.Micros, int64) (S, limit.Decision)) {
	b.Run("admitted", func(b *testing.B) {
		b.ReportAllocs()
		s, l, now, admitted := fresh, busy, start, 0
		s, _ = take(s, l, now, 500)
		for range b.N {
			now += 1004
			next, d := take(s, l, now, 1)
			if s = next; d.Allowed {
				admitted++
			}
		}
		if admitted*10 < b.N*9 {
			b.Fatalf("%d of %d admitted", admitted, b.N)
		}
	})
	b.Run("refused", func(b *testing.B) {
		b.ReportAllocs()
		s, l, now, admitted := fresh, busy, start, 0
		s, _ = take(s, l, now, 997)
		for range b.N {
			now++
			next, d := take(s, l, now, 1)
			if s = next; d.Allowed {
				admitted++
			}
		}
		if admitted*10 > b.N {
			b.Fatalf("%d of %d admitted", admitted, b.N)
		}
	})
}
