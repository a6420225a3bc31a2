package edge

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
)

func newKey(t testing.TB, seed uint64) string {
	t.Helper()
	key, err := keyfilter.Format{}.New(rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestOneBucketPerAddressWhateverItsForm(t *testing.T) {
	for name, addresses := range map[string][]string{
		"ports":         {"1.2.3.4:1000", "1.2.3.4:2000", "1.2.3.4"},
		"mapped":        {"1.2.3.4:1", "[::ffff:1.2.3.4]:1"},
		"one /64":       {"[2001:db8::1]:1", "[2001:db8::ffff:ffff]:1", "2001:db8::5%eth0"},
		"not addresses": {"", "/run/envoy.sock", "unknown", "garbage"},
	} {
		t.Run(name, func(t *testing.T) {
			e := worker(newSlots(), testRule(per(1, 10), per(1, 10)))
			allowed := 0
			for i := range 30 {
				if decide(e, from(addresses[i%len(addresses)], 0)).Allowed {
					allowed++
				}
			}
			if allowed != 10 {
				t.Errorf("%d of 30 admitted, want the burst of 10", allowed)
			}
		})
	}
}

func TestTenThousandAddressesOfOneSubscriberAreOneClient(t *testing.T) {
	e := worker(newSlots(), testRule(per(1, 10), per(1, 10)))
	allowed := 0
	for i := range 10_000 {
		if decide(e, from(fmt.Sprintf("[2001:db8:0:1::%x]:443", i), 0)).Allowed {
			allowed++
		}
	}
	if allowed != 10 {
		t.Errorf("%d admitted of one /64, want 10", allowed)
	}
	if !decide(e, from("[2001:db8:0:2::1]:443", 0)).Allowed {
		t.Error("another /64 of the same /32 pays for it")
	}
}

func TestCredentialsAnswerOneWay(t *testing.T) {
	good, forged := newKey(t, 1), newKey(t, 2)
	e := worker(newSlots(), gated(t, testRule(per(1000, 1000), per(1000, 1000)), good))
	for name, c := range map[string]struct {
		request Request
		class   Class
		code    header.Code
	}{
		"no key":                {Request{}, Anonymous, ""},
		"known":                 {Request{Key: []byte(good), HasKey: true}, Valid, ""},
		"never issued":          {Request{Key: []byte(forged), HasKey: true}, Anonymous, header.KeyUnknown},
		"empty":                 {Request{HasKey: true}, Anonymous, header.KeyMalformed},
		"spaces":                {Request{Key: []byte(good + " "), HasKey: true}, Anonymous, header.KeyMalformed},
		"one letter off":        {Request{Key: []byte(good[:len(good)-1] + "!"), HasKey: true}, Anonymous, header.KeyMalformed},
		"64 kB":                 {Request{Key: bytes.Repeat([]byte("k"), 64<<10), HasKey: true}, Anonymous, header.KeyMalformed},
		"two headers":           {Request{Key: []byte(good + "," + forged), HasKey: true}, Anonymous, header.KeyConflict},
		"two commas":            {Request{Key: []byte(",,"), HasKey: true}, Anonymous, header.KeyConflict},
		"bearer":                {Request{Authorization: []byte("Bearer " + good)}, Valid, ""},
		"bearer, other case":    {Request{Authorization: []byte("bEARER   " + good)}, Valid, ""},
		"bearer never issued":   {Request{Authorization: []byte("Bearer " + forged)}, Anonymous, header.KeyUnknown},
		"two bearers":           {Request{Authorization: []byte("Bearer " + good + ",Bearer " + forged)}, Anonymous, header.KeyConflict},
		"bearer cut short":      {Request{Authorization: []byte("Bearer wk_")}, Anonymous, header.KeyMalformed},
		"a user's token":        {Request{Authorization: []byte("Bearer eyJhbGciOi.e30.x")}, Anonymous, ""},
		"basic":                 {Request{Authorization: []byte("Basic d2tfOng=")}, Anonymous, ""},
		"scheme alone":          {Request{Authorization: []byte("Bearer")}, Anonymous, ""},
		"no scheme":             {Request{Authorization: []byte(good)}, Anonymous, ""},
		"key header goes first": {Request{Key: []byte(forged), HasKey: true, Authorization: []byte("Bearer " + good)}, Anonymous, header.KeyUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			c.request.Address = []byte(name) // no address: all of them share the default bucket
			v := decide(e, c.request)
			if v.Class != c.class || v.Code != c.code || v.Allowed != (c.code == "") {
				t.Errorf("got %+v, want class %v and code %q", v, c.class, c.code)
			}
		})
	}
}

func TestForgedKeysPayUntilTheyAreOverTheLimit(t *testing.T) {
	good, forged := newKey(t, 1), newKey(t, 2)
	e := worker(newSlots(), gated(t, testRule(per(1, 10), per(1, 20)), good))
	codes := map[header.Code]int{}
	for range 50 {
		codes[decide(e, Request{Address: []byte("1.2.3.4:1"), Key: []byte(forged), HasKey: true}).Code]++
	}
	if codes[header.KeyUnknown] != 10 || codes[header.RateLimited] != 40 {
		t.Errorf("got %v, want 10 unknown, then 40 over the limit", codes)
	}
	// The neighbour behind the same address has a key that works.
	for i := range 20 {
		if v := decide(e, Request{Address: []byte("1.2.3.4:2"), Key: []byte(good), HasKey: true}); !v.Allowed {
			t.Fatalf("known key refused at call %d: %+v", i, v)
		}
	}
}

func TestTwoKeysAtOnceChargeNobody(t *testing.T) {
	slots := newSlots()
	e := worker(slots, gated(t, testRule(per(1, 1), per(1, 1))))
	for range 5 {
		if v := decide(e, Request{Address: []byte("1.2.3.4:1"), Key: []byte("a,b"), HasKey: true}); v.Code != header.KeyConflict {
			t.Fatalf("got %+v", v)
		}
	}
	if slots.gets+slots.sets != 0 {
		t.Errorf("%d reads, %d writes of shared data", slots.gets, slots.sets)
	}
}

func TestWithoutABundleTheDefaultLimitsHold(t *testing.T) {
	e := New(newSlots(), testSeed)
	if _, ok := e.KeyHeader(); ok {
		t.Error("keys are looked at without a gate")
	}
	allowed := 0
	for range 10 * defaultBurst {
		if decide(e, Request{Address: []byte("1.2.3.4:1"), Key: []byte("any"), HasKey: true}).Allowed {
			allowed++
		}
	}
	if allowed != defaultBurst {
		t.Errorf("%d admitted at once, want %d", allowed, defaultBurst)
	}
}

func TestABundleWithoutARuleLimitsForgedKeysOnly(t *testing.T) {
	good := newKey(t, 1)
	e := worker(newSlots(), gated(t, bundle.Bundle{TableEntries: bundle.DefaultTableEntries}, good))
	for range 3 * defaultBurst {
		if v := decide(e, from("1.2.3.4:1", 0)); !v.Allowed {
			t.Fatalf("no rule, yet %+v", v)
		}
	}
	codes := map[header.Code]int{}
	for range 3 * defaultBurst {
		codes[decide(e, Request{Address: []byte("1.2.3.4:1"), Key: []byte(newKey(t, 2)), HasKey: true}).Code]++
	}
	if codes[header.KeyUnknown] != defaultBurst || codes[header.RateLimited] != 2*defaultBurst {
		t.Errorf("got %v", codes)
	}
}

func TestALimitOfZeroDeniesForGood(t *testing.T) {
	e := worker(newSlots(), testRule(limit.Limit{Window: limit.Second}, per(1, 1)))
	for now := limit.Micros(0); now < limit.Hour; now += limit.Minute {
		v := decide(e, from("1.2.3.4:1", now))
		if v.Code != header.RateLimited || v.Decision.RetryAfter != limit.Never {
			t.Fatalf("at %d: %+v", now, v)
		}
	}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	good, forged := newKey(t, 1), newKey(t, 2)
	e := worker(&flatSlots{}, gated(t, testRule(per(100, 1000), per(100, 1000)), good))
	requests := []Request{
		from("1.2.3.4:80", 0), from("[2001:db8::1]:80", 0), from("garbage", 0),
		{Address: []byte("1.2.3.4:80"), Key: []byte(good), HasKey: true},
		{Address: []byte("1.2.3.4:80"), Key: []byte(forged), HasKey: true},
		{Address: []byte("1.2.3.4:80"), Authorization: []byte("Bearer " + good)},
		{Address: []byte("1.2.3.4:80"), Key: []byte(strings.Repeat(",", 100)), HasKey: true},
	}
	i, now := 0, limit.Micros(0)
	allocations := testing.AllocsPerRun(10_000, func() {
		r := requests[i%len(requests)]
		r.Now = now
		decide(e, r)
		i++
		now += 500 // half the calls are over the limit
	})
	if allocations != 0 {
		t.Errorf("%v allocations a call", allocations)
	}
}

// flatSlots keeps slots without allocating and never loses a race.
type flatSlots struct {
	values  [testSlots][setSize]byte
	written [testSlots]bool
}

func (s *flatSlots) Get(slot uint32) ([]byte, uint32, bool) {
	return s.values[slot][:], 1, s.written[slot]
}

func (s *flatSlots) Set(slot uint32, value []byte, _ uint32) bool {
	copy(s.values[slot][:], value)
	s.written[slot] = true
	return true
}

// manyKeys are the keys of an installation: 400,000 hashes, those of known among them.
func manyKeys(known [][]byte) []uint64 {
	r := rand.New(rand.NewPCG(1, 2))
	hashes := make([]uint64, 0, 400_000)
	for _, key := range known {
		hashes = append(hashes, keyfilter.Hash(testHashKey, key))
	}
	for len(hashes) < cap(hashes) {
		hashes = append(hashes, r.Uint64())
	}
	return hashes
}

// BenchmarkDecide asks an engine that knows 400,000 keys. With a key, 1,000 of them take turns, so that the key filter's
// memory is not in the processor's nearest cache.
func BenchmarkDecide(b *testing.B) {
	known, forged := make([][]byte, 1000), make([][]byte, 1000)
	for i := range known {
		known[i], forged[i] = []byte(newKey(b, uint64(i))), []byte(newKey(b, uint64(i+len(known))))
	}
	hashes := manyKeys(known)
	run := func(name string, count int64, keys [][]byte, addresses int) {
		b.Run(name, func(b *testing.B) {
			e := worker(&flatSlots{}, gatedBy(b, testRule(per(count, count), per(count, count)), hashes))
			texts := make([][]byte, addresses)
			for i := range texts {
				texts[i] = fmt.Appendf(nil, "10.%d.%d.%d:443", i>>16&255, i>>8&255, i&255)
			}
			var r Request
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Now++
				r.Address = texts[i%addresses]
				if keys != nil {
					r.Key, r.HasKey = keys[i%len(keys)], true
				}
				e.Decide(&r)
			}
		})
	}
	run("lease", 1_000_000, nil, 1)
	run("lease-known-key", 1_000_000, known, 1)
	run("lease-known-key-100-addresses", 1_000_000, known, 100)
	run("forged", 1_000_000, forged, 1)
	run("refused", 1, nil, 1)
	run("refill-each", 1_000_000, nil, 1<<20)
}

