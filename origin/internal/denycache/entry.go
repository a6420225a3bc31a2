package denycache

import (
	"sync"
	"sync/atomic"

	"github.com/weirproject/weir/shared/limit"
)

// entry is what is known of one counter that has refused. What [Cache.Enter] reads is atomic, so that a flood of one key
// waits for no lock; answers of the store, which are few, take turns.
type entry struct {
	refusal atomic.Pointer[refusal] // the last one, standing or opened; never nil
	lowest  atomic.Int64            // the smallest cost refused since the counter was fresh: a call below it is not counted
	room    atomic.Int64            // what the store had left when it was last heard
	reset   atomic.Int64            // limit.Micros: from here on all of the quota is, unless it is heard otherwise
	asking  atomic.Int64            // cost of the counted calls that are at the store
	sent    atomic.Int64            // how many were counted so far

	answers sync.Mutex
	heard   int64 // the last of those counted whose answer was learnt
}

// refusal is immutable.
type refusal struct {
	by    limit.Limit  // that was exhausted
	cost  int64        // calls of this cost and more are refused
	opens limit.Micros // the store is asked again from here on
	frees limit.Micros // such a call is admitted from here on, for all that was known; Never
	quota int64
}

// standsFor tells whether a refusal says that a call by this limit would be refused as well: one by a limit that admits more
// may pass.
func (r *refusal) standsFor(by limit.Limit) bool {
	return by.Count <= r.by.Count && by.Capacity() <= r.by.Capacity()
}

// refuses tells whether the refusal stands for a call of that cost by this limit.
func (e *entry) refuses(by limit.Limit, cost int64, now limit.Micros) (d limit.Decision, refused bool) {
	r := e.refusal.Load()
	if cost < r.cost || now >= r.opens || !r.standsFor(by) {
		return d, false
	}
	return e.decision(r, now.Until(r.frees), now, min(e.room.Load(), cost-1)), true
}

// stands is like refuses, until the refusal frees, but for what the store has left since.
func (e *entry) stands(by limit.Limit, cost int64, now limit.Micros) (d limit.Decision, stands bool) {
	r := e.refusal.Load()
	room := e.room.Load()
	if cost < r.cost || now >= r.frees || !r.standsFor(by) || room >= cost {
		return d, false
	}
	return e.decision(r, now.Until(r.frees), now, room), true
}

// between is a refusal for want of a place to ask from, which is worth no wait to speak of but for a cost that had a longer
// one.
func (e *entry) between(cost int64, now limit.Micros) limit.Decision {
	r, wait := e.refusal.Load(), limit.Micros(0)
	if cost >= r.cost {
		wait = now.Until(r.frees)
	}
	return e.decision(r, wait, now, 0)
}

// decision is a refusal from memory.
func (e *entry) decision(r *refusal, wait, now limit.Micros, remaining int64) limit.Decision {
	wait = max(1, wait)
	return limit.Decision{Limit: r.quota, Remaining: remaining, RetryAfter: wait, ResetAfter: max(wait, now.Until(limit.Micros(e.reset.Load())))}
}

// enter counts a call as asking, if there is a place for it: there is one while nobody asks, and as long as all who ask
// fit into what the store has left. Where no other process spends, none of them is refused.
func (e *entry) enter(cost int64, now limit.Micros) bool {
	room := e.room.Load() // before reset, which is written first: a new room is never taken with an old reset
	if now >= limit.Micros(e.reset.Load()) {
		room = max(room, e.refusal.Load().quota)
	}
	for {
		asking := e.asking.Load()
		if asking > 0 && cost > room-asking {
			return false
		}
		if e.asking.CompareAndSwap(asking, asking+cost) {
			return true
		}
	}
}

// admitted notes what an admission left. Answers are taken in the order in which the calls were sent, so that one that
// was overtaken on its way back does not promise room that is gone.
func (e *entry) admitted(number int64, d limit.Decision, now limit.Micros) {
	e.answers.Lock()
	defer e.answers.Unlock()
	if number > e.heard {
		e.heard = number
		e.left(d, now)
	}
}

func (e *entry) left(d limit.Decision, now limit.Micros) {
	e.reset.Store(int64(now.After(d.ResetAfter)))
	e.room.Store(d.Remaining)
}

// refused notes a refusal r by d at now. A standing one of a smaller cost says more, and one of the same cost that opens
// later knows more.
func (e *entry) refused(number int64, r *refusal, d limit.Decision, now limit.Micros) {
	e.answers.Lock()
	defer e.answers.Unlock()
	e.heard = max(e.heard, number)
	if fresh := now >= limit.Micros(e.reset.Load()); fresh || r.cost < e.lowest.Load() {
		e.lowest.Store(r.cost)
	}
	e.left(d, now)
	if old := e.refusal.Load(); now < old.opens && old.standsFor(r.by) && (old.cost < r.cost || old.cost == r.cost && old.opens > r.opens) {
		return
	}
	e.refusal.Store(r)
}
