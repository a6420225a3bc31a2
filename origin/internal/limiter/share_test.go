package limiter_test

import (
	"math/rand/v2"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

func TestAShareIsAnNthAndAtLeastOne(t *testing.T) {
	for _, c := range []struct {
		l    limit.Limit
		n    int64
		want limit.Limit
	}{
		{limit.Limit{Count: 100, Window: limit.Minute}, 4, limit.Limit{Count: 25, Window: limit.Minute}},
		{limit.Limit{Count: 100, Window: limit.Minute, Burst: 10}, 3, limit.Limit{Count: 33, Window: limit.Minute, Burst: 3}},
		{limit.Limit{Count: 3, Window: limit.Minute, Burst: 2}, 40, limit.Limit{Count: 1, Window: limit.Minute, Burst: 1}},
		{limit.Limit{Count: 0, Window: limit.Minute, Burst: 5}, 4, limit.Limit{Count: 0, Window: limit.Minute, Burst: 5}},
		{limit.Limit{Count: 7, Window: limit.Minute}, 1, limit.Limit{Count: 7, Window: limit.Minute}},
		{limit.Limit{Count: 7, Window: limit.Minute}, 0, limit.Limit{Count: 7, Window: limit.Minute}},
		{limit.Limit{Count: 7, Window: limit.Minute}, -3, limit.Limit{Count: 7, Window: limit.Minute}},
		{limit.Limit{Count: limit.MaxCount, Window: limit.MaxWindow}, 2, limit.Limit{Count: limit.MaxCount / 2, Window: limit.MaxWindow}},
		// From empty to full in 100 years; a third of it, rounded down, would take 166.
		{limit.Limit{Count: 5, Window: limit.MaxWindow, Burst: 500}, 3, limit.Limit{Count: 1, Window: limit.MaxWindow}},
	} {
		if got := limiter.Share(c.l, c.n); got != c.want {
			t.Errorf("%+v by %d: %+v, want %+v", c.l, c.n, got, c.want)
		}
	}
}

func TestSharesAreLimitsAndTogetherNoMoreThanTheWhole(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100_000 {
		l := limit.Limit{Count: r.Int64N(1 << r.IntN(54)), Window: limit.MinWindow + limit.Micros(r.Int64N(int64(limit.MaxWindow)))}
		if r.IntN(2) == 0 {
			l.Burst = r.Int64N(1 << r.IntN(54))
		}
		if l.Check() != nil {
			continue
		}
		n := 1 + r.Int64N(1<<r.IntN(20))
		s := limiter.Share(l, n)
		if err := s.Check(); err != nil {
			t.Fatalf("seed %d: %+v by %d: %+v: %v", seed, l, n, s, err)
		}
		if s.Count > max(1, l.Count/n) || l.Count > 0 && s.Count < 1 || s.Capacity() > max(1, l.Capacity()/n) && s.Capacity() > s.Count {
			t.Fatalf("seed %d: %+v by %d: %+v", seed, l, n, s)
		}
	}
}
