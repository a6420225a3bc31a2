package limit_test

import (
	"math"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/limit"
)

func TestLimitsOutsideTheBoundsAreRefusedWithTheBoundNamed(t *testing.T) {
	for _, c := range []struct {
		l    limit.Limit
		want error
	}{
		{limit.Limit{Count: 0, Window: limit.Second}, nil},
		{limit.Limit{Count: 1, Window: limit.Millisecond}, nil},
		{limit.Limit{Count: 1 << 31, Window: limit.Second}, nil},
		{limit.Limit{Count: limit.MaxCount, Window: 366 * limit.Day}, nil},
		{limit.Limit{Count: -1, Window: limit.Second}, limit.ErrCount},
		{limit.Limit{Count: 1 << 53, Window: limit.Second}, limit.ErrCount},
		{limit.Limit{Count: math.MaxInt64, Window: limit.Second}, limit.ErrCount},
		{limit.Limit{Count: 1, Window: 999}, limit.ErrWindow},
		{limit.Limit{Count: 1, Window: 0}, limit.ErrWindow},
		{limit.Limit{Count: 1, Window: 366*limit.Day + 1}, limit.ErrWindow},
		{limit.Limit{Count: 1, Window: limit.Second, Burst: -1}, limit.ErrBurst},
		{limit.Limit{Count: 1, Window: limit.Second, Burst: 1 << 53}, limit.ErrBurst},
		{limit.Limit{Count: 1, Window: limit.Day, Burst: 36_601}, limit.ErrRefill},
		{limit.Limit{Count: 1, Window: limit.Day, Burst: 36_600}, nil},
	} {
		if got := c.l.Check(); got != c.want {
			t.Errorf("%+v: got %v, want %v", c.l, got, c.want)
		}
	}
	for cost, ok := range map[int64]bool{0: true, 1: true, limit.MaxCount: true, limit.MaxCount + 1: false, -1: false, math.MinInt64: false} {
		if err := limit.CheckCost(cost); (err == nil) != ok || !ok && !strings.Contains(err.Error(), "2^53-1") {
			t.Errorf("cost %d: %v", cost, err)
		}
	}
}

func TestLongRunRateIsExact(t *testing.T) {
	l := limit.Limit{Count: 997, Window: limit.Second}
	for _, step := range []limit.Micros{1, 7, 999, 1003, 250_001} {
		s := limit.FullTokenBucket(l, 0)
		admitted := int64(0)
		// Asking every few µs must lose nothing to rounding: drain, then count what 1,000 s bring.
		end := 1000 * limit.Second
		if step < 100 {
			end = limit.Second * 10
		}
		for now := limit.Micros(0); now <= end; now += step {
			var d limit.Decision
			for s, d = s.Take(l, now, 1); d.Allowed; s, d = s.Take(l, now, 1) {
				admitted++
			}
		}
		want := 997 + 997*int64(end/limit.Second)
		if admitted > want || admitted < want-int64(step)*997/1_000_000-1 {
			t.Errorf("asked every %d µs for %d s: admitted %d, want %d", step, end/limit.Second, admitted, want)
		}
	}
}

// Case 1: a caller whose clock is 1 s behind, alternating with one on time, must not move `last` back.
func TestTwoClocksOneSecondApartDoNotMultiplyTheRate(t *testing.T) {
	l := limit.Limit{Count: 10, Window: limit.Second}
	s := limit.FullTokenBucket(l, 100*limit.Second)
	admitted := 0
	for i := range 450 {
		now := 100*limit.Second + limit.Micros(i)*limit.Second/150
		if i%2 == 1 {
			now -= limit.Second
		}
		var d limit.Decision
		if s, d = s.Take(l, now, 1); d.Allowed {
			admitted++
		}
	}
	if admitted < 35 || admitted > 40 {
		t.Errorf("admitted %d in 3 s at 10/s with a burst of 10, want about 40 and no more", admitted)
	}
}