// BenchmarkInstall is what a worker's requests wait for when a release of 400,000 keys comes: once its bytes are read.
func BenchmarkInstall(b *testing.B) {
	releases := [2]bundle.Bundle{gatedBy(b, testRule(per(1, 1), per(1, 1)), manyKeys(nil))}
	releases[1] = releases[0]
	releases[1].Rule.Anonymous = per(2, 2) // another limit, so that leases are dropped
	e := worker(&flatSlots{}, releases[0])
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e.Install(releases[i%2], 0, 0)
	}
}

func FuzzRequestNeverPanics(f *testing.F) {
	good := newKey(f, 1)
	f.Add([]byte("1.2.3.4:80"), []byte(good), true, []byte(""), int64(0))
	f.Add([]byte("[::1%x]:1"), []byte(""), true, []byte("Bearer wk_x"), int64(1)<<62)
	f.Add([]byte{0xff}, []byte{','}, false, []byte("bearer "+good), int64(-1))
	e := worker(newSlots(), gated(f, testRule(per(10, 10), per(10, 10)), good))
	f.Fuzz(func(t *testing.T, address, key []byte, hasKey bool, authorization []byte, now int64) {
		r := Request{Now: limit.Micros(now), Address: address, Key: key, HasKey: hasKey, Authorization: authorization}
		v := decide(e, r)
		if v.Allowed != (v.Code == "") {
			t.Errorf("verdict at odds with itself: %+v", v)
		}
		token, _ := bearer(authorization)
		if hasKey {
			token = key
		}
		if v.Class == Valid && !e.gate.Knows(keyfilter.Hash(e.gate.HashKey, token)) {
			t.Errorf("a key that was never issued passed as known: %+v", r)
		}
	})
}
