package campaign

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// draw is the history of a seed.
func draw(seed uint64) history {
	d := drawer{Rand: rand.New(rand.NewPCG(seed, 7))}
	d.h = history{seed: seed, processes: 1 + d.IntN(5), slots: d.IntN(4) == 0}
	d.rules()
	d.trouble = []int{0, 0, 3, 12}[d.IntN(4)]
	for range 20 + d.IntN(60) {
		d.episode()
	}
	d.add(step{kind: "audit"})
	return d.h
}

type drawer struct {
	*rand.Rand
	h       history
	trouble int // of a hundred calls, how many meet a fault; half of all histories have none at all
	n       int
	begun   []step
	calls   []step
}

func pick[T any](d *drawer, of ...T) T { return of[d.IntN(len(of))] }

func (d *drawer) rules() {
	var first []ruleSpec
	for i := range 1 + d.IntN(4) {
		r := ruleSpec{
			name: fmt.Sprintf("r%d", i), by: pick(d, "key", "tenant", "address", "key+endpoint", "global", "key|address", "user", "key|user|address"), path: pick(d, "/**", "/**", "/a"),
			algorithm: pick(d, "token-bucket", "gcra", "sliding-window", "fixed-window", "leaky-bucket", "leaky-queue", "sliding-log"),
			mode:      pick(d, "enforce", "enforce", "enforce", "shadow"), failure: pick(d, "local", "local", "open", "closed"),
			count: 2 + d.Int64N(11), cost: 1 + d.Int64N(2), window: pick(d, limit.Second, 10*limit.Second, limit.Minute),
		}
		if a, _ := rule.ParseAlgorithm(r.algorithm); a.HasBurst() && d.IntN(2) == 0 {
			r.burst = 2 + d.Int64N(11)
		}
		if slices.ContainsFunc(first, func(o ruleSpec) bool { return o.by == r.by }) {
			continue // two rules for one scope may fight
		}
		r.offset = r.algorithm == "fixed-window" && d.IntN(2) == 0
		if r.by == "key" || r.by == "user" {
			switch d.IntN(4) {
			case 0:
				r.tier, r.window, r.burst, r.count = true, limit.Minute, 0, freeCount
			case 1:
				r.override = 2 + d.Int64N(20)
			}
		}
		if r.exact = d.IntN(6) == 0; r.exact {
			r.failure = "closed"
		}
		if d.IntN(6) == 0 {
			r.penalty = 1 + d.Int64N(5)
		}
		first = append(first, r)
	}
	d.h.releases = append(d.h.releases, first)
	for range d.IntN(3) {
		next := slices.Clone(first)
		for i := range next {
			r := &next[i]
			switch d.IntN(4) {
			case 0:
				if !r.tier {
					r.count = 2 + d.Int64N(11)
				}
			case 1:
				if r.burst > 0 {
					r.burst = 2 + d.Int64N(11)
				}
			case 2:
				if !r.tier {
					r.window = pick(d, limit.Second, 10*limit.Second, limit.Minute)
				}
			}
		}
		d.h.releases = append(d.h.releases, next)
	}
}

func (d *drawer) add(s step) { d.h.steps = append(d.h.steps, s) }

// call is a call of a caller at a process, with what may go wrong at the store.
func (d *drawer) call(process int, who string) step {
	d.n++
	s := step{kind: "call", n: d.n, process: process, who: who, path: pick(d, "/", "/a", "/a")}
	switch d.IntN(12) {
	case 0, 1, 2:
		s.cost = 1 + d.Int64N(6)
	case 3: // of limits and bursts up to 12, and overrides up to 21
		s.cost = pick(d, 7+d.Int64N(16), 1_000_000, limit.MaxCount)
	}
	if d.IntN(100) < d.trouble {
		s.fault = pick(d, "error", "error", "done", "twice", "lost", "lostdone")
		if s.fault == "lost" || s.fault == "lostdone" {
			s.rule = pick(d, d.h.releases[0]...).name
		}
	}
	return s
}

// later is some time, mostly less than a window.
func (d *drawer) later() {
	most := pick(d, 10*limit.Millisecond, 300*limit.Millisecond, 300*limit.Millisecond, 3*limit.Second, 20*limit.Second, 90*limit.Second)
	d.add(step{kind: "advance", by: 1 + limit.Micros(d.Int64N(int64(most)))})
}

