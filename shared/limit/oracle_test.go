package limit_test

import (
	"flag"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
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

// An oracle is an algorithm by its definition, slow and obvious, for clocks that never go back. A call is either charged
// or changes nothing; left is what could be spent after it; hold is for queues.
type oracle interface {
	call(l limit.Limit, now limit.Micros, cost int64) (admitted bool, left, hold *big.Rat)
}

var oracles = map[string]func(l limit.Limit, now limit.Micros) oracle{
	"token-bucket":   func(l limit.Limit, now limit.Micros) oracle { return &bucketOracle{whole(l.Capacity()), now} },
	"gcra":           func(limit.Limit, limit.Micros) oracle { return &gcraOracle{} },
	"sliding-window": func(limit.Limit, limit.Micros) oracle { return windowOracle{} },
	"fixed-window":   func(limit.Limit, limit.Micros) oracle { return fixedOracle{} },
	"leaky-bucket":   func(l limit.Limit, now limit.Micros) oracle { return &meterOracle{whole(0), now} },
	"leaky-queue":    func(l limit.Limit, now limit.Micros) oracle { return &queueOracle{whole(0)} },
	"sliding-log":    func(limit.Limit, limit.Micros) oracle { return &logOracle{} },
}

func whole(n int64) *big.Rat          { return new(big.Rat).SetInt64(n) }
func plus(a, b *big.Rat) *big.Rat     { return new(big.Rat).Add(a, b) }
func minus(a, b *big.Rat) *big.Rat    { return new(big.Rat).Sub(a, b) }
func times(a, b *big.Rat) *big.Rat    { return new(big.Rat).Mul(a, b) }
func less(a, b *big.Rat) bool         { return a.Cmp(b) < 0 }
func rate(l limit.Limit) *big.Rat     { return big.NewRat(l.Count, int64(l.Window)) }
func instant(m limit.Micros) *big.Rat { return whole(int64(m)) }

func floor(r *big.Rat) int64 {
	q := new(big.Int)
	q.DivMod(r.Num(), r.Denom(), new(big.Int))
	return q.Int64()
}

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }

// bucketOracle is a level that is a fraction, refilled continuously.
type bucketOracle struct {
	level *big.Rat
	last  limit.Micros
}

func (o *bucketOracle) call(l limit.Limit, now limit.Micros, cost int64) (bool, *big.Rat, *big.Rat) {
	o.level = plus(o.level, times(rate(l), instant(now-o.last)))
	o.last = now
	if full := whole(l.Capacity()); less(full, o.level) {
		o.level = full
	}
	if less(o.level, whole(cost)) {
		return false, o.level, nil
	}
	o.level = minus(o.level, whole(cost))
	return true, o.level, nil
}

// gcraOracle is virtual scheduling as in ITU-T I.371: a theoretical arrival time, the emission interval, the burst offset.
// A changed limit keeps what could be spent at the instant of the change.
type gcraOracle struct {
	tat   *big.Rat
	limit limit.Limit
}

func (o *gcraOracle) call(l limit.Limit, now limit.Micros, cost int64) (bool, *big.Rat, *big.Rat) {
	interval := new(big.Rat).Inv(rate(l))
	offset := times(interval, whole(l.Capacity()))
	if o.tat == nil {
		o.tat = instant(now)
	} else if o.limit != l {
		level := o.left(now)
		o.tat = minus(plus(instant(now), offset), times(level, interval))
	}
	o.limit = l
	if less(o.tat, instant(now)) {
		o.tat = instant(now)
	}
	next := plus(o.tat, times(interval, whole(cost)))
	if less(instant(now), minus(next, offset)) {
		return false, o.left(now), nil
	}
	o.tat = next
	return true, o.left(now), nil
}

func (o *gcraOracle) left(now limit.Micros) *big.Rat {
	return minus(whole(o.limit.Capacity()), times(minus(o.tat, instant(now)), rate(o.limit)))
}

// meterOracle is a level that drains and must not pass the rim.
type meterOracle struct {
	level *big.Rat
	last  limit.Micros
}

