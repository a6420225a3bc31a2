package edge

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/limit"
)

// Public case 24: whoever was limited is still limited, or stricter, after a million others passed through.
func TestEvictionIsNoAmnesty(t *testing.T) {
	addresses := 1_000_000
	if testing.Short() {
		addresses = 200_000
	}
	l := limit.Limit{Count: 1, Window: 10 * limit.Second, Burst: 10}
	slots, b := newSlots(), testRule(l, l)
	e, fresh := worker(slots, b), worker(slots, b)
	now := limit.Micros(limit.Hour)
	drain := func(address string) {
		for decide(e, from(address, now)).Allowed {
		}
	}
	victims := make([]string, 100)
	for i := range victims {
		victims[i] = fmt.Sprintf("198.51.100.%d:1", i)
		drain(victims[i])
	}
	for i := range addresses { // one call each: nearly full, so these are dropped before the victims are
		decide(e, from(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), now))
		now += 10
	}
	now += 20 * limit.Second
	for i := range 100_000 { // more than there is room for, each emptier than a victim is by now
		drain(fmt.Sprintf("11.%d.%d.%d:1", i>>16, i>>8&255, i&255))
	}
	elapsed := now - limit.Hour
	stayed := int(elapsed / (10 * limit.Second))
	evicted := 0
	for _, victim := range victims {
		if !e.holds(victim, slots) {
			evicted++
		}
		admitted := 0
		for decide(fresh, from(victim, now)).Allowed { // another worker, without memory of its own
			admitted++
		}
		if admitted > stayed {
			t.Errorf("%s came back to %d calls, who stayed has %d", victim, admitted, stayed)
		}
	}
	t.Logf("%d of %d limited clients had been evicted; %d slots in use", evicted, len(victims), len(slots.values))
	if evicted < len(victims)/2 {
		t.Error("too few were evicted to show anything")
	}
	if len(slots.values) > testSlots {
		t.Errorf("%d slots, want %d at most", len(slots.values), testSlots)
	}
}

// holds tells whether a client's bucket is still in its slot.
func (e *Engine) holds(address string, slots *envoySlots) bool {
	tag := e.plainTag(address)
	value, _, ok := slots.Get(e.slotOf(address))
	s, _ := decodeSet(value)
	for _, c := range s.ways {
		if ok && c.tag == tag {
			return true
		}
	}
	return false
}

// The same on one set, for any history: a bucket that was dropped and comes back is never above one that stayed.
func TestADroppedBucketNeverComesBackFuller(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p policies
		var limits [kinds]limit.Limit
		for k := range limits {
			limits[k] = per(rapid.Int64Range(1, 50).Draw(t, "count"), rapid.Int64Range(1, 100).Draw(t, "burst"))
		}
		p.set(limits)
		s := set{}
		stayed := map[uint64]*limit.TokenBucket{} // what each client would have if nobody were ever dropped
		now := limit.Micros(limit.Hour)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now += limit.Micros(rapid.Int64Range(0, 300_000).Draw(t, "gap"))
			tag := rapid.Uint64Range(1, 6).Draw(t, "client")<<kindBits | rapid.Uint64Range(0, uint64(kinds)-1).Draw(t, "kind")
			l := p.of[tag&kindMask].limit
			oracle, ok := stayed[tag]
			if !ok {
				full := limit.FullTokenBucket(l, now)
				oracle = &full
				stayed[tag] = oracle
			}
			c, _ := s.counter(tag, &p, now)
			got, want := c.bucket.Peek(l, now, 1), oracle.Peek(l, now, 1)
			if got.Remaining > want.Remaining {
				t.Fatalf("client %d has %d tokens, would have %d had it stayed", tag, got.Remaining, want.Remaining)
			}
			if got.Allowed {
				cost := rapid.Int64Range(1, got.Remaining).Draw(t, "cost")
				c.bucket, _ = c.bucket.Take(l, now, cost)
				*oracle, _ = oracle.Take(l, now, cost)
			}
		}
	})
}

