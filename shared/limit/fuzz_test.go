package limit_test

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
)

// reach bounds the instants of fuzzed states: beyond 73,000 years they are held at the end, not exact.
const reach = 1 << 61

func within(instants ...int64) bool {
	for _, at := range instants {
		if at < -reach || at > reach {
			return false
		}
	}
	return true
}

// FuzzAnswers holds every answer from any state to what it promises.
func FuzzAnswers(f *testing.F) {
	f.Add(int64(10), int64(1_000_000), int64(0), int64(3), int64(5), int64(9), int64(-7), int64(100), int64(1))
	f.Add(limit.MaxCount, int64(limit.MaxWindow), limit.MaxCount, limit.MaxCount, int64(1), limit.MaxCount, int64(1<<60), int64(1)<<61, limit.MaxCount)
	f.Fuzz(func(t *testing.T, count, window, burst, a, b, c, last, now, cost int64) {
		l := limit.Limit{Count: count, Window: limit.Micros(window), Burst: burst}
		if l.Check() != nil || !within(last, now) {
			return
		}
		at := limit.Micros(last)
		log, _ := limit.SlidingLogOf([]int64{last, a, last + b%window, c, last + c%window, b})
		for algorithm, state := range map[string]any{
			"token-bucket":   limit.TokenBucket{Tokens: a, Part: b, Last: at},
			"gcra":           limit.GCRA{Spent: at, Part: a, Count: b, Window: limit.Micros(c)},
			"sliding-window": limit.SlidingWindow{Start: at, Current: a, Previous: b},
			"fixed-window":   limit.FixedWindow{Start: at, Used: a},
			"leaky-bucket":   limit.LeakyBucket{Level: a, Part: b, Last: at},
			"leaky-queue":    limit.LeakyQueue{Level: a, Part: b, Last: at},
			"sliding-log":    log,
		} {
			if algorithm == "sliding-log" && l.CheckLog() != nil {
				continue
			}
			checkAnswer(t, algorithm, limittest.Of(state), l, limit.Micros(now), cost)
			if algorithm == "gcra" {
				checkAnswer(t, algorithm, limittest.Of(limit.GCRA{Spent: at, Part: a, Count: count, Window: l.Window}), l, limit.Micros(now), cost)
			}
		}
	})
}

// FuzzDefinition plays one made-up life of a counter against the algorithm's definition.
func FuzzDefinition(f *testing.F) {
	for algorithm := range limittest.Algorithms {
		f.Add(uint8(algorithm), uint64(1), []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\xff\xfe\x80\x7f"))
	}
	f.Fuzz(func(t *testing.T, which uint8, seed uint64, life []byte) {
		algorithm := limittest.Algorithms[int(which)%len(limittest.Algorithms)]
		r := rand.New(rand.NewPCG(seed, seed))
		l := randomLimit(r, algorithm)
		now := limit.Micros(1 + r.Int64N(1<<50))
		c, o := limittest.New(algorithm, l, now, 0), oracles[algorithm](l, now)
		for _, b := range life[:min(len(life), 64)] {
			if b&1 == 1 {
				now = randomStep(r, l, now)
			}
			now += limit.Micros(b >> 4)
			cost := randomCost(r, quota(algorithm, l))
			if b&2 == 2 {
				cost = max(1, c.Peek(l, now, 0).Remaining+int64(b>>2&1)) // at, and just beyond, what there is
			}
			if cost > quota(algorithm, l) {
				continue // never, which no definition speaks of
			}
			asDefined(t, algorithm, c, o, l, now, cost)
			for i, read := range c.Recoded() {
				if !reflect.DeepEqual(read.State(), c.State()) {
					t.Fatalf("%s, encoding %d: wrote %+v, read %+v", algorithm, i, c.State(), read.State())
				}
			}
			if b&8 == 8 {
				c = c.Recoded()[int(b>>2&1)]
			}
		}
	})
}

// FuzzDamage feeds any bytes to every reader: nothing panics, what is read is written again as it was, and answers stay in
// their range whatever the clock, the refunds and the limit are.
func FuzzDamage(f *testing.F) {
	f.Add([]byte{}, int64(10), int64(1_000_000), int64(0), int64(1), int64(1))
	f.Add(make([]byte, 24), int64(10), int64(1_000_000), int64(5), int64(1)<<60, int64(1))
	f.Add(make([]byte, 32), int64(10), int64(1_000_000), int64(5), int64(1)<<60, int64(1))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x00\x00\x00\x00\x00\x00\x80\xff\xff\xff\xff\xff\xff\xff\xff"), int64(1), int64(1000), int64(0), int64(-1), int64(3))
	f.Fuzz(func(t *testing.T, b []byte, count, window, burst, now, cost int64) {
		l := limit.Limit{Count: count, Window: limit.Micros(window), Burst: burst}
		if l.Check() != nil || !within(now) {
			return
		}
		var states []any
		if s, ok := limit.ReadTokenBucket(b); ok {
			rate, _ := limit.ReadGCRA(b)
			meter, _ := limit.ReadLeakyBucket(b)
			queue, _ := limit.ReadLeakyQueue(b)
			states = append(states, s, rate, meter, queue)
			for _, again := range [][]byte{s.Append(nil), rate.Append(nil), meter.Append(nil), queue.Append(nil)} {
				if string(again) != string(b) {
					t.Fatalf("read %x, wrote %x", b, again)
				}
			}
		}
		if s, ok := limit.ReadSlidingWindow(b); ok {
			states = append(states, s)
			if again := s.Append(nil); string(again) != string(b) {
				t.Fatalf("read %x, wrote %x", b, again)
			}
		}
		if s, ok := limit.ReadFixedWindow(b); ok {
			states = append(states, s)
			if again := s.Append(nil); string(again) != string(b) {
				t.Fatalf("read %x, wrote %x", b, again)
			}
		}
		if s, ok := limit.ReadSlidingLog(b); ok {
			states = append(states, s)
			v := make([]int64, len(b)/8)
			for i := range v {
				v[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
			}
			if same, ok := limit.SlidingLogOf(v); !ok || string(same.Append(nil)) != string(s.Append(nil)) {
				t.Fatalf("the same log as bytes %x, as integers %x", s.Append(nil), same.Append(nil))
			}
		}
		for _, state := range states {
			c := limittest.Of(state)
			for _, at := range []int64{now, now / 2, now + window} {
				d := c.Take(l, limit.Micros(at), cost)
				if d.Remaining < 0 || d.Remaining > d.Limit || d.RetryAfter < 0 || d.ResetAfter < 0 || d.Hold < 0 || d.Allowed != (d.RetryAfter == 0) {
					t.Fatalf("%T %+v with %+v at %d cost %d: %+v", state, state, l, at, cost, d)
				}
				c.Refund(l, limit.Micros(at), cost/2, limit.Micros(at)+d.Hold)
				if after := c.Peek(l, limit.Micros(at), 0); after.Remaining < d.Remaining {
					t.Fatalf("%T %+v with %+v at %d: a refund took from %d to %d", state, state, l, at, d.Remaining, after.Remaining)
				}
			}
		}
	})
}
