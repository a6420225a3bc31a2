package valkey

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
	"github.com/weirproject/weir/shared/rule"
)

// random are n random bytes.
func random(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// foreignValues are what others may have written under a counter's name, each in place of the counter.
func foreignValues(server func(key string) *valkeytest.Server, key func(limiter.Charge) string) map[string]func(*testing.T, limiter.Store, limiter.Charge) {
	all := map[string]func(*testing.T, limiter.Store, limiter.Charge){}
	for kind, words := range map[string][]string{
		"text": {"SET", "50 apples"}, "nothing": {"SET", ""}, "a list": {"LPUSH", "x"}, "a hash": {"HSET", "a", "b"}, "a set": {"SADD", "a"},
		"a sorted set": {"ZADD", "1", "a"}, "a stream": {"XADD", "*", "a", "b"},
	} {
		all[kind] = foreignValue(server, key, words...)
	}
	return all
}

func foreignValue(server func(key string) *valkeytest.Server, key func(limiter.Charge) string, words ...string) func(*testing.T, limiter.Store, limiter.Charge) {
	return func(t *testing.T, _ limiter.Store, c limiter.Charge) {
		key := key(c)
		server(key).Do("DEL", key)
		if err := server(key).Do(append([]string{words[0], key}, words[1:]...)...).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// ownerOf is the server of a cluster that has a key's slot.
func ownerOf(c *valkeytest.Cluster) func(key string) *valkeytest.Server {
	return func(key string) *valkeytest.Server { return c.Nodes[c.Owner(c.SlotOf(key))] }
}

// byName is where the function keeps a counter.
func byName(c limiter.Charge) string { return string(c.Counter[:]) }

func TestForeignValuesAreToldAndExpireAndDisturbNobody(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	r := newRand(t)
	now := 400_000 * limit.Hour
	l := limit.Limit{Count: 5, Window: limit.Minute}
	n := 0
	for _, a := range algorithms {
		other := algorithms[(int(a)+1)%len(algorithms)]
		for what, words := range map[string][]string{
			"a number": {"SET", "", "50"}, "nothing": {"SET", "", ""}, "a list": {"LPUSH", "", "x"}, "a hash": {"HSET", "", "a", "b"},
			"a set": {"SADD", "", "a"}, "a sorted set": {"ZADD", "", "1", "a"}, "a stream": {"XADD", "", "*", "a", "b"},
			"24 random bytes": {"SET", "", random(r, 24)}, "ones": {"SET", "", strings.Repeat("\xff", 28)},
			"text": {"SET", "", "twenty-eight bytes of a text"}, "long": {"SET", "", strings.Repeat("abcdefgh", 10_000)},
			"another algorithm's": {"SET", "", string(bytesOf(other, field{7, 1}, field{7, 1}, field{7, 1}, field{6, int64(l.Window)}))[:sizeOf(a)]},
		} {
			n++
			key := keyOf(n)
			words[1] = key
			if err := f.do(words...).Error(); err != nil {
				t.Fatal(err)
			}
			foreign, bystander, shadow := chargeOf(n, a, l, 1), chargeOf(1000+n, other, l, 1), chargeOf(2000+n, a, l, 1)
			shadow.Shadow = true
			before := f.dump(key)
			want(t, f.take(now, bystander, foreign, shadow), "admitted foreign admitted+")
			want(t, f.peek(now, foreign), "foreign")
			f.refundOne(now, foreign, now)
			if f.dump(key) != before {
				t.Errorf("%s, %s: it was touched", a, what)
			}
			if ttl := f.ttl(key); ttl <= 119_000 || ttl > 120_000 {
				t.Errorf("%s, %s: TTL %d ms, want two windows", a, what, ttl)
			}
			if f.exists(keyOf(1000 + n)) {
				t.Errorf("%s, %s: a bystander was charged", a, what)
			}
			foreign.Shadow = true
			want(t, f.take(now, bystander, foreign), "admitted+ foreign")
			// One that has an expiry keeps it.
			if err := f.do("PEXPIRE", key, strconv.Itoa(spare+5_000)).Error(); err != nil {
				t.Fatal(err)
			}
			f.take(now, foreign)
			if ttl := f.ttl(key); ttl > 5_000 {
				t.Errorf("%s, %s: TTL %d ms, want the 5,000 it had", a, what, ttl)
			}
		}
	}
}

// What others wrote under the name of a call's ID is nobody's word that the call was admitted, nor that it is being decided: it
// is charged, and remembered from there on.
func TestForeignValuesUnderAnIDAreNobodys(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	server.User("weir", "secret", leastRules...)
	for _, strategy := range []Strategy{Function, Commands} {
		s := start(t, Options{Addrs: []string{server.Addr}, Credentials: user("weir", "secret"), Strategy: strategy})
		l := limit.Limit{Count: 5, Window: 24 * limit.Hour}
		for n, words := range [][]string{
			{"SET", "50 apples"}, {"SET", ""}, {"SET", "12"}, {"SET", "1x"}, {"SET", "-1"}, {"SET", strconv.FormatInt(limit.MaxCount, 10)}, {"SET", "9999999999999999999999"},
			{"SET", strings.Repeat("1", 1<<20)}, {"LPUSH", "x"}, {"HSET", "a", "b"}, {"SADD", "a"}, {"ZADD", "1", "a"}, {"XADD", "*", "a", "b"},
		} {
			c := &limiter.Call{ID: limiter.CallID{byte(n + 1), byte(strategy)}, Charges: []limiter.Charge{charge(100*int(strategy)+n, l, 2)}, Outcomes: make([]limiter.Outcome, 1)}
			key := idName(&c.Charges[0].Counter, c.ID)
			if err := server.Do(append([]string{words[0], key}, words[1:]...)...).Error(); err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("%s, %s %.12s", strategy, words[0], words[1])
			for i := range 2 {
				within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				err := s.Take(within, c)
				cancel()
				if o := c.Outcomes[0]; err != nil || o.Status != limiter.Admitted || o.Charged != (i == 0) {
					t.Errorf("%s, call %d: %+v, %v", what, i+1, o, err)
				}
			}
			if ttl, err := server.Do("PTTL", key).AsInt64(); err != nil || ttl <= 0 || ttl > 60_000 {
				t.Errorf("%s: kept for %d ms, %v", what, ttl, err)
			}
		}
	}
}

// A value of any length costs those who meet it no more than another: calls that share their connection with one that does are
// answered, and by strategy commands nobody waits for the value to come.
func TestALargeForeignValueHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	for _, strategy := range []Strategy{Function, Commands} {
		s := start(t, Options{Addrs: []string{server.Addr}, Strategy: strategy})
		l := limit.Limit{Count: 1000, Window: 24 * limit.Hour}
		spoilt := charge(10*int(strategy), l, 1)
		peek, bystander := spoilt, charge(10*int(strategy)+1, l, 1)
		peek.Cost = 0
		keys := []string{byName(spoilt)}
		if strategy == Commands {
			now := s.topology.only.now()
			keys = []string{windowKey(spoilt, now), windowKey(spoilt, now-l.Window)}
		}
		for _, key := range keys {
			// One byte more than a reply may have.
			if err := server.Do("SETRANGE", key, strconv.Itoa(maxMessage), "x").Error(); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for range 50 {
				for _, c := range []limiter.Charge{spoilt, peek, bystander} {
					all.Go(func() {
						o := make([]limiter.Outcome, 1)
						err := s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{c}, Outcomes: o})
						want := limiter.Foreign
						if c.Counter == bystander.Counter {
							want = limiter.Admitted
						}
						if err != nil || o[0].Status != want {
							t.Errorf("%s, %s: %+v, %v", strategy, key, o[0], err)
						}
					})
				}
			}
			all.Wait()
			server.Do("DEL", key)
		}
	}
}

