package numbers

import (
	"fmt"
	"testing"

	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/shared/limit"
)

// Everyone at their limit: 18,000 accounts of 60/min, 1,800 of 600 and 200 of 6,000, each calling at twice that.
func TestEveryTierAtItsLimit(t *testing.T) {
	part := share(200)
	c := &clock{}
	l := process(t, memory.New(100_000, nil), c, `version: 1
tiers: {free: {limit: 60/1m}, paid: {limit: 600/1m}, enterprise: {limit: 6000/1m}}
rules:
- {name: per-account, where: origin, by: [key], algorithm: token-bucket, tier: true}
`)
	total := int64(0)
	for _, tier := range []struct {
		name     string
		accounts int
		limit    int64
	}{{"free", 18_000, 60}, {"paid", 1_800, 600}, {"enterprise", 200, 6_000}} {
		accounts := tier.accounts / part
		admitted := int64(0)
		for n := range accounts {
			k := keys.Key{ID: fmt.Sprint(tier.name, n), Tier: tier.name}
			r := get(&k)
			for call := range 3 * 2 * tier.limit { // in the first two minutes its bucket empties
				c.set(hour + limit.Micros(call*int64(limit.Minute)/(2*tier.limit)))
				if check(t, l, r) && call >= 2*2*tier.limit {
					admitted++
				}
			}
		}
		if want := int64(accounts) * tier.limit; admitted != want {
			t.Errorf("%s: %d accounts at twice their limit get %d calls a minute, want %d", tier.name, accounts, admitted, want)
		}
		total += admitted * int64(part)
	}
	if total/60 != 56_000 {
		t.Errorf("%d/s at everyone's limit, want 56,000", total/60)
	}
	report(t, "tiers 60/600/6000, 18,000 + 1,800 + 200 accounts: admitted/s", "56,000", thousands(total/60))
}