// episode is what one client, or one who runs the system, does.
func (d *drawer) episode() {
	process, who := d.IntN(d.h.processes), pick(d, "k1", "k1", "k1", "k2", "k3", "a1", "a2", "u1", "u2", "u3", "b1")
	if d.IntN(3) > 0 {
		d.later()
	}
	switch d.IntN(16) {
	default: // a burst, at one process or at all
		spread := d.IntN(2) == 0
		for range 1 + d.IntN(12) {
			if spread {
				process = d.IntN(d.h.processes)
			}
			s := d.call(process, who)
			d.add(s)
			d.calls = append(d.calls, s)
		}
	case 0, 1: // one who hammers
		s := d.call(process, who)
		for range 10 + d.IntN(20) {
			d.n++
			s.n = d.n
			d.add(s)
			d.add(step{kind: "advance", by: 1 + limit.Micros(d.Int64N(int64(50*limit.Millisecond)))})
		}
	case 2, 3: // one who waits as told
		s := d.call(process, who)
		s.kind, s.fault, s.rule = "patient", "", ""
		for range 1 + d.IntN(6) {
			d.n++
			s.n = d.n
			d.add(s)
		}
	case 4, 5: // refunds
		for range 1 + d.IntN(4) {
			if len(d.calls) == 0 {
				break
			}
			s := step{kind: "refund", n: d.calls[max(0, len(d.calls)-1-d.IntN(10))].n}
			if d.IntN(100) < d.trouble {
				s.fault = pick(d, "error", "done", "twice")
			}
			d.add(s)
		}
	case 6, 7: // a call that is sent again, anywhere
		s := d.call(process, pick(d, "k1", "k2", "k3", "u1", "u2", "b1"))
		s.id = fmt.Sprintf("id%d", d.n)
		for range 2 + d.IntN(3) {
			s.process = d.IntN(d.h.processes)
			d.n++
			s.n = d.n
			d.add(s)
			d.calls = append(d.calls, s)
			d.add(step{kind: "advance", by: 1 + limit.Micros(d.Int64N(int64(4*limit.Second)))})
		}
	case 8, 9: // calls that are under way for a while
		for range 1 + d.IntN(4) {
			s := d.call(d.IntN(d.h.processes), who)
			s.kind, s.held, s.fault, s.rule = "begin", pick(d, "request", "reply"), "", ""
			d.add(s)
			d.begun = append(d.begun, s)
		}
	case 10: // a peek
		s := d.call(process, who)
		s.kind, s.rule = "peek", ""
		if s.fault != "" {
			s.fault = "error"
		}
		d.add(s)
	case 11:
		d.add(step{kind: "use", process: d.IntN(d.h.processes + 1), amount: d.IntN(len(d.h.releases))})
	case 12:
		d.add(step{kind: "audit"})
	case 13:
		if d.trouble > 0 {
			d.trial()
		}
	case 14:
		if d.trouble > 0 && d.IntN(2) == 0 {
			d.spoil(who)
		}
	}
	for len(d.begun) > 0 && d.IntN(3) > 0 {
		s := d.begun[0]
		d.begun = d.begun[1:]
		end := step{kind: "end", n: s.n}
		if s.held == "reply" && d.IntN(100) < d.trouble || s.held == "request" && d.IntN(100) < d.trouble {
			end.fault = "error"
		}
		d.add(end)
	}
}

// spoil is a foreign value under the name of a counter, with an end or none, and calls that meet it.
func (d *drawer) spoil(who string) {
	s := step{kind: "spoil", process: d.IntN(d.h.processes), who: who, path: "/a", rule: pick(d, d.h.releases[0]...).name}
	s.by = pick(d, limit.Second, 20*limit.Second, 20*limit.Second, limit.Never)
	if s.by != limit.Never {
		s.by = 1 + limit.Micros(d.Int64N(int64(s.by)))
	}
	d.add(s)
	for range 1 + d.IntN(8) {
		s := d.call(d.IntN(d.h.processes), who)
		s.path = "/a"
		d.add(s)
		d.calls = append(d.calls, s)
		if d.IntN(3) == 0 {
			d.later()
		}
	}
	if d.IntN(3) == 0 {
		d.add(step{kind: "reset", process: d.IntN(d.h.processes), who: who, path: "/a"})
	}
}

// flap is a process that leaves or joins, and calls of which some find no store.
func (d *drawer) flap() {
	d.add(step{kind: pick(d, "leave", "leave", "join"), process: d.IntN(d.h.processes), amount: d.IntN(len(d.h.releases))})
	process, who := d.IntN(d.h.processes), pick(d, slices.Sorted(maps.Keys(callers))...)
	for range d.IntN(20) {
		s := d.call(process, who)
		if d.IntN(2) == 0 {
			s.fault, s.rule = "error", ""
		}
		d.add(s)
		d.calls = append(d.calls, s)
		if d.IntN(6) == 0 {
			process = d.IntN(d.h.processes)
		}
	}
	if d.IntN(2) == 0 {
		d.add(step{kind: "join", process: d.IntN(d.h.processes), amount: d.IntN(len(d.h.releases))})
	}
}

// trial is trouble that is not one call's.
func (d *drawer) trial() {
	switch d.IntN(9) {
	case 6, 7, 8:
		d.flap()
	case 0, 1:
		d.add(step{kind: "failover", amount: 1 + d.IntN(8)})
	case 2:
		d.add(step{kind: "process-clock", process: d.IntN(d.h.processes), by: limit.Micros(d.Int64N(int64(5 * limit.Second)))})
	case 3:
		d.add(step{kind: "store-clock", by: limit.Micros(d.Int64N(int64(20*limit.Second))) - 5*limit.Second})
	case 4:
		d.add(step{kind: "news", amount: d.IntN(2)})
	case 5:
		d.add(step{kind: "reset", process: d.IntN(d.h.processes), who: pick(d, "k1", "k2", "a1", "u1", "b1"), path: "/a"})
	}
}
