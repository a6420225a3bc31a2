package campaign

import (
	"fmt"
	"slices"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// ledger holds what was admitted to the bounds as they are stated, from first principles: it knows no state of an
// algorithm. Under each counter, and of each process that fell back:
//
//   - fixed window: in each window, admitted ≤ count;
//   - sliding log: in any window, admitted ≤ count;
//   - sliding window: at each admission, this window + the last × the share of it still in view ≤ count;
//   - buckets, queue: in any time t, admitted ≤ burst + count × t ÷ window.
//
// What a failover lost adds itself: it is admitted, and forgotten. So does what is given back of it, which others paid, and
// what is given back twice; to a bucket, what is given back at all, since by then it may have refilled. Where the limit
// changed on the way, the largest holds; and a bucket that was full by a smaller capacity is as one never used, which adds
// the difference each time that a larger one is in force again.
type ledger struct {
	seen       map[string]modelled
	largest    map[string]limit.Limit
	smallest   map[string]int64 // capacity
	admissions []admission
	marks      []int
}

type admission struct {
	key, of string // the counter; "local" of a process alone
	m       modelled
	at      limit.Micros
	cost    int64 // 0: lost or refunded
	allowed int64 // more than the bound, for what was given back
	lost    bool
}

// forget leaves an admission out of all sums; what is given back of it is still allowed.
func (a *admission) forget() { a.cost, a.lost = 0, true }

func newLedger() *ledger {
	return &ledger{seen: map[string]modelled{}, largest: map[string]limit.Limit{}, smallest: map[string]int64{}}
}

func (l *ledger) see(all []modelled) {
	for _, m := range all {
		capacity := m.limit.Capacity()
		before, known := l.seen[m.key]
		if !known {
			l.smallest[m.key] = capacity
		}
		l.smallest[m.key] = min(l.smallest[m.key], capacity)
		if more := capacity - l.smallest[m.key]; known && before.limit != m.limit && more > 0 && m.algorithm.HasBurst() {
			l.admissions = append(l.admissions, admission{key: m.key, m: m, allowed: more})
		}
		l.seen[m.key] = m
		largest := l.largest[m.key]
		largest.Count, largest.Burst, largest.Window = max(largest.Count, m.limit.Count), max(largest.Burst, m.limit.Capacity()), m.limit.Window
		l.largest[m.key] = largest
	}
}

func (l *ledger) admit(of string, m modelled, at limit.Micros) int {
	l.admissions = append(l.admissions, admission{key: m.key, of: of, m: m, at: at, cost: m.cost})
	return len(l.admissions) - 1
}

// lose forgets what the store forgets: what was admitted from the n-th admission on.
func (l *ledger) lose(n int) {
	for i := n; i < len(l.admissions); i++ {
		if a := &l.admissions[i]; a.of == "" {
			a.forget()
		}
	}
	// A refund that was lost as well, of a call before: it is charged again, to the strict side.
}

func (l *ledger) refund(i, times int) {
	a := &l.admissions[i]
	bucket := a.m.algorithm.HasBurst()
	if a.lost || bucket {
		l.free([]modelled{a.m})
		times--
	}
	if times >= 1 && !bucket && !a.lost {
		a.cost = 0
		times--
	}
	for ; times > 0; times-- {
		l.free([]modelled{a.m})
	}
}

// free notes that what was given back may be admitted beyond the bound.
func (l *ledger) free(all []modelled) {
	for _, m := range all {
		l.admissions = append(l.admissions, admission{key: m.key, m: m, allowed: m.cost})
	}
}

// forget begins a counter, or one of a process, anew.
func (l *ledger) forget(key string) {
	for i := range l.admissions {
		if a := &l.admissions[i]; a.key == key {
			a.forget()
		}
	}
}

// clockStepped begins all anew: instants before and after cannot be compared.
func (l *ledger) clockStepped(by limit.Micros) {
	if by < 0 {
		for i := range l.admissions {
			l.admissions[i].forget()
		}
	}
}

// check is the error of a counter that was admitted more from than its bound.
func (l *ledger) check() error {
	byKey := map[string][]admission{}
	for _, a := range l.admissions {
		byKey[a.key] = append(byKey[a.key], a)
	}
	for key, all := range byKey {
		m := all[0].m
		bound := l.largest[m.key]
		extra := int64(0)
		for _, a := range all {
			extra += a.allowed
		}
		all = slices.DeleteFunc(all, func(a admission) bool { return a.cost == 0 })
		slices.SortStableFunc(all, func(a, b admission) int { return int(a.at - b.at) })
		if over := most(m.algorithm, bound, all) - extra; over > bound.Burst && m.algorithm.HasBurst() || over > bound.Count && !m.algorithm.HasBurst() {
			return fmt.Errorf("%s admitted %d and %d given back or lost, at most %+v", key, over+extra, extra, bound)
		}
	}
	return nil
}

// most is the most that was in use at once.
func most(a rule.Algorithm, l limit.Limit, all []admission) (most int64) {
	switch {
	case a.HasBurst(): // what a bucket of the largest rate has not drained yet, in parts of a window
		level, last := int64(0), limit.Micros(0)
		for _, x := range all {
			level = max(0, level-l.Count*int64(x.at-last)) + x.cost*int64(l.Window)
			if x.at-last > 2*l.Window*limit.Micros(l.Burst) {
				level = x.cost * int64(l.Window)
			}
			last = x.at
			most = max(most, (level+int64(l.Window)-1)/int64(l.Window))
		}
	case a == rule.SlidingLog:
		for i := range all {
			sum := int64(0)
			for j := i; j >= 0 && all[i].at-all[j].at < l.Window; j-- {
				sum += all[j].cost
			}
			most = max(most, sum)
		}
	default:
		for i := range all {
			since := all[i].at - all[i].m.offset
			window, into := since/l.Window, int64(since%l.Window)
			this, last := int64(0), int64(0)
			for j := i; j >= 0; j-- {
				switch (all[j].at - all[j].m.offset) / l.Window {
				case window:
					this += all[j].cost
				case window - 1:
					last += all[j].cost
				}
			}
			if a == rule.SlidingWindow {
				this += (last*(int64(l.Window)-into) + int64(l.Window) - 1) / int64(l.Window)
			}
			most = max(most, this)
		}
	}
	return most
}
