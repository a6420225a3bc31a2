package peers

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/weirproject/weir/shared/limit"
)

// perSecond lets every call of these benchmarks through, so that all limiters do the same work.
const (
	perSecond = 100_000_000
	keyCount  = 100_000
)

// A limiter decides one call of a key, on its own clock.
type limiter func(key string) (allowed bool)

// shards are counters by key, as all of these need them; what has no store of its own is measured on them.
type shards[S any] struct {
	seed  maphash.Seed
	shard [256]struct {
		sync.Mutex
		counters map[string]*S
		_        [40]byte // a cache line each
	}
}

func newShards[S any]() *shards[S] {
	s := &shards[S]{seed: maphash.MakeSeed()}
	for i := range s.shard {
		s.shard[i].counters = map[string]*S{}
	}
	return s
}

func (s *shards[S]) with(key string, fresh func() S, decide func(*S) bool) bool {
	shard := &s.shard[maphash.String(s.seed, key)%256]
	shard.Lock()
	defer shard.Unlock()
	c, ok := shard.counters[key]
	if !ok {
		c = new(S)
		*c = fresh()
		shard.counters[key] = c
	}
	return decide(c)
}

func weir[S any](fresh func(limit.Limit, limit.Micros) S, take func(S, limit.Limit, limit.Micros, int64) (S, limit.Decision)) limiter {
	counters, l := newShards[S](), limit.Limit{Count: perSecond, Window: limit.Second}
	return func(key string) bool {
		now := limit.Micros(time.Now().UnixMicro())
		return counters.with(key, func() S { return fresh(l, now) }, func(s *S) bool {
			next, d := take(*s, l, now, 1)
			*s = next
			return d.Allowed
		})
	}
}

var limiters = []struct {
	name string
	make func(b testing.TB) limiter
}{
	{"weir-token-bucket", func(testing.TB) limiter { return weir(limit.FullTokenBucket, limit.TokenBucket.Take) }},
	{"weir-gcra", func(testing.TB) limiter { return weir(limit.FullGCRA, limit.GCRA.Take) }},
	{"weir-sliding-window", func(testing.TB) limiter {
		return weir(func(limit.Limit, limit.Micros) (s limit.SlidingWindow) { return s }, limit.SlidingWindow.Take)
	}},
	{"x-time-rate", func(testing.TB) limiter {
		counters := newShards[*rate.Limiter]()
		return func(key string) bool {
			return counters.with(key, func() *rate.Limiter { return rate.NewLimiter(perSecond, perSecond) }, func(l **rate.Limiter) bool { return (*l).Allow() })
		}
	}},
	{"throttled", func(b testing.TB) limiter {
		store, err := memstore.NewCtx(2 * keyCount)
		if err != nil {
			b.Fatal(err)
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(perSecond), MaxBurst: perSecond})
		if err != nil {
			b.Fatal(err)
		}
		return func(key string) bool {
			limited, _, err := l.RateLimitCtx(context.Background(), key, 1)
			return err == nil && !limited
		}
	}},
	{"httprate", func(testing.TB) limiter {
		l := httprate.NewRateLimiter(perSecond, time.Second)
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		writers := sync.Pool{New: func() any { return httptest.NewRecorder() }}
		return func(key string) bool {
			w := writers.Get().(*httptest.ResponseRecorder)
			defer writers.Put(w)
			return !l.OnLimit(w, request, key)
		}
	}},
	{"ulule", func(testing.TB) limiter {
		l := ulule.New(memory.NewStore(), ulule.Rate{Period: time.Second, Limit: perSecond})
		return func(key string) bool {
			c, err := l.Get(context.Background(), key)
			return err == nil && !c.Reached
		}
	}},
}

// keys are 65,536 names in the order that they are asked for.
func keys(next func(r *rand.Rand) uint64) []string {
	r := rand.New(rand.NewPCG(1, 2))
	order := make([]string, 1<<16)
	for i := range order {
		order[i] = fmt.Sprintf("w1:3f2a:counter:%06d", next(r))
	}
	return order
}

func zipf(r *rand.Rand) uint64 { return rand.NewZipf(r, 1.1, 1, keyCount-1).Uint64() }

func BenchmarkLimiters(b *testing.B) {
	loads := []struct {
		name     string
		parallel bool
		keys     []string
	}{
		{"serial", false, keys(func(*rand.Rand) uint64 { return 0 })},
		{"hot-key", true, keys(func(*rand.Rand) uint64 { return 0 })},
		{"100k-keys", true, keys(func(r *rand.Rand) uint64 { return r.Uint64N(keyCount) })},
		{"zipf", true, keys(zipf)},
	}
	for _, load := range loads {
		for _, l := range limiters {
			b.Run(load.name+"/"+l.name, func(b *testing.B) {
				b.ReportAllocs()
				allowed := l.make(b)
				for _, key := range load.keys {
					allowed(key) // counters exist
				}
				b.ResetTimer()
				var workers, refused atomic.Int64
				run := func(next func() bool) {
					i, n := int(workers.Add(1))*7919, int64(0)
					for next() {
						if i++; !allowed(load.keys[i%len(load.keys)]) {
							n++
						}
					}
					refused.Add(n)
				}
				if load.parallel {
					b.RunParallel(func(pb *testing.PB) { run(pb.Next) })
				} else {
					run(b.Loop)
				}
				// None is over its limit: some give up when two callers meet on one key.
				b.ReportMetric(float64(refused.Load())/float64(b.N), "refused/op")
			})
		}
	}
}

// What is compared must limit at all.
func TestEachLimiterTellsItsKeysApart(t *testing.T) {
	for _, l := range limiters {
		allowed := l.make(t)
		if !allowed("a") || !allowed("b") {
			t.Errorf("%s refuses at once", l.name)
		}
	}
}
