package limit_test

import (
	"math"
	"reflect"
	"testing"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
)

func TestStatesComeBackFromBothEncodings(t *testing.T) {
	r := newRand(t)
	for _, algorithm := range limittest.Algorithms {
		for range 2000 {
			l := randomLimit(r, algorithm)
			now := limit.Micros(r.Int64N(1 << 50))
			c := limittest.New(algorithm, l, now, 0)
			for range 5 {
				now = randomStep(r, l, now)
				c.Take(l, now, randomCost(r, quota(algorithm, l)))
			}
			for i, read := range c.Recoded() {
				if !reflect.DeepEqual(read.State(), c.State()) {
					t.Fatalf("%s, encoding %d: wrote %+v, read %+v", algorithm, i, c.State(), read.State())
				}
			}
		}
	}
}

func TestEncodingsHaveTheirSizeAndRefuseOthers(t *testing.T) {
	for name, reader := range map[string]struct {
		size int
		read func(b []byte) bool
	}{
		"token bucket":   {limit.TokenBucketSize, func(b []byte) bool { _, ok := limit.ReadTokenBucket(b); return ok }},
		"gcra":           {limit.GCRASize, func(b []byte) bool { _, ok := limit.ReadGCRA(b); return ok }},
		"sliding window": {limit.SlidingWindowSize, func(b []byte) bool { _, ok := limit.ReadSlidingWindow(b); return ok }},
		"fixed window":   {limit.FixedWindowSize, func(b []byte) bool { _, ok := limit.ReadFixedWindow(b); return ok }},
		"leaky bucket":   {limit.LeakyBucketSize, func(b []byte) bool { _, ok := limit.ReadLeakyBucket(b); return ok }},
		"leaky queue":    {limit.LeakyQueueSize, func(b []byte) bool { _, ok := limit.ReadLeakyQueue(b); return ok }},
	} {
		for n := range 50 {
			if reader.read(make([]byte, n)) != (n == reader.size) {
				t.Errorf("%s of %d bytes: wrong about %d", name, reader.size, n)
			}
		}
	}
	for n := range 50 {
		_, bytes := limit.ReadSlidingLog(make([]byte, n))
		_, integers := limit.SlidingLogOf(make([]int64, n))
		if bytes != (n%16 == 0) || integers != (n%2 == 0) {
			t.Errorf("sliding log of %d: %v, %v", n, bytes, integers)
		}
	}
	// Little-endian, fields in the order of the struct: edges of other versions read this.
	got := limit.TokenBucket{Tokens: 1, Part: 0x0203, Last: -2, Count: 5}.Append([]byte{9})
	want := []byte{9, 1, 0, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 5, 0, 0, 0, 0, 0, 0, 0}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("bytes %v, want %v", got, want)
	}
}

func TestNumbersForAStoreStayWhereDoublesAreExact(t *testing.T) {
	edge := limit.SlidingWindow{Start: math.MaxInt64, Current: 2 * limit.MaxCount, Previous: math.MinInt64}.Integers()
	if want := [3]int64{limit.MaxCount, limit.MaxCount, -limit.MaxCount}; edge != want {
		t.Errorf("got %v, want %v", edge, want)
	}
}

