package edge

import (
	"fmt"
	"testing"

	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/limit"
)

// neighbours are v4 addresses whose buckets of a kind lie in one slot.
func (e *Engine) neighbours(slot uint32, k kind, n int) (addresses []string) {
	for i := 0; len(addresses) < n; i++ {
		text := fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255)
		if uint32(tag(e.key, e.principal(parseAddress([]byte(text))), k)>>kindBits)%e.slotCount == slot {
			addresses = append(addresses, text)
		}
	}
	return addresses
}

// small is a bundle with the smallest table, so that addresses of one slot are soon found.
func small(b bundle.Bundle) bundle.Bundle {
	b.TableEntries = 1 << 10
	return b
}

// While a push spreads, workers of two releases write one slot in turns. Whoever comes new to it then waits for one full
// refill at most, however often they took turns.
func TestTwoReleasesOverOneSlotLockNobodyOut(t *testing.T) {
	slots := newSlots()
	b := func(l limit.Limit) bundle.Bundle { return small(testRule(l, l)) }
	old, young := worker(slots, b(per(1, 10))), worker(slots, b(per(1, 10)))
	young.Install(b(per(1, 20)), 0, 0)
	now := limit.Micros(limit.Hour)
	addresses := old.neighbours(1, plain, 150)
	for _, address := range addresses[:sharedWays+1] {
		for decide(old, from(address, now)).Allowed {
		}
	}
	for i, address := range addresses[sharedWays+1 : 149] {
		decide([]*Engine{young, old}[i%2], from(address, now))
	}
	now += 20 * limit.Second
	if v := decide(young, from(addresses[149], now)); !v.Allowed {
		t.Errorf("refused after one full refill: %+v", v)
	}
}

// Anonymous clients who wear each other out of a slot cost a known key nothing: what they left unpaid is not its.
func TestAnonymousChurnStarvesNoKnownKey(t *testing.T) {
	slots, good := newSlots(), newKey(t, 1)
	e := worker(slots, small(gated(t, testRule(limit.Limit{Count: 10, Window: limit.Minute}, per(100, 100)), good)))
	now := limit.Micros(limit.Hour)
	anonymous, customer := e.neighbours(1, plain, 200), e.neighbours(1, valid, 1)[0]
	refused := 0
	for i := range 300 {
		for range 10 {
			decide(e, from(anonymous[i%len(anonymous)], now))
		}
		if i >= sharedWays && i%10 == 0 {
			if v := decide(e, Request{Now: now, Address: []byte(customer), Key: []byte(good), HasKey: true}); !v.Allowed {
				refused++
			}
		}
		now += limit.Second
	}
	if refused > 0 {
		t.Errorf("a known key was refused %d times of 30", refused)
	}
}

// What the wider network refuses, for as long as it does, is not taken from the narrower one.
func TestALongRefusalByOneBucketDrainsNoOther(t *testing.T) {
	b := testRule(limit.Limit{Count: 1, Window: limit.Minute, Burst: 8}, per(1, 1))
	b.Rule.OuterV6, b.Rule.OuterAnonymous, b.Rule.OuterValid = 48, per(10, 10), per(10, 10)
	e := worker(newSlots(), b)
	now := limit.Micros(limit.Hour)
	for i := range 100 { // others of the /48 take each token that comes
		for j := range 11 {
			decide(e, from(fmt.Sprintf("[2001:db8:0:%x::1]:1", 1+11*i+j), now))
		}
		if v := decide(e, from("[2001:db8::1]:1", now)); v.Allowed {
			t.Fatalf("call %d: %+v, want refused by the /48", i, v)
		}
		now += 100 * limit.Millisecond
	}
	now += 2 * limit.Second
	admitted := 0
	for decide(e, from("[2001:db8::1]:1", now)).Allowed {
		admitted++
	}
	if admitted != 8 {
		t.Errorf("%d admitted once the /48 had room, want the 8 that nobody spent", admitted)
	}
}