func TestRefundsGiveBackWhatIsOwedNoMore(t *testing.T) {
	l := limit.Limit{Count: 10, Window: limit.Minute}
	s, _ := limit.FullTokenBucket(l, 0).Take(l, 0, 6)
	if got := s.Refund(l, 0, 2); got.Tokens != 6 {
		t.Errorf("token bucket: 4 left and 2 back gives %d", got.Tokens)
	}
	if got := s.Refund(l, 0, limit.MaxCount); got != limit.FullTokenBucket(l, 0) {
		t.Errorf("token bucket: a huge refund gives %+v, want full", got)
	}
	for _, cost := range []int64{0, -1, math.MaxInt64} {
		if got := s.Refund(l, 0, cost); got != s {
			t.Errorf("token bucket: refund of %d changed the state to %+v", cost, got)
		}
	}
	w, _ := limit.SlidingWindow{}.Take(l, limit.Hour, 6)
	next := limit.Hour + limit.Minute + limit.Second
	for name, c := range map[string]struct{ now, charged, wantStart limit.Micros }{
		"same window":     {limit.Hour + limit.Second, limit.Hour, limit.Hour},
		"window rotated":  {next, limit.Hour, next - limit.Second},
		"never happened":  {limit.Hour, limit.Day, limit.Hour},
		"long out of use": {limit.Day, limit.Hour, limit.Hour},
	} {
		got := w.Refund(l, c.now, 4, c.charged)
		want := map[string]int64{"same window": 2, "window rotated": 2, "never happened": 6, "long out of use": 6}[name]
		if got.Current+got.Previous != want || got.Start != c.wantStart {
			t.Errorf("sliding window, %s: %+v, want %d owed at %d", name, got, want, c.wantStart)
		}
	}
	if got := w.Refund(l, limit.Hour, 7, limit.Hour); got.Current != 0 {
		t.Errorf("sliding window: refund above the charge gives %+v, want nothing owed", got)
	}
}

func TestStateStandsStillAfterItsReset(t *testing.T) {
	l := limit.Limit{Count: 7, Window: limit.Second, Burst: 20}
	s, d := limit.FullTokenBucket(l, 5).Take(l, 5, 13)
	if after := s.FullAfter(l, 5); after != d.ResetAfter || s.FullAfter(l, 5+after) != 0 || s.FullAfter(l, 4+after) != 1 {
		t.Errorf("token bucket: reset after %d, full after %d", d.ResetAfter, after)
	}
	w, d := limit.SlidingWindow{}.Take(l, 1_300_000, 3)
	if after := w.FreshAfter(l, 1_300_000); after != d.ResetAfter || w.FreshAfter(l, 1_300_000+after) != 0 || w.FreshAfter(l, 1_299_999+after) != 1 {
		t.Errorf("sliding window: reset after %d, fresh after %d", d.ResetAfter, after)
	}
}

func TestDecisionsAllocateNothing(t *testing.T) {
	l := limit.Limit{Count: 100, Window: limit.Second}
	bucket, window := limit.FullTokenBucket(l, 0), limit.SlidingWindow{}
	now := limit.Micros(0)
	if n := testing.AllocsPerRun(1000, func() {
		now += 7919
		bucket, _ = bucket.Take(l, now, 1)
		window, _ = window.Take(l, now, 1)
	}); n != 0 {
		t.Errorf("%v allocations a decision, want 0", n)
	}
}

func BenchmarkTake(b *testing.B) {
	l := limit.Limit{Count: 1_000_000, Window: limit.Second}
	b.Run("token-bucket", func(b *testing.B) {
		b.ReportAllocs()
		s, now := limit.FullTokenBucket(l, 0), limit.Micros(0)
		for b.Loop() {
			now++
			s, _ = s.Take(l, now, 1)
		}
	})
	b.Run("sliding-window", func(b *testing.B) {
		b.ReportAllocs()
		s, now := limit.SlidingWindow{}, limit.Micros(0)
		for b.Loop() {
			now++
			s, _ = s.Take(l, now, 1)
		}
	})
}
