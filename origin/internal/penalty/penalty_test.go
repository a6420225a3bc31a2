package penalty_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/weirproject/weir/origin/internal/penalty"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

const start = 1000 * limit.Hour

var three = rule.Penalty{After: 3, Ceiling: limit.Minute, Decay: 10 * limit.Second}

func refusal(wait limit.Micros) limit.Decision {
	return limit.Decision{Limit: 10, RetryAfter: wait, ResetAfter: 2 * wait}
}

// hammer is refused n times, a millisecond apart from now on, as a limiter does it: by what stands, else by the limit.
func hammer(b *penalty.Book[string], key string, n int, wait, now limit.Micros) (told []limit.Micros) {
	for i := range n {
		at := now + limit.Micros(i)*limit.Millisecond
		d, stands := b.Standing(key, at)
		if !stands {
			d = refusal(wait)
		}
		told = append(told, b.Refused(key, three, d, at).RetryAfter)
	}
	return told
}

func equal(t *testing.T, what string, got []limit.Micros, want ...limit.Micros) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
}

func TestEachRefusalBeyondTheFirstFewDoublesUpToTheCeiling(t *testing.T) {
	b := penalty.New[string](10)
	const s, ms = limit.Second, limit.Millisecond
	// From the second that stands on, a minute is counted from the first of them.
	equal(t, "hammering", hammer(b, "a", 10, 2*s, start),
		2*s, 2*s, 2*s, 4*s, 8*s, 16*s, 32*s, limit.Minute-4*ms, limit.Minute-5*ms, limit.Minute-6*ms)
	d, stands := b.Standing("a", start+9*ms)
	if want := limit.Minute - 6*ms; !stands || d.Allowed || d.Limit != 10 || d.RetryAfter != want || d.ResetAfter != want {
		t.Errorf("%+v, stands %v", d, stands)
	}
	// All of it together ends at the ceiling: then the limit is asked again, and its next refusal is as long at once.
	end := start + 3*ms + limit.Minute
	if _, stands := b.Standing("a", end-1); !stands {
		t.Error("over before the ceiling")
	}
	if d, stands := b.Standing("a", end); stands {
		t.Errorf("%+v stands beyond the ceiling", d)
	}
	b = penalty.New[string](10)
	for now := start; now < start+limit.Minute+5*ms; now += ms {
		hammer(b, "a", 1, 2*s, now)
	}
	equal(t, "going on for all of the ceiling", hammer(b, "a", 1, 2*s, start+limit.Minute+5*ms), limit.Minute-2*ms)
}

func TestAShortWaitDoublesFromASecondOn(t *testing.T) {
	b := penalty.New[string](10)
	equal(t, "50/s", hammer(b, "a", 5, 20*limit.Millisecond, start),
		20*limit.Millisecond, 20*limit.Millisecond, 20*limit.Millisecond, 2*limit.Second, 4*limit.Second)
}

func TestALongWaitIsNeverShortened(t *testing.T) {
	for _, wait := range []limit.Micros{limit.Hour, limit.Never} {
		b := penalty.New[string](10)
		equal(t, "beyond the ceiling", hammer(b, "a", 3, wait, start), wait, wait, wait)
		if d := b.Refused("a", three, refusal(wait), start+4); d.RetryAfter != wait {
			t.Errorf("a wait of %d became %d", wait, d.RetryAfter)
		}
		if _, stands := b.Standing("a", start+5); !stands {
			t.Errorf("a wait of %d is not penalised", wait)
		}
	}
}

