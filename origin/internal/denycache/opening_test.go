package denycache_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir/origin/internal/denycache"
	"github.com/weirproject/weir/shared/limit"
)

func left(n int64) limit.Decision {
	return limit.Decision{Allowed: true, Limit: 10, Remaining: n, ResetAfter: limit.Second}
}

// opened is a cache whose entry "a" opened at 1000 and knows of no room.
func opened() *denycache.Cache[string] {
	c := denycache.New[string](100)
	refuse(c, "a", 1, refusal(1000, limit.Second), 0)
	return c
}

// passes takes as many passes for cost 1 as there are, at most 20.
func passes(c *denycache.Cache[string], now limit.Micros) (taken []denycache.Pass) {
	for range 20 {
		_, pass, refused := c.Enter("a", per, 1, now)
		if refused {
			break
		}
		taken = append(taken, pass)
	}
	return taken
}

func TestOneCallAsksWhetherAnOpeningIsOne(t *testing.T) {
	t.Parallel()
	c := opened()
	taken := passes(c, 1000)
	if len(taken) != 1 {
		t.Fatalf("%d passes, want 1", len(taken))
	}
	// Who finds no place is told that it will not be long, but no time of which nothing is known.
	d, _, refused := c.Enter("a", per, 1, 1200)
	if !refused || d.Allowed || d.RetryAfter != 1 || d.Remaining != 0 || d.Limit != 10 {
		t.Errorf("%+v, refused %v", d, refused)
	}
	if _, _, refused := c.Enter("b", per, 1, 1200); refused {
		t.Error("another counter is refused")
	}
	c.Leave("a", taken[0]) // the store failed
	if taken = passes(c, 1300); len(taken) != 1 {
		t.Fatalf("%d passes after one was left, want 1", len(taken))
	}
	c.Learn("a", taken[0], 1, refusal(500, limit.Second), limit.Decision{}, 500, 1400)
	if n := len(passes(c, 1899)); n != 0 {
		t.Errorf("%d passes before the opening that the answer told", n)
	}
	if n := len(passes(c, 1900)); n != 1 {
		t.Errorf("%d passes at the next opening, want 1", n)
	}
}

func TestAsManyAskAsTheStoreHadLeft(t *testing.T) {
	t.Parallel()
	c := opened()
	first := passes(c, 1000)
	c.Learn("a", first[0], 1, left(3), limit.Decision{Allowed: true}, 0, 1500)
	taken := passes(c, 1500)
	if len(taken) != 3 {
		t.Fatalf("%d passes, want the 3 that the store had left", len(taken))
	}
	c.Learn("a", taken[1], 1, left(4), limit.Decision{Allowed: true}, 0, 1600)
	if n := len(passes(c, 1600)); n != 2 {
		t.Errorf("%d passes beside 2 on their way, want 2 of 4", n)
	}
	// An answer that was overtaken by one to a later call is not news.
	c.Learn("a", taken[0], 1, left(9), limit.Decision{Allowed: true}, 0, 1700)
	if n := len(passes(c, 1700)); n != 1 {
		t.Errorf("%d passes in place of the one that came back, want 1", n)
	}
}

func TestCostsShareWhatIsLeft(t *testing.T) {
	t.Parallel()
	c := opened()
	first := passes(c, 1000)
	c.Learn("a", first[0], 1, left(5), limit.Decision{Allowed: true}, 0, 1500)
	ask := func(cost int64) bool {
		_, _, refused := c.Enter("a", per, cost, 1500)
		return !refused
	}
	if !ask(3) || ask(3) || !ask(2) || ask(1) {
		t.Error("want 3 and 2 of 5 to go and no more")
	}
	// Whoever is alone may always ask, so that no cost is refused from memory for ever.
	c = opened()
	if _, _, refused := c.Enter("a", per, 8, 1000); refused {
		t.Error("a cost above what is left was refused with nobody asking")
	}
}

