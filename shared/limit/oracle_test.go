package limit_test

import (
	"flag"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir/shared/limit"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 takes one from the clock")

// newRand prints the seed that repeats this run.
func newRand(t testing.TB) *rand.Rand {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed=%d", s)
	return rand.New(rand.NewPCG(s, s))
}

// bucketOracle is a token bucket by its definition: a level that is a fraction, refilled continuously.
type bucketOracle struct {
	level *big.Rat
	last  limit.Micros
}

func (o *bucketOracle) admits(l limit.Limit, now limit.Micros, cost int64) bool {
	full := new(big.Rat).SetInt64(l.Capacity())
	if now > o.last {
		gain := big.NewRat(l.Count, int64(l.Window))
		gain.Mul(gain, new(big.Rat).SetInt64(int64(now-o.last)))
		o.level.Add(o.level, gain)
		o.last = now
	}
	if o.level.Cmp(full) > 0 {
		o.level.Set(full)
	}
	price := new(big.Rat).SetInt64(cost)
	if o.level.Cmp(price) < 0 {
		return false
	}
	o.level.Sub(o.level, price)
	return true
}

// windowOracle is a sliding window counter by its definition: a sum per window, the weight as a fraction.
type windowOracle map[limit.Micros]int64

func (o windowOracle) admits(l limit.Limit, now limit.Micros, cost int64) bool {
	start := now - now%l.Window
	used := big.NewRat(int64(l.Window-(now-start)), int64(l.Window))
	used.Mul(used, new(big.Rat).SetInt64(o[start-l.Window]))
	used.Add(used, new(big.Rat).SetInt64(o[start]+cost))
	if used.Cmp(new(big.Rat).SetInt64(l.Count)) > 0 {
		return false
	}
	o[start] += cost
	return true
}

// randomLimit spreads over all magnitudes that validation lets pass.
func randomLimit(r *rand.Rand) limit.Limit {
	for {
		l := limit.Limit{
			Count:  1 + r.Int64N(1<<(1+r.IntN(53))),
			Window: limit.MinWindow + limit.Micros(r.Int64N(1<<(10+r.IntN(35)))),
		}
		if r.IntN(2) == 0 {
			l.Burst = 1 + r.Int64N(1<<(1+r.IntN(53)))
		}
		if l.Check() == nil {
			return l
		}
	}
}

// advance moves time by something that matters to l: nothing, a microsecond, about one call, about a window.
func advance(r *rand.Rand, l limit.Limit, now limit.Micros) limit.Micros {
	switch r.IntN(5) {
	case 0:
		return now
	case 1:
		return now + 1
	case 2:
		return now + limit.Micros(r.Int64N(2*int64(l.Window)/min(l.Count, int64(l.Window))+1))
	case 3:
		return now + l.Window - now%l.Window - limit.Micros(r.Int64N(2))
	default:
		return now + limit.Micros(r.Int64N(int64(l.Window)+1))
	}
}

func randomCost(r *rand.Rand, quota int64) int64 {
	switch r.IntN(4) {
	case 0:
		return 1
	case 1:
		return max(1, quota-r.Int64N(2))
	default:
		return 1 + r.Int64N(max(1, quota))
	}
}

func TestEveryCallAnswersAsTheDefinition(t *testing.T) {
	r := newRand(t)
	calls, admitted := 0, 0
	for range 3000 {
		l := randomLimit(r)
		now := limit.Micros(1 + r.Int64N(1<<50))
		bucket := limit.FullTokenBucket(l, now)
		bucketDef := &bucketOracle{level: new(big.Rat).SetInt64(l.Capacity()), last: now}
		window, windowDef := limit.SlidingWindow{}, windowOracle{}
		for range 40 {
			now = advance(r, l, now)
			var d limit.Decision
			cost := randomCost(r, l.Capacity())
			bucket, d = bucket.Take(l, now, cost)
			if want := bucketDef.admits(l, now, cost); d.Allowed != want {
				t.Fatalf("token bucket %+v at %d cost %d: allowed %v, by definition %v", l, now, cost, d.Allowed, want)
			}
			cost = randomCost(r, l.Count)
			window, d = window.Take(l, now, cost)
			if want := windowDef.admits(l, now, cost); d.Allowed != want {
				t.Fatalf("sliding window %+v at %d cost %d: allowed %v, by definition %v", l, now, cost, d.Allowed, want)
			}
			calls++
			if d.Allowed {
				admitted++
			}
		}
	}
	if admitted == 0 || admitted == calls {
		t.Fatalf("%d of %d calls admitted: the traffic shows nothing", admitted, calls)
	}
}

