package denycache_test

import (
	"testing"

	"github.com/weirproject/weir/origin/internal/denycache"
	"github.com/weirproject/weir/shared/limit"
)

func enter[K comparable](c *denycache.Cache[K], key K, cost int64, now limit.Micros) (limit.Decision, bool) {
	d, pass, refused := c.Enter(key, cost, now)
	c.Leave(key, pass)
	return d, refused
}

// refuse has a call of some cost answered by d at now.
func refuse[K comparable](c *denycache.Cache[K], key K, cost int64, d limit.Decision, now limit.Micros) {
	c.Learn(key, denycache.Pass{}, cost, d, limit.Decision{}, d.RetryAfter, now)
}

func refusal(wait, reset limit.Micros) limit.Decision {
	return limit.Decision{Limit: 10, RetryAfter: wait, ResetAfter: reset}
}

func TestARefusalHoldsUntilItOpensNotAMicrosecondLonger(t *testing.T) {
	c := denycache.New[string](100)
	refuse(c, "a", 1, refusal(400, 1000), 50)
	for now, want := range map[limit.Micros]limit.Micros{50: 400, 51: 399, 449: 1} {
		if d, hit := enter(c, "a", 1, now); !hit || d.Allowed || d.RetryAfter != want || d.Limit != 10 || d.Remaining != 0 || d.ResetAfter != 1050-now {
			t.Errorf("at %d: %+v, hit %v", now, d, hit)
		}
	}
	for _, now := range []limit.Micros{450, 451, limit.Hour} {
		if d, hit := enter(c, "a", 1, now); hit {
			t.Errorf("at %d: %+v from a refusal that has opened", now, d)
		}
	}
	if _, hit := enter(c, "b", 1, 50); hit {
		t.Error("another counter was refused")
	}
}

func TestARefusalStopsItsCostAndAboveOnly(t *testing.T) {
	c := denycache.New[string](100)
	refuse(c, "a", 5, refusal(400, 400), 0)
	for cost, want := range map[int64]bool{0: false, 1: false, 4: false, 5: true, 6: true} {
		if _, hit := enter(c, "a", cost, 1); hit != want {
			t.Errorf("cost %d: hit %v", cost, hit)
		}
	}
	refuse(c, "a", 2, refusal(300, 300), 1)
	if _, hit := enter(c, "a", 2, 2); !hit {
		t.Error("a smaller cost's refusal was not taken over")
	}
	refuse(c, "a", 9, refusal(900, 900), 2)
	if _, hit := enter(c, "a", 2, 3); !hit {
		t.Error("a larger cost's refusal hid a smaller one's")
	}
	if _, hit := enter(c, "a", 2, 301); hit {
		t.Error("the smaller cost's refusal outlived its opening")
	}
}

func TestAdmissionsAreNotRemembered(t *testing.T) {
	c := denycache.New[string](100)
	refuse(c, "a", 1, limit.Decision{Allowed: true, Limit: 10}, 0)
	if _, hit := enter(c, "a", 1, 0); hit {
		t.Error("an admission refuses")
	}
}

func TestALongWaitIsAskedAgainAfterThirtySeconds(t *testing.T) {
	c := denycache.New[string](100)
	for _, wait := range []limit.Micros{limit.Hour, limit.Never} {
		refuse(c, "a", 1, refusal(wait, limit.Never), 0)
		d, hit := enter(c, "a", 1, 30*limit.Second-1)
		// What a client is told is the whole wait, not the part that is remembered.
		if want := map[limit.Micros]limit.Micros{limit.Hour: limit.Hour - 30*limit.Second + 1, limit.Never: limit.Never}[wait]; !hit || d.RetryAfter != want {
			t.Errorf("wait %d just before 30 s: %+v, %v", wait, d, hit)
		}
		if _, hit := enter(c, "a", 1, 30*limit.Second); hit {
			t.Errorf("wait %d after 30 s: still refused from memory", wait)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	c := denycache.New[int](1000)
	for n := range 5_000 {
		refuse(c, n, 1, refusal(limit.Second, limit.Second), 0)
	}
	c.CleanUp()
	if n := c.Len(); n > 1000 {
		t.Errorf("%d refusals remembered, want at most 1000", n)
	}
}

func TestAHitAllocatesNothing(t *testing.T) {
	c := denycache.New[[43]byte](1000)
	key := [43]byte{1}
	refuse(c, key, 1, refusal(limit.Hour, limit.Hour), 0)
	if n := testing.AllocsPerRun(1000, func() {
		if _, hit := enter(c, key, 1, 1); !hit {
			t.Error("no hit")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkHit(b *testing.B) {
	c := denycache.New[[43]byte](denycache.DefaultSize)
	key := [43]byte{1}
	refuse(c, key, 1, refusal(limit.Hour, limit.Hour), 0)
	b.ReportAllocs()
	for b.Loop() {
		enter(c, key, 1, 1)
	}
}