// Whatever is stored is answered: by package limit's own answer where it has the form of a counter, else as foreign. An
// error of the function fails the test, in send.
func TestNoStoredBytesRaise(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	r := newRand(t)
	rounds := 2000
	if testing.Short() {
		rounds = 500
	}
	statusesSeen := map[limiter.Status]int{}
	for n := range rounds {
		a := algorithms[n%len(algorithms)]
		l := randomLimit(r, a)
		if r.IntN(10) == 0 {
			l.Count = 0
		}
		now := limit.Micros(r.Int64N(1 << 52))
		c := chargeOf(n%50, a, l, magnitude(r, limit.MaxCount))
		value := damaged(r, a, l, now)
		if err := f.do("SET", keyOf(n%50), value).Error(); err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprintf("%s %+v at %d cost %d of %q", a, l, now, c.Cost, value)
		o := f.take(now, c)[0]
		statusesSeen[o.Status]++
		if o.Status <= limiter.Refused && a != rule.SlidingLog {
			got := limittest.Of(stored(t, a, value)).Take(l, now, c.Cost)
			if got != o.Decision || got.Allowed != (o.Status == limiter.Admitted) {
				t.Fatalf("%s:\nserver %+v\n limit %+v", what, o, got)
			}
		}
		f.refundOne(now, c, now-limit.Micros(r.Int64N(int64(l.Window))))
		f.peek(now, c)
		if r.IntN(2) == 0 {
			f.take(now+limit.Micros(r.Int64N(int64(l.Window))), c)
		}
	}
	t.Logf("%v", statusesSeen)
	if statusesSeen[limiter.Admitted] < rounds/20 || statusesSeen[limiter.Refused] < rounds/20 || statusesSeen[limiter.Foreign] < rounds/20 {
		t.Errorf("%v: the values show too little", statusesSeen)
	}
}