func TestTimeWithoutARefusalHalvesTheCount(t *testing.T) {
	const s = limit.Second
	for name, c := range map[string]struct {
		pause limit.Micros // after the fourth refusal
		want  limit.Micros // of a refusal that was waited for
	}{
		"just no decay":   {three.Decay - 1, 4 * s}, // 4 refusals, 1 beyond
		"one":             {three.Decay, 2 * s},     // 2, none beyond
		"just one":        {2*three.Decay - 1, 2 * s},
		"many":            {100 * three.Decay, 2 * s},
		"beyond all ints": {1 << 50, 2 * s},
	} {
		b := penalty.New[string](10)
		hammer(b, "a", 4, 2*s, start)
		last := start + 3*limit.Millisecond
		if d := b.Refused("a", three, refusal(2*s), last+c.pause); d.RetryAfter != c.want {
			t.Errorf("%s: told %d, want %d", name, d.RetryAfter, c.want)
		}
	}
	// A refusal that was waited for does not hold the decay up.
	b, p, now := penalty.New[string](10), rule.Penalty{After: 3, Ceiling: 4 * s, Decay: 10 * s}, start
	for range 100 {
		b.Refused("a", p, refusal(2*s), now)
	}
	for _, want := range []limit.Micros{4 * s, 2 * s} {
		if now += 5 * s; b.Refused("a", p, refusal(2*s), now).RetryAfter != want {
			t.Errorf("5 s after a refusal of at most 4 s: want %d", want)
		}
	}
}

func TestClearForgets(t *testing.T) {
	b := penalty.New[string](10)
	hammer(b, "a", 6, limit.Second, start)
	b.Clear("a")
	if _, stands := b.Standing("a", start+6*limit.Millisecond); stands {
		t.Error("a penalty stands that was cleared")
	}
	equal(t, "after it", hammer(b, "a", 1, limit.Second, start+7*limit.Millisecond), limit.Second)
}

func TestWhoDoesAsToldIsNeverPenalised(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	b, now := penalty.New[string](10), start
	for range 10_000 {
		wait := 1 + limit.Micros(r.Int64N(int64(2*limit.Second)))
		if _, stands := b.Standing("a", now); stands {
			t.Fatal("penalised")
		}
		if d := b.Refused("a", three, refusal(wait), now); d != refusal(wait) {
			t.Fatalf("%+v, want the limit's own", d)
		}
		now += wait // to the microsecond, and refused again all the same
	}
}

func TestANeighbourIsUnaffected(t *testing.T) {
	b := penalty.New[string](10)
	hammer(b, "a", 50, limit.Second, start)
	if d, stands := b.Standing("b", start); stands {
		t.Errorf("%+v", d)
	}
	equal(t, "its refusal", hammer(b, "b", 1, limit.Second, start), limit.Second)
}

func TestARuleWithoutAPenaltyNotesNothing(t *testing.T) {
	b := penalty.New[string](10)
	for range 10 {
		if d := b.Refused("a", rule.Penalty{}, refusal(5), start); d != refusal(5) {
			t.Errorf("%+v", d)
		}
	}
	if n := b.Len(); n != 0 {
		t.Errorf("%d counters noted", n)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	b := penalty.New[int](1000)
	for n := range 5_000 {
		b.Refused(n, three, refusal(5), start)
	}
	b.CleanUp()
	if n := b.Len(); n > 1000 {
		t.Errorf("%d counters noted, want at most 1000", n)
	}
}

func TestOnePrincipalOnManyDoorsAtOnce(t *testing.T) {
	b := penalty.New[string](10)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { hammer(b, "a", 1000, limit.Second, start) })
	}
	all.Wait()
	if d, stands := b.Standing("a", start+limit.Second); !stands || d.RetryAfter > three.Ceiling {
		t.Errorf("%+v, stands %v", d, stands)
	}
}

func TestNothingIsAllocatedForAStandingRefusal(t *testing.T) {
	b := penalty.New[string](10)
	hammer(b, "a", 6, limit.Second, start)
	now := start + 6*limit.Millisecond
	if n := testing.AllocsPerRun(1000, func() {
		d, stands := b.Standing("a", now)
		if b.Refused("a", three, d, now); !stands {
			t.Error("none stands")
		}
		b.Standing("b", now)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkStanding(b *testing.B) {
	book := penalty.New[string](penalty.DefaultSize)
	hammer(book, "a", 6, limit.Second, start)
	b.ReportAllocs()
	for b.Loop() {
		d, _ := book.Standing("a", start+6*limit.Millisecond)
		book.Refused("a", three, d, start+6*limit.Millisecond)
	}
}
