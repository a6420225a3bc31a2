package valkey

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
	"github.com/weirproject/weir/shared/rule"
)

// The function and package limit must be one algorithm at every magnitude, over limits that change, clocks that step and
// charges that are given back: in what they answer, in the state that they keep, and in how long they keep it.
func TestTheFunctionIsTheSameAlgorithm(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	r := newRand(t)
	steps := 40
	if testing.Short() {
		steps = 15
	}
	n := 0
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			f := &live{t: t, client: f.client, library: f.library}
			var seen tally
			for range 60 {
				n++
				f.differ(r, n, a, steps, &seen)
			}
			t.Logf("%+v", seen)
			if least := 5 * steps; seen.admitted < least || seen.refused < least || seen.refunded < least/4 || seen.stepped < least/10 {
				t.Errorf("%+v: the traffic shows too little", seen)
			}
		})
	}
}

type tally struct{ admitted, refused, never, peeked, refunded, stepped int }

// differ plays steps random calls on one counter and on package limit.
func (f *live) differ(r *rand.Rand, n int, a rule.Algorithm, steps int, seen *tally) {
	t := f.t
	t.Helper()
	l := randomLimit(r, a)
	now := limit.Micros(1<<50 + r.Int64N(1<<51))
	c := chargeOf(n, a, l, 0)
	if a == rule.FixedWindow {
		c.Offset = limit.Micros(r.Int64N(int64(l.Window)))
	}
	key := keyOf(n)
	var model limittest.Counter
	type charged struct {
		cost int64
		at   limit.Micros
	}
	var charges []charged
	for range steps {
		now = randomNow(r, now, l)
		if r.IntN(8) == 0 {
			l = changed(r, a, l)
		}
		exists := f.exists(key)
		if !exists {
			model = limittest.New(a.String(), l, now, c.Offset) // as good as any that has expired
		}
		left := model.Peek(l, now, 1).Remaining
		c.Limit, c.Cost = l, randomCost(r, l, left)
		at := fmt.Sprintf("%s %+v offset %d at %d cost %d of %+v", a, l, c.Offset, now, c.Cost, model.State())
		if len(charges) > 0 && r.IntN(4) == 0 {
			i := r.IntN(len(charges))
			if r.IntN(2) == 0 {
				i = len(charges) - 1
			}
			back := charges[i]
			charges = append(charges[:i], charges[i+1:]...)
			if r.IntN(3) == 0 {
				back.cost = 1 + r.Int64N(back.cost)
			}
			c.Cost = back.cost
			f.refundOne(now, c, back.at)
			if exists {
				model.Refund(l, now, back.cost, back.at)
				f.same(key, a, l, now, model, fmt.Sprintf("refund %+v: %s", back, at))
				seen.refunded++
			}
			continue
		}
		if r.IntN(6) == 0 {
			before := f.dump(key)
			got, want := f.peek(now, c)[0], model.Peek(l, now, c.Cost)
			if got.Decision != want || (got.Status == limiter.Admitted) != want.Allowed || got.Charged {
				t.Fatalf("peek %s:\nserver %+v\n limit %+v", at, got, want)
			}
			if f.dump(key) != before {
				t.Fatalf("peek %s: it wrote", at)
			}
			seen.peeked++
			continue
		}
		if c.Cost == 0 {
			c.Cost = 1
		}
		before := model.Clone()
		sent := time.Now().UnixMilli()
		got, want := f.take(now, c)[0], model.Take(l, now, c.Cost)
		if got.Decision != want || got.Status > limiter.Refused || (got.Status == limiter.Admitted) != want.Allowed ||
			got.Charged != want.Allowed || got.Made != (want.Allowed && !exists) {
			t.Fatalf("take %s:\nserver %+v\n limit %+v, existed %v", at, got, want, exists)
		}
		next := model.Peek(l, now, 1)
		if want.Allowed && (got.Next != next || got.AskAgain != next.RetryAfter || got.At != now+want.Hold) ||
			!want.Allowed && got.AskAgain != want.RetryAfter {
			t.Fatalf("take %s: server %+v, limit goes on with %+v", at, got, next)
		}
		switch {
		case want.Allowed:
			seen.admitted++
			charges = append(charges, charged{c.Cost, got.At})
		case want.RetryAfter == limit.Never:
			seen.never++
		default:
			seen.refused++
		}
		if !want.Allowed && fmt.Sprint(before.State()) != fmt.Sprint(model.State()) {
			seen.stepped++
		}
		if want.Allowed {
			f.lives(key, max(1, (int64(model.ResetAfter(l, now))+999)/1000), sent, at)
		}
		if want.Allowed || exists {
			f.same(key, a, l, now, model, "take "+at)
		}
	}
}

// same fails if the key does not hold the model's state, for as long as that differs from a fresh one.
func (f *live) same(key string, a rule.Algorithm, l limit.Limit, now limit.Micros, model limittest.Counter, what string) {
	f.t.Helper()
	fresh := model.ResetAfter(l, now)
	value, err := f.do("GET", key).ToString()
	if valkey.IsValkeyNil(err) {
		if fresh > 0 {
			f.t.Fatalf("%s: it is gone %d µs too early", what, fresh)
		}
		return
	}
	if got, want := fmt.Sprint(stored(f.t, a, value)), fmt.Sprint(model.State()); got != want {
		f.t.Fatalf("%s:\nserver keeps %s\n limit keeps %s", what, got, want)
	}
}