// damaged is a value with fields at random, near the truth or anywhere.
func damaged(r *rand.Rand, a rule.Algorithm, l limit.Limit, now limit.Micros) string {
	count := func() int64 {
		switch r.IntN(12) {
		case 0:
			return int64(r.Uint64())
		case 1:
			return limit.MaxCount
		case 2:
			return 0
		case 3:
			return l.Count
		}
		return r.Int64N(max(1, l.Capacity())) + 1
	}
	instant := func() int64 {
		switch r.IntN(8) {
		case 0:
			return int64(r.Uint64())
		case 1:
			return limit.MaxCount
		case 2:
			return -limit.MaxCount
		}
		return int64(now) + r.Int64N(4*int64(l.Window)) - 2*int64(l.Window)
	}
	part := func(below int64) int64 {
		if r.IntN(6) == 0 {
			return int64(r.Uint64())
		}
		return r.Int64N(max(1, below))
	}
	var b []byte
	switch a {
	case rule.TokenBucket, rule.LeakyBucket, rule.LeakyQueue:
		b = bytesOf(a, field{7, count()}, field{6, part(int64(l.Window))}, field{7, instant()}, field{7, count()})
	case rule.GCRA:
		c := count()
		b = bytesOf(a, field{7, instant()}, field{7, part(c)}, field{7, c}, field{6, []int64{int64(l.Window), part(int64(l.Window) * 2)}[r.IntN(2)]})
	case rule.SlidingWindow:
		b = bytesOf(a, field{7, instant()}, field{7, count()}, field{7, count()})
	case rule.FixedWindow:
		b = bytesOf(a, field{7, instant()}, field{7, count()})
	case rule.SlidingLog:
		n := 1 + r.Int64N(40)
		first, base := r.Int64N(n), r.Int64N(1<<16)
		at := int64(now) - r.Int64N(2*int64(l.Window))
		last := at + r.Int64N(2*int64(l.Window))
		firstSum, lastSum := base+1+r.Int64N(5), base+6+r.Int64N(1+l.Count)
		if first == n-1 {
			at, firstSum = last, lastSum
		}
		b = bytesOf(a, field{2, first}, field{2, n}, field{2, base}, field{7, at}, field{2, firstSum}, field{7, last}, field{2, lastSum})
		for range n - 1 {
			b = append(b, bytesOf(0, field{7, instant()}, field{2, int64(r.Uint32())})[1:]...)
		}
		for range r.IntN(3) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
	}
	switch r.IntN(10) {
	case 0:
		b = b[:r.IntN(len(b)+1)]
	case 1:
		b = append(b, random(r, 1+r.IntN(20))...)
	case 2:
		return random(r, len(b))
	}
	return string(b)
}