func (o *meterOracle) call(l limit.Limit, now limit.Micros, cost int64) (bool, *big.Rat, *big.Rat) {
	if most := times(instant(limit.MaxRefill), rate(l)); less(whole(l.Capacity()), o.level) && less(most, o.level) {
		o.level = whole(floor(most)) // a limit lowered so far that the drain would pass MaxRefill
	}
	o.level = minus(o.level, times(rate(l), instant(now-o.last)))
	o.last = now
	if o.level.Sign() < 0 {
		o.level = whole(0)
	}
	room := minus(whole(l.Capacity()), o.level)
	if less(room, whole(cost)) {
		return false, room, nil
	}
	o.level = plus(o.level, whole(cost))
	return true, minus(room, whole(cost)), nil
}

// queueOracle is a server that takes Window/Count for each unit of cost, one call after the other: free is when it has
// served all.
type queueOracle struct{ free *big.Rat }

func (o *queueOracle) call(l limit.Limit, now limit.Micros, cost int64) (bool, *big.Rat, *big.Rat) {
	starts := o.free
	if less(starts, instant(now)) {
		starts = instant(now)
	}
	waiting := times(minus(starts, instant(now)), rate(l))
	room := minus(whole(l.Capacity()), waiting)
	if less(room, whole(cost)) {
		return false, room, nil
	}
	o.free = plus(starts, times(whole(cost), new(big.Rat).Inv(rate(l))))
	return true, minus(room, whole(cost)), minus(starts, instant(now))
}

// windowOracle is a sum per window, the weight as a fraction.
type windowOracle map[limit.Micros]int64

func (o windowOracle) call(l limit.Limit, now limit.Micros, cost int64) (bool, *big.Rat, *big.Rat) {
	start := now - now%l.Window
	used := times(big.NewRat(int64(l.Window-(now-start)), int64(l.Window)), whole(o[start-l.Window]))
	left := minus(whole(l.Count), plus(used, whole(o[start])))
	if less(left, whole(cost)) {
		return false, left, nil
	}
	o[start] += cost
	return true, minus(left, whole(cost)), nil
}

// fixedOracle is a sum per window.
type fixedOracle map[limit.Micros]int64

func (o fixedOracle) call(l limit.Limit, now limit.Micros, cost int64) (bool, *big.Rat, *big.Rat) {
	left := l.Count - o[now/l.Window]
	if cost > left {
		return false, whole(left), nil
	}
	o[now/l.Window] += cost
	return true, whole(left - cost), nil
}

// logOracle is every call ever admitted.
type logOracle struct{ log []limit.LogEntry }

func (o *logOracle) call(l limit.Limit, now limit.Micros, cost int64) (bool, *big.Rat, *big.Rat) {
	left := l.Count
	for _, e := range o.log {
		if now-e.At < l.Window {
			left -= e.Cost
		}
	}
	if cost > left {
		return false, whole(left), nil
	}
	o.log = append(o.log, limit.LogEntry{At: now, Cost: cost})
	return true, whole(left - cost), nil
}

// randomLimit spreads over all magnitudes that validation lets pass for the algorithm.
func randomLimit(r *rand.Rand, algorithm string) limit.Limit {
	top := 53
	if algorithm == "sliding-log" {
		top = 13
	}
	for {
		l := limit.Limit{
			Count:  1 + r.Int64N(1<<(1+r.IntN(top))),
			Window: limit.MinWindow + limit.Micros(r.Int64N(1<<(10+r.IntN(35)))),
		}
		if r.IntN(2) == 0 {
			l.Burst = 1 + r.Int64N(1<<(1+r.IntN(53)))
		}
		if l.Check() == nil && (algorithm != "sliding-log" || l.CheckLog() == nil) {
			return l
		}
	}
}

