package valkey

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

var (
	hourly = limit.Limit{Count: 2, Window: limit.Hour}
	roomy  = limit.Limit{Count: 100, Window: limit.Hour}
)

// statuses are those of outcomes, in short; a charge that was made has a "+".
func statuses(outcomes []limiter.Outcome) string {
	var b strings.Builder
	for _, o := range outcomes {
		b.WriteString([]string{"admitted", "refused", "foreign", "unmade", "lost"}[o.Status])
		if o.Charged {
			b.WriteByte('+')
		}
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

func want(t testing.TB, outcomes []limiter.Outcome, statusesWanted string) {
	t.Helper()
	if got := statuses(outcomes); got != statusesWanted {
		t.Errorf("%s, want %s", got, statusesWanted)
	}
}

// left is what a counter has left, by a peek.
func (f *live) left(now limit.Micros, c limiter.Charge) int64 {
	f.t.Helper()
	c.Cost, c.Existing, c.Shadow = 0, false, false
	return f.take(now, c)[0].Decision.Remaining
}

func TestAllOfACallIsChargedOrNone(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	now := 1000 * limit.Hour
	for i, full := range algorithms {
		charges, keys := []limiter.Charge{}, []string{}
		for j, a := range algorithms {
			c := chargeOf(10*i+j, a, roomy, 3)
			if a == full {
				c.Limit.Count = 5
			}
			charges, keys = append(charges, c), append(keys, keyOf(10*i+j))
		}
		want(t, f.take(now, charges...), strings.TrimSpace(strings.Repeat("admitted+ ", 7)))
		var before []string
		for _, key := range keys {
			before = append(before, f.dump(key))
		}
		refused := slices.Repeat([]string{"admitted"}, 7)
		refused[i] = "refused"
		now += limit.Millisecond
		for range 3 {
			outcomes := f.take(now, charges...)
			want(t, outcomes, strings.Join(refused, " "))
			for j, o := range outcomes {
				if d := o.Decision; d.Remaining != charges[j].Limit.Count-3 || d.Allowed != (j != i) || o.AskAgain != d.RetryAfter {
					t.Errorf("%s full, %s: %+v", full, charges[j].Algorithm, o)
				}
			}
		}
		for j, key := range keys {
			if f.dump(key) != before[j] {
				t.Errorf("%s full: the refusal wrote %s", full, charges[j].Algorithm)
			}
		}
	}
}

func TestARefusalMakesNoCounterAndExtendsNone(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	now := 1000 * limit.Hour
	for n, a := range algorithms {
		one, other := chargeOf(10*n, a, hourly, 2), chargeOf(10*n+1, a, roomy, 1)
		f.take(now, one)
		until, err := f.do("PEXPIRETIME", keyOf(10*n)).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		f.take(now+limit.Second, one, other)
		f.take(now+limit.Second, chargeOf(10*n+1, a, roomy, 101))
		if f.exists(keyOf(10*n + 1)) {
			t.Errorf("%s: a refusal made a counter", a)
		}
		if again, err := f.do("PEXPIRETIME", keyOf(10*n)).AsInt64(); err != nil || again != until {
			t.Errorf("%s: a refusal moved the expiry from %d to %d, %v", a, until, again, err)
		}
	}
}

func TestALostExpiryIsGivenBackByAnyCall(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	now := 1000 * limit.Hour
	for n, a := range algorithms {
		c := chargeOf(n, a, hourly, 2)
		f.take(now, c)
		kept := f.ttl(keyOf(n))
		persist := func() {
			if err := f.do("PERSIST", keyOf(n)).Error(); err != nil {
				t.Fatal(err)
			}
		}
		persist()
		want(t, f.take(now, c), "refused")
		if ttl := f.ttl(keyOf(n)); ttl > kept+1000 || ttl < kept-1000 {
			t.Errorf("%s: after a refusal it has a TTL of %d ms, want %d", a, ttl, kept)
		}
		persist()
		f.take(now, chargeOf(n, a, limit.Limit{Count: 3, Window: limit.Hour}, 1), chargeOf(100+n, a, hourly, 3))
		if ttl := f.ttl(keyOf(n)); ttl <= 0 || ttl > 2*3_600_000 {
			t.Errorf("%s: beside a refusal it has a TTL of %d ms", a, ttl)
		}
	}
}

func TestShadowChargesAreDecidedAlone(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	now := 1000 * limit.Hour
	for i, a := range algorithms {
		n := 10 * i
		enforced, full, shadow, shadowFull := chargeOf(n, a, roomy, 1), chargeOf(n+1, a, hourly, 2), chargeOf(n+2, a, roomy, 1), chargeOf(n+3, a, hourly, 2)
		shadow.Shadow, shadowFull.Shadow = true, true
		f.take(now, full)
		f.take(now, shadowFull)
		want(t, f.take(now, enforced, shadow, shadowFull), "admitted+ admitted+ refused")
		want(t, f.take(now, enforced, full, shadow, shadowFull), "admitted refused admitted+ refused")
		if e, s := f.left(now, enforced), f.left(now, shadow); e != 99 || s != 98 {
			t.Errorf("%s: %d and %d left, want 99 and 98", a, e, s)
		}
	}
}

func TestAChargeOfAnExistingCounterMakesNone(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	now := 1000 * limit.Hour
	for i, a := range algorithms {
		n := 10 * i
		new, other := chargeOf(n, a, roomy, 1), chargeOf(n+1, a, roomy, 1)
		new.Existing = true
		want(t, f.take(now, new, other), "unmade admitted")
		if f.exists(keyOf(n)) || f.exists(keyOf(n+1)) {
			t.Errorf("%s: a counter was made", a)
		}
		new.Existing = false
		if o := f.take(now, new, other); !o[0].Made || !o[1].Made {
			t.Errorf("%s: %+v were not made", a, o)
		}
		new.Existing = true
		o := f.take(now, new, other)
		want(t, o, "admitted+ admitted+")
		if o[0].Made || o[1].Made {
			t.Errorf("%s: %+v were made twice", a, o)
		}
	}
}

func TestACallWithAnIDIsChargedOnce(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	now := 1000 * limit.Hour
	for i, a := range algorithms {
		n := 10 * i
		shadow := chargeOf(n+1, a, roomy, 1)
		shadow.Shadow = true
		charges := []limiter.Charge{chargeOf(n, a, hourly, 2), shadow}
		id := byte(i + 1)
		want(t, f.takeAs(id, now, charges...), "admitted+ admitted+")
		o := f.takeAs(id, now, charges...)
		want(t, o, "admitted admitted")
		if !o[0].Decision.Allowed || o[0].Decision.RetryAfter != 0 || o[0].AskAgain != 0 {
			t.Errorf("%s: repeated: %+v", a, o[0])
		}
		if l, s := f.left(now, charges[0]), f.left(now, shadow); l != 0 || s != 99 {
			t.Errorf("%s: %d and %d left after a repeated call, want 0 and 99", a, l, s)
		}
		key := idName(&charges[0].Counter, limiter.CallID{id})
		if ttl, err := f.do("PTTL", key).AsInt64(); err != nil || ttl < 59_000 || ttl > 60_000 {
			t.Errorf("%s: the id is kept for %d ms, %v", a, ttl, err)
		}
		want(t, f.takeAs(id+100, now, charges[0]), "refused")
		if f.exists(idName(&charges[0].Counter, limiter.CallID{id + 100})) {
			t.Errorf("%s: a refused call is remembered", a)
		}
		f.refund(now, limiter.CallID{id}, charges, []limiter.Outcome{{Charged: true, At: now}, {Charged: true, At: now}})
		if l, s := f.left(now, charges[0]), f.left(now, shadow); f.exists(key) || l != 2 || s != 100 {
			t.Errorf("%s: given back, %d and %d left, id remembered %v", a, l, s, f.exists(key))
		}
		want(t, f.takeAs(id, now, charges...), "admitted+ admitted+")
	}
}

func TestANewSecretTakesTheFormerCountersOverAtTheSwitch(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	now := 1000 * limit.Hour
	f.switchAt = now + limit.Minute
	for i, a := range algorithms {
		n := 10 * i
		l := limit.Limit{Count: 10, Window: limit.Hour}
		c := chargeOf(n, a, l, 2)
		c.Former = name(n + 1)
		want(t, f.take(now, c), "admitted+")
		want(t, f.take(f.switchAt-1, c), "admitted+")
		if f.exists(keyOf(n)) || !f.exists(keyOf(n+1)) {
			t.Fatalf("%s: before the switch the counter has the new name", a)
		}
		before := f.dump(keyOf(n + 1))
		wide := c
		wide.Cost = 9
		want(t, f.take(f.switchAt, wide), "refused")
		if f.exists(keyOf(n)) || f.dump(keyOf(n+1)) != before {
			t.Errorf("%s: a refusal wrote at the switch", a)
		}
		f.refundOne(f.switchAt, c, now) // of what was charged before the switch
		if f.exists(keyOf(n)) {
			t.Errorf("%s: a refund made a counter", a)
		}
		given := int64(2)
		if a == rule.LeakyQueue {
			given = 0 // its place has passed on to the second call
		}
		if left := f.left(f.switchAt, c); left != 10-4+given {
			t.Errorf("%s: at the switch %d left, want %d", a, left, 10-4+given)
		}
		o := f.take(f.switchAt, c)
		want(t, o, "admitted+")
		if left := f.left(f.switchAt, c); o[0].Made || left != 10-6+given || !f.exists(keyOf(n)) || f.exists(keyOf(n+1)) {
			t.Errorf("%s: after the switch %d left, want %d; old name kept %v, made %v", a, left, 10-6+given, f.exists(keyOf(n+1)), o[0].Made)
		}
		if ttl := f.ttl(keyOf(n)); ttl <= 0 {
			t.Errorf("%s: the new name has a TTL of %d", a, ttl)
		}
		want(t, f.take(f.switchAt+1, c), "admitted+")
	}
}

func TestAStaleCallDoesNothing(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	now := 1000 * limit.Hour
	c := []limiter.Charge{chargeOf(1, rule.GCRA, roomy, 1)}
	for late, stale := range map[limit.Micros]bool{0: false, 1: true} {
		reply, err := f.send(f.library.take(now, 0, limiter.CallID{byte(late + 1)}, c), now+late).ToString()
		if err != nil {
			t.Fatal(err)
		}
		at, was, err := f.library.readTake(reply, c, make([]limiter.Outcome, 1))
		if was != stale || err != nil || at != now+late {
			t.Errorf("%d µs late: stale %v at %d, %v", late, was, at, err)
		}
	}
	if left := f.left(now+1, c[0]); left != 99 {
		t.Errorf("%d left, want 99", left)
	}
}

func TestARefundIsOfWhatIsOwedAndMakesNothing(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	now := 1000 * limit.Hour
	for n, a := range algorithms {
		c := chargeOf(n, a, limit.Limit{Count: 10, Window: limit.Hour}, 4)
		f.refundOne(now, c, now)
		if f.exists(keyOf(n)) {
			t.Fatalf("%s: a refund made a counter", a)
		}
		o := f.take(now, c)
		more := c
		more.Cost = 9
		if a != rule.LeakyQueue { // which knows its last call by its cost
			f.refundOne(now, more, o[0].At)
		} else {
			f.refundOne(now, c, o[0].At)
		}
		if left := f.left(now, c); left != 10 {
			t.Errorf("%s: %d left after all was given back", a, left)
		}
		// Not charged: nothing is given back.
		f.take(now, c)
		f.refund(now, limiter.CallID{}, []limiter.Charge{c}, []limiter.Outcome{{At: now}})
		if left := f.left(now, c); left != 6 {
			t.Errorf("%s: %d left after nothing was given back, want 6", a, left)
		}
	}
}

func TestUndoneIsTheCallThatWasNotMade(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	now := 1000 * limit.Hour
	for n, a := range algorithms {
		c := []limiter.Charge{chargeOf(n, a, roomy, 7)}
		f.take(now, c...)
		r := f.library.take(limit.Micros(limit.MaxCount), 0, limiter.CallID{}, c)
		before := f.peek(now+1, c...)
		reply, err := f.send(r, now+1).ToString()
		if err != nil {
			t.Fatal(err)
		}
		outcomes := make([]limiter.Outcome, 1)
		if err := f.library.undone(reply, c, outcomes); err != nil || outcomes[0] != before[0] {
			t.Errorf("%s: %+v, want %+v; %v", a, outcomes, before, err)
		}
	}
}

func TestABrokenReplyIsAnError(t *testing.T) {
	c := []limiter.Charge{chargeOf(1, rule.GCRA, roomy, 1)}
	whole := "\x01\x00\x00\x00\x00\x00\x00\x00\x04" + strings.Repeat("\x01", gcraSize)
	if _, _, err := production.readTake(whole, c, make([]limiter.Outcome, 1)); err != nil {
		t.Fatal(err)
	}
	for _, reply := range []string{"", "x", whole[:8], whole[:9], whole[:len(whole)-1], whole + "x", "\x04" + whole[1:], whole[:8] + "\x08" + whole[9:], fmt.Sprint(12)} {
		if _, _, err := production.readTake(reply, c, make([]limiter.Outcome, 1)); err == nil {
			t.Errorf("%q was read", reply)
		}
	}
}

// While a secret is replaced, most counters are new ones that have neither name yet, and the counter that a rule's principals
// share has one name by both secrets.
func TestANewSecretChargesCountersThatWereNeverUsed(t *testing.T) {
	f := newLive(t, withClock)
	now := 1000 * limit.Hour
	f.switchAt = now
	l := limit.Limit{Count: 3, Window: limit.Hour}
	for i, a := range algorithms {
		unused, shared, bystander := chargeOf(10*i, a, l, 2), chargeOf(10*i+2, a, l, 2), chargeOf(10*i+4, a, l, 2)
		unused.Former = name(10*i + 1)
		shared.Former = shared.Counter
		bystander.Former = name(10*i + 5)
		want(t, f.take(now, unused, bystander), "admitted+ admitted+")
		want(t, f.take(now, unused), "refused")
		if left := f.left(now, bystander); left != 1 {
			t.Errorf("%s: a bystander has %d left, want 1", a, left)
		}
		want(t, f.take(now, shared), "admitted+")
		want(t, f.take(now, shared), "refused")
		f.refundOne(now, shared, now)
		if left := f.left(now, shared); left != 3 {
			t.Errorf("%s: given back, %d left of 3", a, left)
		}
	}
}