// checkRetry asserts the promise of RetryAfter on one state: not a microsecond early, not one late.
func checkRetry(t *testing.T, name string, c counter, l limit.Limit, now limit.Micros, cost int64) {
	t.Helper()
	before := c.copy()
	peeked := c.peek(l, now, cost)
	d := c.take(l, now, cost)
	if d.Remaining < 0 || d.Remaining > d.Limit || d.ResetAfter < 0 {
		t.Fatalf("%s %+v at %d cost %d: %+v", name, l, now, cost, d)
	}
	if peeked.Allowed != d.Allowed || peeked.RetryAfter != d.RetryAfter {
		t.Fatalf("%s %+v at %d cost %d: peek says %+v, take %+v", name, l, now, cost, peeked, d)
	}
	switch {
	case d.Allowed && d.RetryAfter != 0:
		t.Fatalf("%s: allowed with a wait: %+v", name, d)
	case !d.Allowed && cost >= 0 && max(cost, 1) <= d.Limit:
		if d.RetryAfter <= 0 || d.RetryAfter == limit.Never {
			t.Fatalf("%s %+v at %d cost %d: refused without a time to retry: %+v", name, l, now, cost, d)
		}
		early, onTime := c.copy(), c.copy()
		if got := early.take(l, now+d.RetryAfter-1, cost); got.Allowed {
			t.Fatalf("%s %+v state %+v at %d cost %d: admitted 1 µs before RetryAfter %d", name, l, before, now, cost, d.RetryAfter)
		}
		if got := onTime.take(l, now+d.RetryAfter, cost); !got.Allowed {
			t.Fatalf("%s %+v state %+v at %d cost %d: refused at RetryAfter %d: %+v", name, l, before, now, cost, d.RetryAfter, got)
		}
	case !d.Allowed && d.RetryAfter != limit.Never:
		t.Fatalf("%s %+v cost %d can never pass, but RetryAfter is %d", name, l, cost, d.RetryAfter)
	}
}

func TestRetryAfterIsExactToTheMicrosecond(t *testing.T) {
	r := newRand(t)
	for range 20_000 {
		l := randomLimit(r)
		now := limit.Micros(r.Int64N(1 << 50))
		// Any state at all: what a store, a changed limit or a stepped clock may leave behind.
		last := now + limit.Micros(r.Int64N(4*int64(l.Window))) - 2*l.Window
		bucket := limit.TokenBucket{Tokens: r.Int64N(2*l.Capacity() + 1), Part: r.Int64N(int64(l.Window)), Last: last}
		checkRetry(t, "token bucket", &bucketCounter{bucket}, l, now, randomCost(r, l.Capacity()))
		window := limit.SlidingWindow{Start: last - last%l.Window, Current: r.Int64N(2*l.Count + 1), Previous: r.Int64N(2*l.Count + 1)}
		checkRetry(t, "sliding window", &windowCounter{window}, l, now, randomCost(r, l.Count))
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add(int64(10), int64(1_000_000), int64(0), int64(3), int64(5), int64(-7), int64(100), int64(1))
	f.Add(limit.MaxCount, int64(limit.MaxWindow), limit.MaxCount, limit.MaxCount, int64(1), int64(1<<60), int64(1)<<61, limit.MaxCount)
	f.Fuzz(func(t *testing.T, count, window, burst, a, b, last, now, cost int64) {
		l := limit.Limit{Count: count, Window: limit.Micros(window), Burst: burst}
		if l.Check() != nil {
			return
		}
		const reach = 1 << 61 // instants beyond 73,000 years saturate instead of being exact
		if last < -reach || last > reach || now < -reach || now > reach {
			return
		}
		checkRetry(t, "token bucket", &bucketCounter{limit.TokenBucket{Tokens: a, Part: b, Last: limit.Micros(last)}}, l, limit.Micros(now), cost)
		start := limit.Micros(last) - limit.Micros(last)%l.Window
		checkRetry(t, "sliding window", &windowCounter{limit.SlidingWindow{Start: start, Current: a, Previous: b}}, l, limit.Micros(now), cost)
	})
}
