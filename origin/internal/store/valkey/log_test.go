package valkey

import (
	"context"
	"strconv"
	"testing"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
	"github.com/weirproject/weir/shared/rule"
)

// A log of hundreds of entries is searched, goes out of view in front, and is written anew: over thousands of calls it
// must stay the one of package limit.
func TestALongLogIsTheSameLog(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	r := newRand(t)
	calls := 3000
	if testing.Short() {
		calls = 1000
	}
	for n, count := range []int64{40, 300, limit.MaxLogCount} {
		l := limit.Limit{Count: count, Window: limit.Second}
		now := limit.Hour
		model := limittest.New("sliding-log", l, now, 0)
		type charged struct {
			cost int64
			at   limit.Micros
		}
		var charges []charged
		longest, admitted, refused, refunded := 0, 0, 0, 0
		for i := range calls {
			gap := 2 * int64(l.Window) / min(count, 600) // of 1.5 a call: more than there is room for, but for the last
			now += limit.Micros(r.Int64N(gap))
			if r.IntN(500) == 0 {
				now += limit.Micros(r.Int64N(int64(l.Window)))
			}
			late := now
			if r.IntN(10) == 0 {
				late -= limit.Micros(r.Int64N(10 * gap))
			}
			if !f.exists(keyOf(n)) {
				model = limittest.New("sliding-log", l, now, 0)
			}
			c := chargeOf(n, rule.SlidingLog, l, 1+r.Int64N(2))
			switch {
			case r.IntN(20) == 0 && len(charges) > 0:
				b := max(0, len(charges)-1-r.IntN(1<<r.IntN(9)))
				c.Cost = charges[b].cost
				f.refundOne(late, c, charges[b].at)
				model.Refund(l, late, c.Cost, charges[b].at)
				charges = append(charges[:b], charges[b+1:]...)
				refunded++
				f.same(keyOf(n), rule.SlidingLog, l, late, model, "refund")
			case r.IntN(10) == 0:
				c.Cost = r.Int64N(count + 1)
				if got, want := f.peek(late, c)[0].Decision, model.Peek(l, late, c.Cost); got != want {
					t.Fatalf("call %d of %+v, a peek of %d: %+v, want %+v", i, l, c.Cost, got, want)
				}
			default:
				got, want := f.take(late, c)[0], model.Take(l, late, c.Cost)
				if got.Decision != want || (got.Status == limiter.Admitted) != want.Allowed {
					t.Fatalf("call %d of %+v, of %d at %d: %+v, want %+v", i, l, c.Cost, late, got, want)
				}
				if want.Allowed {
					charges = append(charges, charged{c.Cost, late})
					admitted++
					if next := model.Peek(l, late, 1); got.Next != next {
						t.Fatalf("call %d of %+v: next %+v, want %+v", i, l, got.Next, next)
					}
				} else {
					refused++
				}
			}
			if i%50 == 0 {
				f.same(keyOf(n), rule.SlidingLog, l, late, model, "in between")
			}
			longest = max(longest, len(model.State().([]int64))/2)
		}
		t.Logf("count %d: up to %d entries, %d admitted, %d refused, %d refunds", count, longest, admitted, refused, refunded)
		if longest < int(min(count, 600))/3 || admitted < calls/4 || refunded < calls/50 || count < limit.MaxLogCount && refused < 20 {
			t.Errorf("count %d: the traffic shows too little", count)
		}
	}
}

// A full log of 10,000 entries is as much as there ever is: read, refused, given back to and charged, in bounded memory.
func TestAFullLogIsBounded(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	l := limit.Limit{Count: limit.MaxLogCount, Window: limit.Minute}
	c := chargeOf(1, rule.SlidingLog, l, 1)
	now := limit.Hour
	f.takeAll(c, &now, limit.Millisecond, int(l.Count))
	before := f.dump(keyOf(1))
	for range 3 {
		if o := f.take(now, c)[0]; o.Status != limiter.Refused || o.Decision.RetryAfter != limit.Hour+limit.Millisecond+limit.Minute-now {
			t.Fatalf("%+v", o)
		}
	}
	if f.dump(keyOf(1)) != before {
		t.Error("a refusal wrote")
	}
	now += l.Window // from here on entries come one by one, and go so
	largest := int64(0)
	for range 60 {
		f.takeAll(c, &now, l.Window/limit.Micros(l.Count), 500) // as many as the limit lets in
		size, err := f.do("MEMORY", "USAGE", keyOf(1)).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, size)
	}
	t.Logf("a full log takes up to %d bytes", largest)
	if length, err := f.do("STRLEN", keyOf(1)).AsInt64(); err != nil || length > 25+9*limit.MaxLogCount*5/4+9 || largest > 256<<10 {
		t.Errorf("%d bytes of entries, %d with all, %v", length, largest, err)
	}
}

// takeAll takes n times in one pipeline, a gap before each, all to be admitted.
func (f *live) takeAll(c limiter.Charge, now *limit.Micros, gap limit.Micros, n int) {
	f.t.Helper()
	charges := []limiter.Charge{c}
	r := f.library.take(limit.Micros(limit.MaxCount), 0, limiter.CallID{}, charges)
	commands := make(valkey.Commands, n)
	for i := range commands {
		*now += gap
		commands[i] = f.client.B().Fcall().Function(r.function).Numkeys(1).Key(r.keys...).Arg(r.args[0], strconv.FormatInt(int64(*now), 10)).Build()
	}
	outcomes := make([]limiter.Outcome, 1)
	for _, result := range f.client.DoMulti(context.Background(), commands...) {
		reply, err := result.ToString()
		if err != nil {
			f.t.Fatal(err)
		}
		if _, _, err := f.library.readTake(reply, charges, outcomes); err != nil || !outcomes[0].Charged {
			f.t.Fatalf("%+v, %v", outcomes, err)
		}
	}
}
