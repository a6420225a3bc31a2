package numbers

import (
	"fmt"
	"math"
	"testing"

	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// hour is when the made-up seconds begin, at the start of an hour.
const hour = 500_000 * limit.Hour

// yearOn is what a service that has grown asks in a second: 20,000 keys, 4 calls each, all within their limits. It gives the
// commands a second.
func yearOn(t *testing.T, server *valkeytest.Server) (perSecond int64) {
	t.Helper()
	const rate = 80_000
	c := &clock{}
	l := process(t, plainCommands(t, server, c), c, "version: 1\nrules:\n- {name: per-key, where: origin, by: [key], limit: 600/1m}\n")
	part := share(50)
	known := make([]keys.Key, rate/4/part)
	for n := range known {
		known[n].ID = fmt.Sprint("key-", n)
	}
	before := server.Calls()
	for n := range rate / part {
		c.set(hour + limit.Micros(n)*limit.Second/limit.Micros(rate/part))
		if !check(t, l, get(&known[n%len(known)])) {
			t.Fatal("refused within the limit")
		}
	}
	return ran(t, server, before) * int64(part)
}

// leaked is a key of 50 calls a second that 40 processes see 100,000 of. The limit is by the hour and was used up in the
// hour before, so that it frees at that rate evenly, and no counter is gone before its second is over.
const (
	leakedRule  = "version: 1\nrules:\n- {name: per-key, where: origin, by: [key], limit: 180000/1h}\n"
	leakedHour  = 180_000
	leakedRate  = 100_000
	processes   = 40
	leakedLimit = 50
)

func TestALeakedKeyBesideAYearOfGrowth(t *testing.T) {
	server := valkeytest.Start(t)
	base := yearOn(t, server)
	if base != 240_000 {
		t.Errorf("80,000 calls/s cost %d commands/s, want 240,000", base)
	}
	report(t, "year on, 80,000/s: commands a call", "3", fmt.Sprint(float64(base)/80_000))
	report(t, "the same: commands/s", "240,000", thousands(base))

	without := base + leakedWithout(t, server)
	if without != 639_950 {
		t.Errorf("without a deny cache %d commands/s, want 639,950", without)
	}
	report(t, "leaked key +100,000/s at 50/s, 40 processes, no deny cache: commands/s", "639,950", thousands(without))

	leaked, admitted := leakedWith(t, server)
	if leaked > leakedLimit*(3+(processes-1)*4) {
		t.Errorf("with a deny cache the leaked key costs %d commands/s, want at most %d", leaked, leakedLimit*(3+(processes-1)*4))
	}
	// One that admits too little is cheap as well: at least one opening in two is used.
	if admitted > leakedLimit || admitted < leakedLimit/2 {
		t.Errorf("%d calls of the leaked key admitted a second, want 25 to 50", admitted)
	}
	report(t, "the same with the deny cache: commands/s", "≤ 247,950", fmt.Sprintf("%s (leaked key admitted %d/s)", thousands(base+leaked), admitted))
}

// leakedWithout is what the leaked key costs without a deny cache.
func leakedWithout(t *testing.T, server *valkeytest.Server) (perSecond int64) {
	t.Helper()
	c := &clock{}
	s := plainCommands(t, server, c)
	call := &limiter.Call{Charges: make([]limiter.Charge, 1), Outcomes: make([]limiter.Outcome, 1)}
	take := func(cost int64) {
		call.Charges[0] = limiter.Charge{Algorithm: rule.SlidingWindow, Limit: limit.Limit{Count: leakedHour, Window: limit.Hour}, Cost: cost}
		copy(call.Charges[0].Counter[:], "w1:{0000}:leaked-without-a-deny-cache-000000")
		if err := s.Take(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	}
	c.set(hour - limit.Second)
	take(leakedHour)
	part := share(10) // of a second
	before := server.Calls()
	for n := range leakedRate / part {
		c.set(hour + 10 + limit.Micros(n)*limit.Second/leakedRate)
		take(1)
	}
	c.set(hour + limit.Second/limit.Micros(part))
	return ran(t, server, before) * int64(part)
}

// leakedWith is what it costs in a second with one, and how many calls of it are admitted.
func leakedWith(t *testing.T, server *valkeytest.Server) (perSecond, admitted int64) {
	t.Helper()
	c := &clock{}
	c.set(hour - limit.Second)
	var all []*limiter.Limiter
	for range processes {
		all = append(all, process(t, plainCommands(t, server, c), c, leakedRule))
	}
	leaked := keys.Key{ID: "leaked"}
	r := get(&leaked)
	r.Cost = leakedHour
	check(t, all[0], r)
	r.Cost = 0
	seconds := 3 / share(3)
	// Half a second in which the processes first learn of it.
	play := func(from, to limit.Micros) (admitted int64) {
		for at, n := from, 0; at < to; n++ {
			c.set(at)
			if check(t, all[n%processes], r) {
				admitted++
			}
			at += limit.Second / leakedRate
		}
		return admitted
	}
	play(hour, hour+limit.Second/2)
	before := server.Calls()
	admitted = play(hour+limit.Second/2, hour+limit.Second/2+limit.Micros(seconds)*limit.Second)
	commands := float64(ran(t, server, before)) / float64(seconds)
	return int64(math.Round(commands)), admitted / int64(seconds)
}