// randomStep moves time by something that matters to l: nothing, a microsecond, about one call, about a window.
func randomStep(r *rand.Rand, l limit.Limit, now limit.Micros) limit.Micros {
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

// quota is what can be spent at once.
func quota(algorithm string, l limit.Limit) int64 {
	switch algorithm {
	case "sliding-window", "fixed-window", "sliding-log":
		return l.Count
	}
	return l.Capacity()
}

// asDefined makes one call of a counter and its oracle, and compares all that the definition says.
func asDefined(t *testing.T, algorithm string, c limittest.Counter, o oracle, l limit.Limit, now limit.Micros, cost int64) bool {
	t.Helper()
	before := c.Clone().State()
	d := c.Take(l, now, cost)
	admitted, left, hold := o.call(l, now, cost)
	want := limit.Decision{Allowed: admitted, Limit: quota(algorithm, l), Remaining: max(0, floor(left)),
		RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter}
	if hold != nil {
		want.Hold = limit.Micros(ceil(hold))
	}
	if d != want {
		t.Fatalf("%s %+v state %+v at %d cost %d:\n got %+v\nwant %+v by definition", algorithm, l, before, now, cost, d, want)
	}
	return admitted
}

func TestEveryCallAnswersAsTheDefinition(t *testing.T) {
	r := newRand(t)
	for _, algorithm := range limittest.Algorithms {
		calls, admitted, changes := 0, 0, 0
		for range 500 {
			l := randomLimit(r, algorithm)
			now := limit.Micros(1 + r.Int64N(1<<50))
			if r.IntN(10) == 0 {
				now += 50 * 366 * limit.Day
			}
			c, o := limittest.New(algorithm, l, now, 0), oracles[algorithm](l, now)
			for range 40 {
				now = randomStep(r, l, now)
				calls++
				if !asDefined(t, algorithm, c, o, l, now, randomCost(r, quota(algorithm, l))) {
					continue
				}
				admitted++
				// A limit that changes right after a call: nothing is earned in between, so every definition agrees on
				// the level that it keeps. A queue's oracle knows times only.
				if r.IntN(8) == 0 && algorithm != "leaky-queue" {
					changed := randomLimit(r, algorithm)
					changed.Window = l.Window
					if changed.Check() == nil {
						l = changed
						changes++
						asDefined(t, algorithm, c, o, l, now, randomCost(r, quota(algorithm, l)))
					}
				}
			}
		}
		if admitted < calls/20 || admitted > calls*19/20 || changes == 0 && algorithm != "leaky-queue" {
			t.Errorf("%s: %d of %d calls admitted, %d changes: the traffic shows too little", algorithm, admitted, calls, changes)
		}
	}
}

// The three views of a bucket are one: not only verdicts, every field of every answer.
func TestBucketMeterAndSchedulerAgreeCallForCall(t *testing.T) {
	r := newRand(t)
	for range 2000 {
		l := randomLimit(r, "token-bucket")
		now := limit.Micros(1 + r.Int64N(1<<50))
		bucket, scheduler, meter := limit.FullTokenBucket(l, now), limit.FullGCRA(l, now), limit.LeakyBucket{Last: now}
		late := r.IntN(2) == 0 // a scheduler does not know how late a clock is
		for range 60 {
			if late && r.IntN(3) == 0 {
				now -= limit.Micros(r.Int64N(3 * int64(l.Window)))
			}
			now = randomStep(r, l, now)
			cost := randomCost(r, l.Capacity())
			if r.IntN(10) == 0 {
				cost := 1 + r.Int64N(l.Capacity())
				bucket, scheduler, meter = bucket.Refund(l, now, cost), scheduler.Refund(l, now, cost), meter.Refund(l, now, cost)
			}
			var want, d limit.Decision
			bucket, want = bucket.Take(l, now, cost)
			if meter, d = meter.Take(l, now, cost); d != want {
				t.Fatalf("%+v at %d cost %d: token bucket %+v, leaky bucket %+v", l, now, cost, want, d)
			}
			if scheduler, d = scheduler.Take(l, now, cost); !late && d != want {
				t.Fatalf("%+v at %d cost %d: token bucket %+v, GCRA %+v", l, now, cost, want, d)
			}
		}
	}
}
