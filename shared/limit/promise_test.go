package limit_test

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
)

// randomCounter is in any state at all: what a store, a changed limit or a stepped clock may leave behind.
func randomCounter(r *rand.Rand, algorithm string, l limit.Limit, now limit.Micros) limittest.Counter {
	last := now + limit.Micros(r.Int64N(4*int64(l.Window))) - 2*l.Window
	level := func(top int64) int64 { return r.Int64N(2*top + 1) }
	switch algorithm {
	case "token-bucket":
		return limittest.Of(limit.TokenBucket{Tokens: level(l.Capacity()), Part: r.Int64N(int64(l.Window)), Last: last})
	case "gcra":
		by := l
		if r.IntN(2) == 0 {
			by = randomLimit(r, algorithm)
		}
		return limittest.Of(limit.GCRA{Spent: last, Part: r.Int64N(by.Count), Count: by.Count, Window: by.Window})
	case "sliding-window":
		if r.IntN(4) > 0 {
			last -= last % l.Window
		}
		return limittest.Of(limit.SlidingWindow{Start: last, Current: level(l.Count), Previous: level(l.Count)})
	case "fixed-window":
		if r.IntN(4) > 0 {
			last -= last % l.Window
		}
		return limittest.Of(limit.FixedWindow{Start: last, Used: level(l.Count)})
	case "leaky-bucket":
		return limittest.Of(limit.LeakyBucket{Level: level(l.Capacity()), Part: r.Int64N(int64(l.Window)), Last: last})
	case "leaky-queue":
		return limittest.Of(limit.LeakyQueue{Level: level(l.Capacity()), Part: r.Int64N(int64(l.Window)), Last: last})
	case "sliding-log":
		var log []int64
		for at := last - l.Window; at <= last && len(log) < 40; at += limit.Micros(r.Int64N(int64(l.Window)/8 + 2)) {
			log = append(log, int64(at), 1+r.Int64N(l.Count))
		}
		s, _ := limit.SlidingLogOf(log)
		return limittest.Of(s)
	}
	return nil
}

// checkAnswer makes one call and asserts what its answer promises: RetryAfter and ResetAfter not a microsecond early, not
// one late, and a peek that says the same.
func checkAnswer(t *testing.T, algorithm string, c limittest.Counter, l limit.Limit, now limit.Micros, cost int64) {
	t.Helper()
	before := c.Clone()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s %+v state %+v at %d cost %d: "+format, append([]any{algorithm, l, before.State(), now, cost}, args...)...)
	}
	peeked := c.Peek(l, now, cost)
	d := c.Take(l, now, cost)
	if d.Remaining < 0 || d.Remaining > d.Limit || d.ResetAfter < 0 || d.Hold < 0 || d.Limit != quota(algorithm, l) {
		fail("%+v", d)
	}
	if peeked.Allowed != d.Allowed || peeked.RetryAfter != d.RetryAfter || peeked.Hold != d.Hold {
		fail("peek says %+v, take %+v", peeked, d)
	}
	if d.Allowed && cost > 0 && d.Remaining != peeked.Remaining-cost {
		fail("remaining %d before, %d after", peeked.Remaining, d.Remaining)
	}
	asked := max(cost, 1)
	switch {
	case d.Allowed && d.RetryAfter != 0:
		fail("allowed with a wait: %+v", d)
	case !d.Allowed && cost >= 0 && asked <= d.Limit:
		if d.RetryAfter <= 0 || d.RetryAfter == limit.Never || d.Remaining >= asked {
			fail("refused without a time to retry: %+v", d)
		}
		if got := c.Clone().Take(l, now+d.RetryAfter-1, cost); got.Allowed {
			fail("admitted 1 µs before RetryAfter %d", d.RetryAfter)
		}
		if got := c.Clone().Take(l, now+d.RetryAfter, cost); !got.Allowed {
			fail("refused at RetryAfter %d: %+v", d.RetryAfter, got)
		}
	case !d.Allowed && d.RetryAfter != limit.Never:
		fail("can never pass, but RetryAfter is %d", d.RetryAfter)
	}
	reset := c.ResetAfter(l, now)
	if reset != d.ResetAfter {
		fail("reset after %d in the answer, %d in the state", d.ResetAfter, reset)
	}
	if reset > 0 && reset != limit.Never {
		if early, due := c.ResetAfter(l, now+reset-1), c.ResetAfter(l, now+reset); early != 1 || due != 0 {
			fail("reset after %d, but %d a µs before and %d then", reset, early, due)
		}
		if full := c.Peek(l, now+reset, d.Limit); d.Limit > 0 && (!full.Allowed || full.Remaining != d.Limit) {
			fail("at its reset the counter is not a fresh one: %+v", full)
		}
	}
}