// lives fails if a key that was written since the instant sent is not kept for so many ms.
func (f *live) lives(key string, ms, sent int64, what string) {
	f.t.Helper()
	until, err := f.do("PEXPIRETIME", key).AsInt64()
	if err != nil {
		f.t.Fatal(err)
	}
	if f.library == withClock {
		until -= spare
	}
	if until < sent+ms || until > time.Now().UnixMilli()+ms {
		f.t.Fatalf("%s: it is kept for %d ms from the call on, want %d", what, until-sent, ms)
	}
}

// stored is the state in a value.
func stored(t testing.TB, a rule.Algorithm, v string) any {
	t.Helper()
	if a != rule.SlidingLog && len(v) != sizeOf(a) || v[0] != 248+byte(a) {
		t.Fatalf("%s: %q", a, v)
	}
	switch a {
	case rule.TokenBucket:
		return tokenBucketOf(v, limit.Limit{}, 0)
	case rule.GCRA:
		return gcraOf(v, limit.Limit{}, 0)
	case rule.SlidingWindow:
		return slidingWindowOf(v)
	case rule.FixedWindow:
		return fixedWindowOf(v)
	case rule.LeakyBucket:
		return leakyBucketOf(v)
	case rule.LeakyQueue:
		return limit.LeakyQueue(leakyBucketOf(v))
	}
	return entriesOf(v)
}

// entriesOf are the instant and cost of each entry of a stored log, in turn.
func entriesOf(v string) []int64 {
	u16 := func(i int) int64 { return int64(v[i]) | int64(v[i+1])<<8 }
	first, n, sum := u16(1), u16(3), u16(5)
	entries := []int64{}
	for i := first; i < n; i++ {
		at := 25 + 9*int(i)
		if i == n-1 {
			at = 16
		}
		next := u16(at + 7)
		entries = append(entries, le7(v[at:]), (next-sum)&0xffff)
		sum = next
	}
	return entries
}

func (f *live) exists(key string) bool {
	f.t.Helper()
	n, err := f.do("EXISTS", key).AsInt64()
	if err != nil {
		f.t.Fatal(err)
	}
	return n == 1
}

// magnitude is a random number from 1 to most, of any size.
func magnitude(r *rand.Rand, most int64) int64 {
	return 1 + r.Int64N(min(most, 1<<r.IntN(54)))
}

func randomLimit(r *rand.Rand, a rule.Algorithm) limit.Limit {
	for {
		l := limit.Limit{Count: magnitude(r, limit.MaxCount), Window: limit.MinWindow + limit.Micros(magnitude(r, int64(limit.MaxWindow-limit.MinWindow)))}
		switch r.IntN(8) {
		case 0:
			l.Count = limit.MaxCount
		case 1:
			l.Window = limit.MaxWindow
		case 2:
			l.Window = limit.MinWindow
		case 3, 4:
			l = limit.Limit{Count: 1 + r.Int64N(100), Window: limit.Minute}
		}
		if a.HasBurst() && r.IntN(2) == 0 {
			l.Burst = magnitude(r, limit.MaxCount)
		}
		if a == rule.SlidingLog {
			l.Count = min(l.Count, 1+r.Int64N(limit.MaxLogCount))
		}
		if l.Check() == nil {
			return l
		}
	}
}

// changed is a limit that a rule may have next. A store's counters are named by their window, but what the state can carry
// over is carried over all the same.
func changed(r *rand.Rand, a rule.Algorithm, l limit.Limit) limit.Limit {
	for {
		next := l
		switch r.IntN(8) {
		case 0:
			next = randomLimit(r, a)
			next.Window = l.Window
		case 1, 2:
			next.Count = max(1, l.Count/2)
		case 3, 4:
			next.Count = min(2*l.Count+1, limit.MaxCount)
		case 5:
			if a.HasBurst() {
				next.Burst = magnitude(r, limit.MaxCount)
			}
		case 6:
			next.Count = 0
		case 7:
			if r.IntN(4) == 0 {
				next.Window = randomLimit(r, a).Window
			}
		}
		if a == rule.SlidingLog {
			next.Count = min(next.Count, limit.MaxLogCount)
		}
		if next.Check() == nil {
			return next
		}
	}
}

func randomNow(r *rand.Rand, now limit.Micros, l limit.Limit) limit.Micros {
	unit := int64(l.Window)
	if l.Count > 0 && r.IntN(2) == 0 {
		unit = unit/l.Count + 1
	}
	switch r.IntN(12) {
	case 0:
		now -= limit.Micros(r.Int64N(4 * int64(l.Window)))
	case 1:
		now -= limit.Micros(r.Int64N(1 << 51))
	case 2:
		now += limit.Micros(r.Int64N(4 * int64(l.Window)))
	case 3:
		now -= limit.Micros(r.Int64N(unit))
	case 4, 5:
	default:
		now += limit.Micros(r.Int64N(2 * unit))
	}
	return min(max(now, 0), 1<<53-1)
}

func randomCost(r *rand.Rand, l limit.Limit, left int64) int64 {
	switch r.IntN(8) {
	case 0:
		return 0
	case 1, 2:
		return left
	case 3, 4:
		return min(left+1, limit.MaxCount)
	case 5:
		return magnitude(r, limit.MaxCount)
	case 6:
		return 1 + r.Int64N(max(1, l.Capacity()))
	}
	return 1
}
