package peers

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/store/storetest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

const keyCount = 100_000

// key is a counter's name as each of them takes it.
type key struct {
	counter *limiter.Counter
	text    string
}

// asked are n keys at random, in the order that they are asked for. Their names lie side by side in that order, as a
// name that was just made is in the cache: what is measured is the limiter's own memory.
func asked(n int, r *rand.Rand) (counters []limiter.Counter, texts []string) {
	var all strings.Builder
	for range n {
		c := storetest.Name(r.IntN(keyCount))
		counters = append(counters, c)
		all.Write(c[:])
	}
	for i := range n {
		texts = append(texts, all.String()[i*limiter.CounterSize:][:limiter.CounterSize])
	}
	return counters, texts
}

func keyOf(n int) key {
	c := storetest.Name(n)
	return key{&c, string(c[:])}
}

// caller makes calls, one at a time, of a limiter that other callers share.
type caller func(k key) (allowed bool)

// peer is a limiter of count calls an hour a key. Each decides by its own clock: what a service pays for a decision.
type peer struct {
	name string
	// open makes one, with a function that makes its callers.
	open func(t testing.TB, count int) func() caller
}

var peers = []peer{
	weir(rule.SlidingWindow), weir(rule.FixedWindow), weir(rule.TokenBucket), weir(rule.GCRA),
	{"go-limiter", func(t testing.TB, count int) func() caller {
		store, err := memorystore.New(&memorystore.Config{Tokens: uint64(count), Interval: time.Hour, InitialAlloc: keyCount})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close(context.Background()) })
		return shared(goLimiter(store))
	}},
	{"throttled", func(t testing.TB, count int) func() caller {
		store, err := memstore.NewCtx(2 * keyCount)
		if err != nil {
			t.Fatal(err)
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerHour(count), MaxBurst: count - 1})
		if err != nil {
			t.Fatal(err)
		}
		return shared(func(k key) bool {
			limited, _, err := l.RateLimitCtx(context.Background(), k.text, 1)
			return err == nil && !limited
		})
	}},
	{"ulule", func(t testing.TB, count int) func() caller {
		l := ulule.New(ululememory.NewStore(), ulule.Rate{Period: time.Hour, Limit: int64(count)})
		return shared(func(k key) bool {
			c, err := l.Get(context.Background(), k.text)
			return err == nil && !c.Reached
		})
	}},
	// As in many services: one map of x/time/rate limiters under one lock.
	{"x-time-rate-map", func(t testing.TB, count int) func() caller {
		var mu sync.Mutex
		limiters := map[string]*rate.Limiter{}
		return shared(func(k key) bool {
			mu.Lock()
			l, ok := limiters[k.text]
			if !ok {
				l = rate.NewLimiter(rate.Limit(float64(count)/3600), count)
				limiters[k.text] = l
			}
			mu.Unlock()
			return l.Allow()
		})
	}},
}

func shared(c caller) func() caller { return func() caller { return c } }

func goLimiter(s golimiter.Store) caller {
	return func(k key) bool {
		_, _, _, ok, err := s.Take(context.Background(), k.text)
		return err == nil && ok
	}
}

func weir(a rule.Algorithm) peer {
	return peer{"weir-" + a.String(), func(t testing.TB, count int) func() caller {
		s := memory.New(2*keyCount, nil)
		l := limit.Limit{Count: int64(count), Window: limit.Hour}
		began := time.Now()
		base := limit.Micros(began.UnixMicro())
		return func() caller {
			call := limiter.Call{Charges: make([]limiter.Charge, 1), Outcomes: make([]limiter.Outcome, 1)}
			return func(k key) bool {
				call.Now = base + limit.Micros(time.Since(began).Microseconds()) // as the origin reads it
				call.Charges[0] = limiter.Charge{Counter: *k.counter, Algorithm: a, Limit: l, Cost: 1}
				return s.Take(context.Background(), &call) == nil && call.Outcomes[0].Status == limiter.Admitted
			}
		}
	}}
}

// What is compared must limit, and tell its keys apart.
func TestEachLimits(t *testing.T) {
	for _, p := range peers {
		call := p.open(t, 3)()
		for n := range 3 {
			if !call(keyOf(0)) {
				t.Errorf("%s refuses call %d of 3", p.name, n+1)
			}
		}
		if call(keyOf(0)) {
			t.Errorf("%s admits a fourth call of 3", p.name)
		}
		if !call(keyOf(1)) {
			t.Errorf("%s refuses another key", p.name)
		}
	}
}
