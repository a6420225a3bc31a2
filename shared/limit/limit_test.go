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