// What no algorithm writes is read as used up.
func TestDamagedStatesCountToTheStrictSide(t *testing.T) {
	l := limit.Limit{Count: 10, Window: limit.Minute}
	now := limit.Hour
	log := func(v ...int64) limit.SlidingLog { s, _ := limit.SlidingLogOf(v); return s }
	at := int64(now)
	for name, state := range map[string]any{
		"token bucket, negative tokens":      limit.TokenBucket{Tokens: -1, Part: 5, Last: now},
		"token bucket, tokens above all":     limit.TokenBucket{Tokens: limit.MaxCount + 1, Last: now},
		"token bucket, most negative":        limit.TokenBucket{Tokens: math.MinInt64, Part: math.MinInt64, Last: math.MaxInt64},
		"token bucket, far ahead":            limit.TokenBucket{Tokens: 10, Last: math.MaxInt64},
		"token bucket, part of a window":     limit.TokenBucket{Part: int64(limit.Minute), Last: now},
		"sliding window, negative":           limit.SlidingWindow{Start: now, Current: -1},
		"sliding window, negative before":    limit.SlidingWindow{Start: now, Previous: math.MinInt64},
		"fixed window, less than nothing":    limit.FixedWindow{Start: now, Used: -1},
		"gcra, nothing":                      limit.GCRA{},
		"gcra, count 0":                      limit.GCRA{Window: limit.Minute},
		"gcra, negative part":                limit.GCRA{Part: -1, Count: 10, Window: limit.Minute},
		"gcra, part above count":             limit.GCRA{Part: 10, Count: 10, Window: limit.Minute},
		"gcra, negative count":               limit.GCRA{Count: -10, Window: limit.Minute},
		"gcra, count above all":              limit.GCRA{Count: math.MaxInt64, Window: limit.Minute},
		"gcra, other window, none of ours":   limit.GCRA{Count: 10, Window: -1},
		"gcra, other window, part too large": limit.GCRA{Count: 10, Part: 11, Window: limit.Hour},
		"gcra, far ahead":                    limit.GCRA{Spent: math.MaxInt64, Count: 10, Window: limit.Minute},
		"sliding window, above all":          limit.SlidingWindow{Start: now, Current: math.MaxInt64, Previous: math.MaxInt64},
		"sliding window, far ahead":          limit.SlidingWindow{Start: math.MaxInt64},
		"fixed window, negative":             limit.FixedWindow{Start: now, Used: math.MinInt64},
		"fixed window, above all":            limit.FixedWindow{Start: now, Used: math.MaxInt64},
		"fixed window, far ahead":            limit.FixedWindow{Start: math.MaxInt64, Used: 1},
		"leaky bucket, negative level":       limit.LeakyBucket{Level: -1, Last: now},
		"leaky bucket, level above all":      limit.LeakyBucket{Level: math.MaxInt64, Last: now},
		"leaky bucket, part above window":    limit.LeakyBucket{Level: 10, Part: math.MaxInt64, Last: now},
		"leaky bucket, far ahead":            limit.LeakyBucket{Last: math.MaxInt64},
		"leaky queue, negative level":        limit.LeakyQueue{Level: math.MinInt64, Last: now},
		"sliding log, negative cost":         log(at, -3),
		"sliding log, no cost":               log(at, 0),
		"sliding log, cost above all":        log(at, math.MaxInt64),
		"sliding log, order lost":            log(at, 9, 0, 1),
		"sliding log, far ahead":             log(math.MaxInt64, 1),
	} {
		c := limittest.Of(state)
		d := c.Take(l, now, 1)
		if d.Allowed || d.Remaining != 0 {
			t.Errorf("%s: %+v", name, d)
		}
		if d.RetryAfter <= 0 || d.RetryAfter == limit.Never {
			t.Errorf("%s: locked out: %+v", name, d)
		}
		if again := c.Take(l, now+d.RetryAfter, 1); !again.Allowed {
			t.Errorf("%s: still refused after %d µs: %+v", name, d.RetryAfter, again)
		}
	}
	long := make([]int64, 2*(limit.MaxLogCount+500))
	for i := 0; i < len(long); i += 2 {
		long[i], long[i+1] = at+int64(i), 1
	}
	if s, _ := limit.SlidingLogOf(long); s.Len() != limit.MaxLogCount {
		t.Errorf("a log of %d entries keeps %d", len(long)/2, s.Len())
	} else if d := s.Peek(limit.Limit{Count: limit.MaxLogCount, Window: limit.Minute}, now+limit.Second, 1); d.Allowed {
		t.Errorf("a log too long: %+v", d)
	}
}
