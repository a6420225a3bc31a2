package campaign

import (
	"log/slog"
	"strings"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/limit"
)

// process is one limiter.
type process struct {
	*limiter.Limiter
	link    *link
	own     *fault.Store // what it falls back to
	local   *counters    // the oracle's of that
	ahead   limit.Micros
	release int
	place   int   // in the world, which the next one gets after it
	number  int   // no other's
	known   int64 // how many processes there are, as far as it knows
	gone    bool
}

// process makes one.
func (w *world) process(place, release int) *process {
	p := &process{place: place, number: w.made, release: release, link: &link{Store: fault.New(w.server)},
		own: fault.New(memory.New(10_000, nil)), local: newCounters()}
	w.made++
	o := limiter.Options{
		Store: p.link, Fallback: p.own, Secret: []byte(strings.Repeat("s", 32)),
		Now: func() limit.Micros { return w.now + p.ahead }, Processes: func() int64 { return p.known }, Announce: w.announce(p),
		Metrics: telemetry.New(), Log: slog.New(slog.DiscardHandler),
	}
	if w.h.slots {
		o.Slot = func(c *limiter.Counter) (slot uint32) {
			for _, b := range c {
				slot = slot*31 + uint32(b)
			}
			return slot
		}
	}
	p.Limiter = limiter.New(o, w.releases[release])
	return p
}

// announce tells the other processes.
func (w *world) announce(from *process) func([]limiter.Counter) {
	return func(counters []limiter.Counter) {
		if w.newsLost {
			return
		}
		for _, p := range w.live() {
			for _, c := range counters {
				if p != from {
					p.Forget(c)
				}
			}
		}
	}
}

func (w *world) live() (all []*process) {
	for _, p := range w.processes {
		if !p.gone {
			all = append(all, p)
		}
	}
	return all
}

// tellLive tells the processes how many they are.
func (w *world) tellLive() {
	all := w.live()
	for _, p := range all {
		p.known = int64(len(all))
	}
}

// leave ends a process, once its calls are answered. The last one stays.
func (p *player) leave(proc *process) error {
	if proc.gone || len(p.live()) == 1 {
		return nil
	}
	for _, n := range sorted(p.inFlight) {
		if p.inFlight[n].step.process == proc.place {
			if err := p.end(step{kind: "end", n: n}); err != nil {
				return err
			}
		}
	}
	for n, r := range p.receipts {
		if r.process == proc.place {
			delete(p.receipts, n)
		}
	}
	proc.Close()
	proc.gone = true
	if !p.newsLost {
		p.tellLive()
	}
	p.count.left++
	return nil
}

// join begins a process in the place of one that left. It knows nothing but how many there are.
func (p *player) join(place, release int) {
	if !p.processes[place].gone || release >= len(p.releases) {
		return
	}
	for _, known := range []map[excuse]limit.Micros{p.told, p.excused} {
		for e := range known {
			if e.process == place {
				delete(known, e)
			}
		}
	}
	for e := range p.penal {
		if e.process == place {
			delete(p.penal, e)
		}
	}
	proc := p.world.process(place, release)
	p.processes[place] = proc
	proc.known = int64(len(p.live()))
	if !p.newsLost {
		p.tellLive()
	}
}
