package peers

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirproject/weir/shared/limit"
)

// BenchmarkDecision measures one decision without the counter's lookup and the clock: 997 a second, asked a little slower
// than that, and hammered. x/time/rate is the one peer that takes its clock as an argument. It answers yes or no, by
// floats; a Decision has the exact remaining, retry and reset too.
func BenchmarkDecision(b *testing.B) {
	l := limit.Limit{Count: 997, Window: limit.Second}
	first := time.Unix(1_760_000_000, 0)
	start := limit.Micros(first.UnixMicro())
	for _, load := range []struct {
		name string
		pace limit.Micros // between calls, in µs
	}{{"admitted", 1004}, {"refused", 1}} {
		b.Run(load.name+"/weir-token-bucket", func(b *testing.B) {
			decide(b, load.pace, start, l, limit.FullTokenBucket(l, start), limit.TokenBucket.Take)
		})
		b.Run(load.name+"/weir-gcra", func(b *testing.B) {
			decide(b, load.pace, start, l, limit.FullGCRA(l, start), limit.GCRA.Take)
		})
		b.Run(load.name+"/weir-sliding-window", func(b *testing.B) {
			decide(b, load.pace, start, l, limit.SlidingWindow{}, limit.SlidingWindow.Take)
		})
		b.Run(load.name+"/x-time-rate", func(b *testing.B) {
			b.ReportAllocs()
			limiter, now, pace, admitted := rate.NewLimiter(997, 997), first, time.Duration(load.pace)*time.Microsecond, 0
			limiter.AllowN(now, 997)
			for b.Loop() {
				if now = now.Add(pace); limiter.AllowN(now, 1) {
					admitted++
				}
			}
			report(b, admitted)
		})
	}
}

func decide[S any](b *testing.B, pace, now limit.Micros, l limit.Limit, s S, take func(S, limit.Limit, limit.Micros, int64) (S, limit.Decision)) {
	b.ReportAllocs()
	s, _ = take(s, l, now, 997)
	admitted := 0
	for b.Loop() {
		now += pace
		next, d := take(s, l, now, 1)
		if s = next; d.Allowed {
			admitted++
		}
	}
	report(b, admitted)
}

func report(b *testing.B, admitted int) {
	b.ReportMetric(float64(admitted)/float64(b.N), "admitted/op")
}
