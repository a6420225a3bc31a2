package campaign

import (
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/shared/limit"
)

// share is what a process admits by itself of a limit: an equal part of all it counts, at least 1.
func (p *process) share(l limit.Limit) limit.Limit {
	part := func(whole int64) int64 {
		if whole == 0 {
			return 0
		}
		return max(1, whole/p.known)
	}
	return limit.Limit{Count: part(l.Count), Burst: part(l.Burst), Window: l.Window}
}

// stands tells whether a process may know of a refusal that outlasts the store at an instant: it goes by it before it counts
// by itself.
func (p *player) stands(process int, at limit.Micros, local []modelled) bool {
	for _, m := range local {
		if at < p.told[excuse{process, m.key}] {
			return true
		}
	}
	return false
}

// fellBack is how many charges a process took from its own counters, of the call at hand.
func (p *process) fellBack() (n int) {
	for _, r := range p.own.Asked() {
		if r.Op == fault.Take {
			n += len(r.Call.Charges)
		}
	}
	return n
}

// tell notes what an answer of the store says until when, by the process's clock, a call is refused.
func (p *player) tell(process int, m modelled, r result) {
	wait := r.d.RetryAfter
	if r.admitted {
		wait = r.next
	}
	if wait == 0 {
		return
	}
	e := excuse{process, m.key}
	p.told[e] = max(p.told[e], (p.now + p.processes[process].ahead).After(wait))
}