func TestAnswersAreExactToTheMicrosecondFromAnyState(t *testing.T) {
	r := newRand(t)
	for _, algorithm := range limittest.Algorithms {
		for range 20_000 {
			l := randomLimit(r, algorithm)
			now := limit.Micros(r.Int64N(1 << 50))
			c := randomCounter(r, algorithm, l, now)
			cost := randomCost(r, quota(algorithm, l))
			if r.IntN(10) == 0 {
				cost = []int64{0, -1, l.Capacity() + 1, l.Count + 1, limit.MaxCount, 1<<63 - 1, -1 << 63}[r.IntN(7)]
			}
			checkAnswer(t, algorithm, c, l, now, cost)
		}
	}
}

// In any interval t a bucket admits cost ≤ B + rate·t, a log ≤ Count a window, and the other windows ≤ twice that.
func TestNoIntervalAdmitsMoreThanItsBound(t *testing.T) {
	r := newRand(t)
	type admission struct {
		at   limit.Micros
		cost int64
	}
	for _, algorithm := range limittest.Algorithms {
		for range 50 {
			l := randomLimit(r, algorithm)
			now := limit.Micros(1 + r.Int64N(1<<50))
			c := limittest.New(algorithm, l, now, 0)
			var log []admission
			for range 90 {
				now = randomStep(r, l, now)
				cost := randomCost(r, quota(algorithm, l))
				if r.IntN(2) == 0 {
					cost = max(1, c.Peek(l, now, 0).Remaining) // greedy: all there is
				}
				if d := c.Take(l, now, cost); d.Allowed {
					log = append(log, admission{now + d.Hold, cost})
				}
			}
			for i := range log {
				sum := int64(0)
				for _, a := range log[i:] {
					t0, t1 := log[i].at, a.at
					var bound *big.Rat
					switch algorithm {
					case "leaky-queue": // what has left before this one, at a µs either way of rounding
						bound = times(rate(l), instant(t1-t0+1))
						if whole(sum).Cmp(bound) > 0 {
							t.Fatalf("%s %+v: %d left in the %d µs before %d", algorithm, l, sum, t1-t0, t1)
						}
						sum += a.cost
						continue
					case "sliding-log":
						if t1-t0 >= l.Window {
							continue
						}
						bound = whole(l.Count)
					case "sliding-window", "fixed-window":
						if t1-t0 >= l.Window {
							continue
						}
						bound = whole(2 * l.Count)
					default:
						bound = plus(whole(l.Capacity()), times(rate(l), instant(t1-t0)))
					}
					if sum += a.cost; whole(sum).Cmp(bound) > 0 {
						t.Fatalf("%s %+v: %d admitted from %d to %d, bound %s", algorithm, l, sum, t0, t1, bound.FloatString(3))
					}
				}
			}
		}
	}
}

func TestLongRunRateIsExact(t *testing.T) {
	l := limit.Limit{Count: 997, Window: limit.Second}
	for _, algorithm := range []string{"token-bucket", "gcra", "leaky-bucket", "leaky-queue"} {
		for _, step := range []limit.Micros{1, 7, 999, 1003, 250_001} {
			end := 1000 * limit.Second
			if step < 100 {
				end = 2 * limit.Second
			}
			c, admitted := limittest.New(algorithm, l, 0, 0), int64(0)
			// Asking every few µs must lose nothing to rounding: drain, then count what the time brings.
			for now := limit.Micros(0); now <= end; now += step {
				for c.Take(l, now, 1).Allowed {
					admitted++
				}
			}
			want := 997 + 997*int64(end/limit.Second)
			if admitted > want || admitted < want-int64(step)*997/1_000_000-1 {
				t.Errorf("%s asked every %d µs for %d s: admitted %d, want %d", algorithm, step, end/limit.Second, admitted, want)
			}
		}
	}
	// Windows admit a count for each of theirs.
	for _, algorithm := range []string{"sliding-window", "fixed-window", "sliding-log"} {
		c, admitted := limittest.New(algorithm, l, 0, 0), int64(0)
		for now := limit.Micros(0); now < 1000*limit.Second; now += 997 {
			if c.Take(l, now, 1).Allowed {
				admitted++
			}
		}
		if admitted > 997_000 || admitted < 996_000 {
			t.Errorf("%s: admitted %d in 1000 s, want 997,000 or up to one a window less", algorithm, admitted)
		}
	}
}