func TestDroppedBeforeAPushIsLimitedAfterIt(t *testing.T) {
	policiesOf := func(l limit.Limit) (p policies) {
		p.set([kinds]limit.Limit{plain: l, valid: l})
		return p
	}
	for name, c := range map[string]struct{ before, after limit.Limit }{
		"slower":        {per(10, 100), per(1, 100)},
		"faster":        {per(1, 100), per(10, 100)},
		"larger bucket": {per(10, 100), per(10, 1000)},
		"the same":      {per(10, 100), per(10, 100)},
	} {
		t.Run(name, func(t *testing.T) {
			now := limit.Micros(limit.Hour)
			old, young := policiesOf(c.before), policiesOf(c.after)
			s := set{print: old.print}
			var stayed limit.TokenBucket
			for i := range uint64(sharedWays + 1) { // the last one drops one of the others, all as empty
				bucket, _ := s.counter((i+1)<<kindBits, &old, now)
				if i < sharedWays {
					bucket.bucket = limit.TokenBucket{Tokens: 3, Last: now}
					stayed = bucket.bucket
				}
			}
			dropped := uint64(0)
			for i := range uint64(sharedWays) {
				found := false
				for _, way := range s.ways {
					found = found || way.tag == (i+1)<<kindBits
				}
				if !found {
					dropped = (i + 1) << kindBits
				}
			}
			now += limit.Second
			s.rebase(&young, &old, now)
			// One way is full, so that its return drops nobody who raises the floor further.
			s.ways[0] = counter{tag: 1000 << kindBits, bucket: limit.FullTokenBucket(c.after, now)}
			back, _ := s.counter(dropped, &young, now)
			got := back.bucket.Peek(c.after, now, 1).Remaining
			if want := stayed.Peek(c.after, now, 1).Remaining; got > want {
				t.Errorf("came back to %d tokens, would have %d had it stayed", got, want)
			}
		})
	}
}

// While a limit is 0, its buckets count as full, and any other kind takes their place.
func TestDroppedWhileTheLimitWasZeroIsLimitedAfterIt(t *testing.T) {
	slots, good := newSlots(), newKey(t, 1)
	b := func(anonymous limit.Limit) bundle.Bundle {
		return small(gated(t, testRule(anonymous, per(1, 10)), good))
	}
	e := worker(slots, b(per(1, 100)))
	now := limit.Micros(limit.Hour)
	limited := e.neighbours(1, plain, sharedWays)
	for _, address := range limited {
		for decide(e, from(address, now)).Allowed {
		}
	}
	e.Install(b(per(0, 0)), now, 0)
	for _, address := range e.neighbours(1, valid, sharedWays) {
		decide(e, Request{Now: now, Address: []byte(address), Key: []byte(good), HasKey: true})
	}
	e.Install(b(per(1, 100)), now, 0)
	for _, address := range limited {
		if v := decide(e, from(address, now)); v.Allowed {
			t.Errorf("%s has tokens again: %+v", address, v)
		}
	}
	now += 100 * limit.Second
	if v := decide(e, from(limited[0], now)); !v.Allowed {
		t.Errorf("refused after a full refill: %+v", v)
	}
}

func TestASlotOfAnotherShapeLocksNobodyOutForGood(t *testing.T) {
	for name, value := range map[string][]byte{"empty": {}, "short": {1, 0, 0, 0}, "zeros": make([]byte, setSize), "long": make([]byte, 1000)} {
		slots := newSlots()
		e := worker(slots, testRule(per(1, 10), per(1, 10)))
		slot := e.slotOf("192.0.2.1:1")
		slots.Set(slot, value, 0)
		if v := decide(e, from("192.0.2.1:1", limit.Hour)); v.Allowed {
			t.Errorf("%s: whose history is lost starts with tokens", name)
		} else if !decide(e, from("192.0.2.1:1", limit.Hour+10*limit.Second)).Allowed {
			t.Errorf("%s: still refused after one full refill: %+v", name, v)
		}
	}
}
