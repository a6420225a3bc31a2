package faults

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// tallyLimit is that of the rule tally, in 24 hours.
const tallyLimit = 200

// What really passes through a failover that loses a tail is counted by the demo API: at most the limit, what the replica
// had not heard of, and what the origins let pass by themselves while nobody kept the counter, at most the limit parted by
// the processes that they know of.
func TestATallyThroughAFailoverStaysWithinTheBound(t *testing.T) {
	t.Parallel()
	const processes = 2
	w, api := newWorld(t, "replicated"), startTally(t)
	var number atomic.Int64
	var callers []*caller
	for range processes {
		o := startOrigin(t, settings{store: w.store("", time.Second), upstream: api.url, rules: originRules})
		callers = append(callers, newCaller(t, o, home, &number))
	}
	awaitTrue(t, "both origins count in the store", func() bool {
		for _, c := range callers {
			if a := c.call("/tally"); !a.counted {
				return false
			}
		}
		return true
	})
	w.locate()
	count := func(labels ...string) (all int) {
		for _, c := range callers {
			all += int(c.to.metric("weir_decisions_total", append(labels, `rule="tally"`)...))
		}
		return all
	}
	send := func(n int) (passed int) {
		left := n
		for _, a := range pace(callers, []string{"/tally"}, 100, func(time.Time) bool { left--; return left < 0 }) {
			switch {
			case a.err != nil || a.status != 200 && a.status != 429:
				t.Errorf("%v", a)
			case a.status == 200:
				passed++
			}
		}
		return passed
	}

	send(60)
	faultCommands["part-replica"].run(w)
	before := count(`outcome="allow"`, `source="store"`)
	send(40)
	tail := count(`outcome="allow"`, `source="store"`) - before
	faultCommands["kill"].run(w)
	send(100) // the origins by themselves
	faultCommands["await-replica"].run(w)
	awaitTrue(t, "both origins count in the store again", func() bool {
		for _, c := range callers {
			if before := c.to.metric("weir_decisions_total", `rule="tally"`, `source="store"`); c.call("/tally").err != nil || c.to.metric("weir_decisions_total", `rule="tally"`, `source="store"`) == before {
				return false
			}
		}
		return true
	})
	send(2 * tallyLimit) // more than can be left
	if passed := send(20); passed != 0 {
		t.Errorf("%d calls passed after the limit was used up", passed)
	}

	passed := api.passed(t)
	byStore, byItself := count(`outcome="allow"`, `source="store"`), count(`outcome="allow"`, `source="local"`)
	share := 0
	for _, c := range callers {
		live := max(1, int(c.to.metric("weir_live_processes")))
		share += max(1, tallyLimit/live)
	}
	fmt.Printf("tally: %d passed at the API, limit %d, bound %d = limit + lost tail %d + shares of %d processes %d; by the store %d, by themselves %d\n",
		passed, tallyLimit, tallyLimit+tail+share, tail, processes, share, byStore, byItself)
	if passed != byStore+byItself {
		t.Errorf("%d passed at the API, the origins admitted %d", passed, byStore+byItself)
	}
	if byStore > tallyLimit+tail {
		t.Errorf("the store admitted %d, want at most %d and a tail of %d", byStore, tallyLimit, tail)
	}
	if byItself > share || byItself == 0 {
		t.Errorf("the origins admitted %d by themselves, want 1 to %d", byItself, share)
	}
	if tail == 0 || byStore <= tallyLimit {
		t.Errorf("no tail was lost: %d charged without the replica, %d admitted by the store\n%s", tail, byStore, strings.Join(callers[0].to.log, ""))
	}
}