// Case 1: a caller whose clock is 1 s behind, alternating with one on time, must not move `last` back.
func TestTwoClocksOneSecondApartDoNotMultiplyTheRate(t *testing.T) {
	l := limit.Limit{Count: 10, Window: limit.Second}
	for algorithm, least := range map[string]int{
		"token-bucket": 35, "leaky-bucket": 35, "leaky-queue": 35, "gcra": 30, "fixed-window": 30, "sliding-window": 20, "sliding-log": 30,
	} {
		c, admitted := limittest.New(algorithm, l, 100*limit.Second, 0), 0
		for i := range 450 {
			now := 100*limit.Second + limit.Micros(i)*limit.Second/150
			if i%2 == 1 {
				now -= limit.Second
			}
			if c.Take(l, now, 1).Allowed {
				admitted++
			}
		}
		if admitted < least || admitted > 40 {
			t.Errorf("%s: admitted %d in 3 s at 10/s, want %d to 40", algorithm, admitted, least)
		}
	}
}

// Clocks that jump back and forth at random: nothing is earned but by time that passes, and nobody waits for longer than
// the step allows for, however far it was.
func TestClocksThatJumpEarnNothingAndLockNobodyOut(t *testing.T) {
	r := newRand(t)
	for _, algorithm := range limittest.Algorithms {
		for range 400 {
			l := randomLimit(r, algorithm)
			now := 100*366*limit.Day + limit.Micros(r.Int64N(1<<50))
			c := limittest.New(algorithm, l, now, 0)
			full := l.Window
			if quota(algorithm, l) == l.Capacity() {
				full = limit.Micros(ceil(times(whole(l.Capacity()), new(big.Rat).Inv(rate(l)))))
			}
			full = max(full, l.Window)
			admitted, forward := whole(0), limit.Micros(0)
			for range 80 {
				was := now
				switch r.IntN(6) {
				case 0:
					now -= limit.Micros(r.Int64N(int64(full) + 1))
				case 1:
					now -= limit.Micros(r.Int64N(4*int64(full) + 1))
				case 2:
					now += limit.Micros(r.Int64N(int64(full) + 1))
				default:
					now = randomStep(r, l, now)
				}
				now = max(now, 1)
				forward += max(0, now-was)
				cost := randomCost(r, quota(algorithm, l))
				d := c.Take(l, now, cost)
				if d.Allowed {
					admitted = plus(admitted, whole(cost))
				} else if d.RetryAfter > 3*full {
					t.Fatalf("%s %+v at %d: told to wait %d µs, more than three times %d", algorithm, l, now, d.RetryAfter, full)
				}
			}
			bound := plus(whole(l.Capacity()), times(rate(l), instant(forward)))
			switch algorithm {
			case "token-bucket", "gcra", "leaky-bucket", "leaky-queue":
				if bound.Cmp(admitted) < 0 {
					t.Fatalf("%s %+v: admitted %s, though only %d µs passed", algorithm, l, admitted.FloatString(0), forward)
				}
			}
		}
	}
}

func TestARaisedLimitHasRoomAtOnceALoweredOneDrains(t *testing.T) {
	low, high := limit.Limit{Count: 10, Window: limit.Minute}, limit.Limit{Count: 100, Window: limit.Minute}
	now := limit.Hour
	for _, algorithm := range limittest.Algorithms {
		keeps := algorithm == "token-bucket" || algorithm == "gcra" // a level of tokens is not refilled by a change
		c := limittest.New(algorithm, low, now, 0)
		c.Take(low, now, 10)
		d := c.Take(high, now, 90)
		if d.Allowed == keeps || keeps && d.RetryAfter != 54*limit.Second {
			t.Errorf("%s, raised from 10 used of 10 to 100: cost 90 gets %+v", algorithm, d)
		}
		if keeps { // at the new rate at once
			if d = c.Take(high, now+600*limit.Millisecond, 1); !d.Allowed {
				t.Errorf("%s, raised: 600 ms later %+v", algorithm, d)
			}
		}
		c = limittest.New(algorithm, high, now, 0)
		c.Take(high, now, 60)
		for range 3 {
			d = c.Take(low, now, 1)
		}
		if d.Allowed && !keeps || d.Remaining > 10 || d.Limit != 10 {
			t.Errorf("%s, lowered from 60 used of 100 to 10: %+v", algorithm, d)
		}
		if keeps && d.Remaining != 7 {
			t.Errorf("%s, lowered with 40 left: clamped to 10, less 3 calls, but %d remain", algorithm, d.Remaining)
		}
	}
}