func TestACostBelowAllThatWereRefusedIsNotCounted(t *testing.T) {
	t.Parallel()
	c := denycache.New[string](100)
	refuse(c, "a", 5, limit.Decision{Limit: 10, Remaining: 4, RetryAfter: 1000, ResetAfter: 9000}, 0)
	if n := len(passes(c, 500)); n != 20 {
		t.Errorf("%d calls of cost 1 pass beside a refusal of cost 5, want all 20", n)
	}
	if d, _, refused := c.Enter("a", per, 5, 500); !refused || d.Remaining != 4 {
		t.Errorf("cost 5: %+v, refused %v", d, refused)
	}
	// Once cost 1 was refused it is, whatever else is refused later.
	refuse(c, "a", 1, refusal(100, 9000), 500)
	refuse(c, "a", 5, refusal(1000, 9000), 700)
	if n := len(passes(c, 800)); n != 1 {
		t.Errorf("%d calls of cost 1 pass after its opening, want 1", n)
	}
}

// A caller that stayed away until its counter was a fresh one comes back to all of it, not to one call at a time.
func TestACounterThatIsFreshAgainHasAllItsRoom(t *testing.T) {
	t.Parallel()
	c := opened()
	if n := len(passes(c, limit.Second-1)); n != 1 {
		t.Errorf("%d passes before the reset, want 1", n)
	}
	c = opened()
	if n := len(passes(c, limit.Second)); n != 10 {
		t.Errorf("%d passes at the reset, want the whole quota of 10", n)
	}
}

func TestADropForgetsAtOnceAndWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	c := opened()
	c.Drop("a")
	if n := len(passes(c, 1)); n != 20 {
		t.Errorf("%d passes after a drop, want all 20", n)
	}
	// A call is at the store, then the counter is reset, then the call's refusal comes back.
	for name, c := range map[string]*denycache.Cache[string]{"no entry": denycache.New[string](100), "an opened entry": opened()} {
		_, pass, _ := c.Enter("a", per, 1, 1000)
		c.Drop("a")
		c.Learn("a", pass, 1, refusal(limit.Hour, limit.Hour), limit.Decision{}, limit.Hour, 1100)
		if _, hit := enter(c, "a", 1, 1200); hit {
			t.Errorf("%s: a refusal from before the reset stands", name)
		}
		_, pass, _ = c.Enter("a", per, 1, 1200)
		c.Learn("a", pass, 1, refusal(limit.Hour, limit.Hour), limit.Decision{}, limit.Hour, 1300)
		if _, hit := enter(c, "a", 1, 1400); !hit {
			t.Errorf("%s: a refusal from after the reset is not remembered", name)
		}
	}
}

// Many goroutines rush at each opening: one gets through, and none after its refusal is known.
func TestOneOfManyAtOnceAsks(t *testing.T) {
	t.Parallel()
	c := opened()
	now := limit.Micros(1000)
	for range 4000 {
		var asked atomic.Int64
		var rush sync.WaitGroup
		for range 8 {
			rush.Go(func() {
				for range 20 {
					_, pass, refused := c.Enter("a", per, 1, now)
					if refused {
						continue
					}
					asked.Add(1)
					c.Learn("a", pass, 1, refusal(1000, limit.Second), limit.Decision{}, 1000, now)
				}
			})
		}
		rush.Wait()
		if n := asked.Load(); n != 1 {
			t.Fatalf("%d asked at the opening at %d, want 1", n, now)
		}
		now += 1000
	}
}

// Entries come, go and are asked at once: no more ask than fit, and none is counted for ever.
func TestPlacesAreKeptCountOfAtOnce(t *testing.T) {
	t.Parallel()
	c := opened()
	pass := passes(c, 1000)[0]
	c.Learn("a", pass, 1, left(4), limit.Decision{Allowed: true}, 0, 1000)
	var asking, most atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 5_000 {
				_, pass, refused := c.Enter("a", per, 1, 1000)
				if refused {
					continue
				}
				if n := asking.Add(1); n > most.Load() {
					most.Store(n)
				}
				asking.Add(-1)
				if i%2 == 0 {
					c.Leave("a", pass)
				} else {
					c.Learn("a", pass, 1, left(4), limit.Decision{Allowed: true}, 0, 1000)
				}
			}
		})
	}
	all.Wait()
	if n := most.Load(); n > 4 {
		t.Errorf("%d asked at once, want at most 4", n)
	}
	if n := len(passes(c, 1000)); n != 4 {
		t.Errorf("%d places when all are back, want 4", n)
	}
}
