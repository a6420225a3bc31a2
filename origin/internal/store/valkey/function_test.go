package valkey

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// live is a server that has a library, with no store between.
type live struct {
	t        testing.TB
	client   valkey.Client
	library  library
	switchAt limit.Micros
}

func newLive(t testing.TB, l library) *live {
	t.Helper()
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{valkeytest.Start(t).Addr}, ForceSingleClient: true, DisableCache: true, AlwaysPipelining: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	f := &live{t: t, client: client, library: l}
	if err := f.do("FUNCTION", "LOAD", l.code).Error(); err != nil {
		t.Fatalf("load: %v", err)
	}
	return f
}

func (f *live) do(words ...string) valkey.ValkeyResult {
	return f.client.Do(context.Background(), f.client.B().Arbitrary(words[0]).Args(words[1:]...).Build())
}

// send makes a request, at now by the tests' library. An error reply fails the test: the function never raises.
func (f *live) send(r request, now limit.Micros) valkey.ValkeyResult {
	f.t.Helper()
	words := []string{"FCALL", r.function, strconv.Itoa(len(r.keys))}
	if r.readOnly {
		words[0] = "FCALL_RO"
	}
	words = append(append(words, r.keys...), r.args...)
	if f.library == withClock {
		words = append(words, strconv.FormatInt(int64(now), 10))
	}
	result := f.do(words...)
	if err := result.Error(); err != nil {
		f.t.Fatalf("%s of %d keys at %d: %v", r.function, len(r.keys), now, err)
	}
	return result
}

// ask sends a check or a peek, and reads its answer.
func (f *live) ask(r request, now limit.Micros, charges []limiter.Charge) []limiter.Outcome {
	f.t.Helper()
	reply, err := f.send(r, now).ToString()
	if err != nil {
		f.t.Fatal(err)
	}
	outcomes := make([]limiter.Outcome, len(charges))
	at, stale, err := f.library.readTake(reply, charges, outcomes)
	if err != nil || stale || f.library == withClock && at != now {
		f.t.Fatalf("%q: at %d, want %d; stale %v, %v", reply, at, now, stale, err)
	}
	return outcomes
}

func (f *live) take(now limit.Micros, charges ...limiter.Charge) []limiter.Outcome {
	f.t.Helper()
	return f.ask(f.library.take(limit.Micros(limit.MaxCount), f.switchAt, limiter.CallID{}, charges), now, charges)
}

func (f *live) takeAs(id byte, now limit.Micros, charges ...limiter.Charge) []limiter.Outcome {
	f.t.Helper()
	return f.ask(f.library.take(limit.Micros(limit.MaxCount), f.switchAt, limiter.CallID{id}, charges), now, charges)
}

// peek asks for charges of any cost by the read-only twin.
func (f *live) peek(now limit.Micros, charges ...limiter.Charge) []limiter.Outcome {
	f.t.Helper()
	r := f.library.take(limit.Micros(limit.MaxCount), f.switchAt, limiter.CallID{}, charges)
	r.function, r.readOnly = f.library.peek, true
	return f.ask(r, now, charges)
}

func (f *live) refund(now limit.Micros, id limiter.CallID, charges []limiter.Charge, outcomes []limiter.Outcome) {
	f.t.Helper()
	f.send(f.library.giveBack(f.switchAt, id, charges, outcomes), now)
}

// refundOne gives a charge back that was taken at the instant charged.
func (f *live) refundOne(now limit.Micros, c limiter.Charge, charged limit.Micros) {
	f.t.Helper()
	f.refund(now, limiter.CallID{}, []limiter.Charge{c}, []limiter.Outcome{{Charged: true, At: charged}})
}

// dump is a key's value of whatever type, "" for none.
func (f *live) dump(key string) string {
	f.t.Helper()
	v, err := f.do("DUMP", key).ToString()
	if err != nil && !valkey.IsValkeyNil(err) {
		f.t.Fatal(err)
	}
	return v
}

// ttl is a key's time to live in ms as the server gave it; -1 without one, -2 without a key.
func (f *live) ttl(key string) int64 {
	f.t.Helper()
	v, err := f.do("PTTL", key).AsInt64()
	if err != nil {
		f.t.Fatal(err)
	}
	if v > 0 && f.library == withClock {
		return v - spare
	}
	return v
}

var algorithms = []rule.Algorithm{rule.TokenBucket, rule.SlidingWindow, rule.GCRA, rule.FixedWindow, rule.LeakyBucket, rule.LeakyQueue, rule.SlidingLog}

// chargeOf asks for cost by an algorithm.
func chargeOf(n int, a rule.Algorithm, l limit.Limit, cost int64) limiter.Charge {
	return limiter.Charge{Counter: name(n), Algorithm: a, Limit: l, Cost: cost}
}

// newSeed prints the seed that repeats this run.
func newSeed(t testing.TB) uint64 {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed=%d", s)
	return s
}

func newRand(t testing.TB) *rand.Rand {
	s := newSeed(t)
	return rand.New(rand.NewPCG(s, s))
}

func TestLibrariesAreNamedByTheirText(t *testing.T) {
	if !strings.HasPrefix(production.name, "weir_") || len(production.name) != len("weir_")+8 || production.name[5:] == withClock.name[9:] {
		t.Errorf("names %q, %q", production.name, withClock.name)
	}
}