// Time that passed under one rate earns by that rate, whatever comes after: a change is no refill.
func TestTheTimeBeforeAChangeCountsAtTheOldRate(t *testing.T) {
	slow, fast := limit.Limit{Count: 1, Window: limit.Hour, Burst: 100}, limit.Limit{Count: 3600, Window: limit.Hour, Burst: 100}
	for _, algorithm := range []string{"token-bucket", "gcra", "leaky-bucket", "leaky-queue"} {
		c, now := limittest.New(algorithm, slow, limit.Day, 0), limit.Day
		c.Take(slow, now, 100)
		now += 90 * limit.Minute
		if d := c.Take(fast, now, 2); d.Allowed || d.Remaining != 1 || d.RetryAfter != 500*limit.Millisecond {
			t.Errorf("%s, raised after 90 minutes at 1 an hour: %+v, want one and a half earned", algorithm, d)
		}
		// The refused call has seen the new rate: from there on it counts.
		if d := c.Take(fast, now+500*limit.Millisecond, 2); !d.Allowed {
			t.Errorf("%s, half a second at 1 a second later: %+v", algorithm, d)
		}
		c = limittest.New(algorithm, fast, limit.Day, 0)
		c.Take(fast, limit.Day, 100)
		if d := c.Take(slow, limit.Day+10*limit.Second, 10); !d.Allowed || d.Remaining != 0 {
			t.Errorf("%s, lowered after 10 s at 1 a second: %+v, want all ten of them", algorithm, d)
		}
	}
}

func TestASuspendedTenantIsDeniedAndComesBack(t *testing.T) {
	off, on := limit.Limit{Window: limit.Second}, limit.Limit{Count: 10, Window: limit.Second}
	for _, algorithm := range limittest.Algorithms {
		now := limit.Hour
		c := limittest.New(algorithm, on, now, 0)
		c.Take(on, now, 4)
		for _, cost := range []int64{0, 1, 5, limit.MaxCount, -1} {
			if d := c.Take(off, now, cost); d.Allowed || d.RetryAfter != limit.Never || d.Limit != 0 || d.Remaining != 0 {
				t.Errorf("%s: cost %d at limit 0 gets %+v", algorithm, cost, d)
			}
			if d := c.Peek(off, now, cost); d.Allowed || d.RetryAfter != limit.Never || c.ResetAfter(off, now) < 0 {
				t.Errorf("%s: peek %d at limit 0 gets %+v", algorithm, cost, d)
			}
		}
		if d := c.Clone().Take(on, now+limit.Second, 6); !d.Allowed {
			t.Errorf("%s: back in force a second later: %+v", algorithm, d)
		}
		c.Refund(off, now, 1, now)
		if d := c.Peek(on, now, 1); d.Remaining > 7 {
			t.Errorf("%s: 4 used, 1 given back at limit 0: %+v", algorithm, d)
		}
		if d := c.Take(off, now, 1); d.Allowed {
			t.Errorf("%s: a refund at limit 0 lets a call in: %+v", algorithm, d)
		}
	}
}

// What is owed to the fraction of a microsecond is rounded up when another rate takes over.
func TestAChangedRateForgivesNothing(t *testing.T) {
	owing := limit.GCRA{Spent: limit.Hour, Part: 5, Count: 10, Window: limit.Second}
	if d := owing.Peek(limit.Limit{Count: 20, Window: limit.Second}, limit.Hour, 1); d.RetryAfter != 50_001 {
		t.Errorf("got %+v, want a wait of 50,001 µs", d)
	}
	holding := limit.GCRA{Spent: limit.Hour - 1, Count: 1, Window: 3 * limit.Millisecond} // 1/3000
	if d := holding.Peek(limit.Limit{Count: 1, Window: limit.Millisecond}, limit.Hour, 1); d.RetryAfter != limit.Millisecond {
		t.Errorf("got %+v, want a wait of a millisecond", d)
	}
}

func TestLogsStayBounded(t *testing.T) {
	l := limit.Limit{Count: 5000, Window: limit.Second}
	if l.CheckLog() != nil || (limit.Limit{Count: limit.MaxLogCount + 1, Window: limit.Second}).CheckLog() != limit.ErrLogCount ||
		(limit.Limit{Count: 1}).CheckLog() != limit.ErrWindow {
		t.Error("CheckLog does not hold its bounds")
	}
	for _, count := range []int64{5000, limit.MaxCount} {
		l.Count = count
		s, longest := limit.SlidingLog{}, 0
		for now := limit.Micros(0); now < 10*limit.Second; now += 37 { // 27,000 a second, most of them refused
			s, _ = s.Take(l, now, 1)
			longest = max(longest, s.Len())
		}
		if longest != int(min(count, limit.MaxLogCount)) {
			t.Errorf("count %d: up to %d entries", count, longest)
		}
	}
}
