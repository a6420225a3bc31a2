package denycache_test

import (
	"testing"

	"github.com/weirproject/weir/origin/internal/denycache"
	"github.com/weirproject/weir/shared/limit"
)

// per is the limit of most calls.
var per = limit.Limit{Count: 10, Window: limit.Second}

func enter[K comparable](c *denycache.Cache[K], key K, cost int64, now limit.Micros) (limit.Decision, bool) {
	d, pass, refused := c.Enter(key, per, cost, now)
	c.Leave(key, pass)
	return d, refused
}

// refuse has a call of some cost answered by d at now.
func refuse[K comparable](c *denycache.Cache[K], key K, cost int64, d limit.Decision, now limit.Micros) {
	c.Learn(key, c.Uncounted(key, per), cost, d, limit.Decision{}, d.RetryAfter, now)
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
	if _, hit := enter(c, "a", 9, 301); hit {
		t.Error("the smaller cost's refusal outlived its opening")
	}
	refuse(c, "a", 9, refusal(900, 900), 302)
	for cost, want := range map[int64]bool{2: false, 8: false, 9: true} {
		if _, hit := enter(c, "a", cost, 303); hit != want {
			t.Errorf("cost %d beside a refusal of cost 9: hit %v", cost, hit)
		}
	}
}

func TestTheLaterOfTwoOpeningsStands(t *testing.T) {
	// Two refusals of one counter overtake each other on the way back: the wait that was told last at the store is the
	// longer one.
	c := denycache.New[string](100)
	refuse(c, "a", 1, refusal(400, 1000), 0)
	refuse(c, "a", 1, refusal(300, 1000), 50)
	if _, hit := enter(c, "a", 1, 399); !hit {
		t.Error("opened early")
	}
}

func TestAnAdmissionThatLeavesNoRoomIsARefusalOfTheNext(t *testing.T) {
	c := denycache.New[string](100)
	admit := func(key string, left int64, next limit.Decision) {
		c.Learn(key, c.Uncounted("a", per), 3, limit.Decision{Allowed: true, Limit: 10, Remaining: left}, next, next.RetryAfter, 0)
	}
	admit("none", 0, refusal(400, 1000))
	if d, hit := enter(c, "none", 1, 399); !hit || d.RetryAfter != 1 || d.Limit != 10 {
		t.Errorf("none left: %+v, %v", d, hit)
	}
	admit("one", 1, limit.Decision{Allowed: true, Limit: 10, Remaining: 1})
	admit("nothing known", 0, limit.Decision{}) // of a call that was charged before
	for _, key := range []string{"one", "nothing known"} {
		if _, hit := enter(c, key, 1, 1); hit {
			t.Errorf("%s: refused", key)
		}
	}
}

func TestARefusalIsRememberedNoLongerThanTheStoreSays(t *testing.T) {
	c := denycache.New[string](100)
	c.Learn("a", c.Uncounted("a", per), 1, refusal(1000, 5000), limit.Decision{}, 20, 0)
	if d, hit := enter(c, "a", 1, 19); !hit || d.RetryAfter != 981 {
		t.Errorf("%+v, %v: want the whole wait told", d, hit)
	}
	if _, hit := enter(c, "a", 1, 20); hit {
		t.Error("refused from memory when the store was to be asked")
	}
	c.Learn("b", c.Uncounted("a", per), 1, refusal(1000, 5000), limit.Decision{}, 0, 0)
	if _, hit := enter(c, "b", 1, 0); hit {
		t.Error("remembered what was not to be")
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

// Callers of one counter may have limits of their own.
func TestARefusalStandsForItsLimitAndSmallerOnes(t *testing.T) {
	many, burst := limit.Limit{Count: 20, Window: limit.Second, Burst: 10}, limit.Limit{Count: 10, Window: limit.Second, Burst: 11}
	few := limit.Limit{Count: 5, Window: limit.Second}
	c := denycache.New[string](100)
	refuse(c, "a", 1, refusal(400, 1000), 0)
	for by, want := range map[limit.Limit]bool{per: true, few: true, many: false, burst: false} {
		if _, pass, hit := c.Enter("a", by, 1, 1); hit != want || c.Refuses("a", by, 1, 1) != want {
			t.Errorf("%+v: hit %v", by, hit)
		} else if !hit {
			c.Learn("a", pass, 1, refusal(100, 1000), limit.Decision{}, 100, 2)
			if !c.Refuses("a", by, 1, 3) || c.Refuses("a", by, 1, 102) {
				t.Errorf("%+v: its refusal was not taken over", by)
			}
			c.Drop("a")
			refuse(c, "a", 1, refusal(400, 1000), 0)
		}
	}
	// Once it has opened, calls by a larger limit are not counted against what the smaller one had left.
	for range 3 {
		if _, _, hit := c.Enter("a", many, 1, 401); hit {
			t.Error("a larger limit waits for a place among the calls of a smaller one")
		}
	}
	// A smaller limit's refusal takes over from none that stands for it as well, unless that opens before.
	c.Drop("a")
	_, pass, _ := c.Enter("a", many, 1, 500)
	_, late, _ := c.Enter("a", few, 1, 500)
	c.Learn("a", pass, 1, refusal(400, 1000), limit.Decision{}, 400, 501)
	c.Learn("a", late, 1, refusal(300, 1000), limit.Decision{}, 300, 502)
	if !c.Refuses("a", many, 1, 900) || !c.Refuses("a", few, 1, 900) {
		t.Error("a smaller limit's refusal took over from a larger one's")
	}
}

func TestACostThatNeverPassesIsNobodyElses(t *testing.T) {
	c := denycache.New[string](100)
	refuse(c, "a", 1, refusal(100, limit.Hour), 0)
	refuse(c, "a", 50, refusal(limit.Never, limit.Hour), 200)
	if _, _, hit := c.Enter("a", per, 1, 201); hit {
		t.Fatal("a call that may pass was refused")
	}
	// It asks. Another one waits for it, and no longer.
	d, _, hit := c.Enter("a", per, 1, 202)
	if never, _ := enter(c, "a", 50, 202); !hit || d.RetryAfter != 1 || never.RetryAfter != limit.Never {
		t.Errorf("hit %v, wait %d; of a cost that never passes %d", hit, d.RetryAfter, never.RetryAfter)
	}
}
