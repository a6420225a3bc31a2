//go:build !race

// One goroutine in virtual time: there is nothing to race, and the detector makes minutes of it.

package denycache_test

import (
	"container/heap"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/denycache"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
)

// flood is one caller who sends far more than its limit, through any number of processes that each have a cache of their
// own, to one counter: discrete events in virtual time.
type flood struct {
	limit     limit.Limit
	counter   limittest.Counter
	processes []*denycache.Cache[string]
	gap       func() limit.Micros // between two calls
	way       func() limit.Micros // to the store, and back from it
	cost      func() int64
	commands  bool // the store charges first and gives back what it refuses: see giveBack

	events events

	// What the store saw. The first refusal's companions, which were under way when it came back, are in no bound.
	asked, refused []int64 // by second
	spent          []int64 // cost, by second
	companions     int64   // refused
	settled        limit.Micros
	// opens is when the counter has room next, known after each call that was decided; late is the longest that it had room
	// before it was asked, soon how often it was asked before.
	opens, late limit.Micros
	soon        int64
}

type event struct {
	at limit.Micros
	do func(now limit.Micros)
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// start is a window's start.
const start = 1000 * limit.Hour

// wayMicros is half a round trip to the store: 0.25 ms.
const wayMicros = 250

func newFlood(algorithm string, l limit.Limit, processes int) *flood {
	f := &flood{limit: l, counter: limittest.New(algorithm, l, start, 0),
		gap: func() limit.Micros { return 10 }, way: func() limit.Micros { return wayMicros }, cost: func() int64 { return 1 }}
	for range processes {
		f.processes = append(f.processes, denycache.New[string](10))
	}
	return f
}

// run sends calls for some seconds, to the processes in turn.
func (f *flood) run(seconds int) {
	f.asked, f.refused, f.spent = make([]int64, seconds+1), make([]int64, seconds+1), make([]int64, seconds+1)
	end := start + limit.Micros(seconds)*limit.Second
	for now, n := start, 0; now < end; now, n = now+f.gap(), n+1 {
		for len(f.events) > 0 && f.events[0].at <= now {
			e := heap.Pop(&f.events).(event)
			e.do(e.at)
		}
		f.call(f.processes[n%len(f.processes)], now)
	}
}

func (f *flood) call(cache *denycache.Cache[string], now limit.Micros) {
	cost := f.cost()
	_, pass, refused := cache.Enter("", per, cost, now)
	if refused {
		return
	}
	heap.Push(&f.events, event{now + f.way(), func(now limit.Micros) {
		d, next, askAgain := f.take(now, cost)
		heap.Push(&f.events, event{now + f.way(), func(now limit.Micros) {
			cache.Learn("", pass, cost, d, next, askAgain, now)
		}})
	}})
}

// take is the store, with what it sees.
func (f *flood) take(now limit.Micros, cost int64) (d, next limit.Decision, askAgain limit.Micros) {
	before := f.counter.State()
	d = f.counter.Take(f.limit, now, cost)
	next = f.counter.Peek(f.limit, now, 1)
	second := (now - start) / limit.Second
	f.asked[second]++
	switch {
	case d.Allowed:
		f.spent[second] += cost
		if f.settled > 0 && now > f.settled {
			f.late = max(f.late, now-f.opens)
		}
	case f.settled == 0 || now <= f.settled:
		if f.companions++; f.settled == 0 {
			f.settled = now + 2*f.way()
		}
	default:
		f.refused[second]++
		if now < f.opens {
			f.soon++
		}
	}
	f.opens = now + next.RetryAfter
	askAgain = next.RetryAfter
	if !d.Allowed {
		askAgain = d.RetryAfter
	}
	if f.commands {
		if !d.Allowed {
			f.giveBack(before.(limit.SlidingWindow), now, cost)
		}
		askAgain = f.limit.Window / limit.Micros(f.limit.Count)
	}
	return d, next, askAgain
}

// giveBack leaves a refused charge in the counter s for a round trip, where it stands against others.
func (f *flood) giveBack(s limit.SlidingWindow, now limit.Micros, cost int64) {
	if here := now - now%f.limit.Window; s.Start < here {
		if s.Previous = 0; s.Start == here-f.limit.Window {
			s.Previous = s.Current
		}
		s.Start, s.Current = here, 0
	}
	s.Current += cost
	f.counter = limittest.Of(s)
	heap.Push(&f.events, event{now + 2*f.way(), func(at limit.Micros) { f.counter.Refund(f.limit, at, cost, now) }})
}

// shared are the algorithms; a log of a thousand calls and more takes a test too long.
var shared = []string{"sliding-window", "gcra", "token-bucket", "leaky-bucket", "fixed-window", "sliding-log"}

func random(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// A limit that refills three times in a round trip is used in full: one call at a time would use a third of it.
func TestAHighLimitIsNotStarved(t *testing.T) {
	t.Parallel()
	r := random(t)
	for _, algorithm := range shared[:5] {
		for name, spread := range map[string]func(*flood){
			"evenly":      func(*flood) {},
			"at random":   func(f *flood) { f.gap = func() limit.Micros { return limit.Micros(r.ExpFloat64()*10 + 0.5) } },
			"out of turn": func(f *flood) { f.way = func() limit.Micros { return 50 + limit.Micros(r.Int64N(400)) } },
			"four doors":  func(f *flood) { *f = *newFlood(algorithm, f.limit, 4) },
			"at any cost": func(f *flood) { f.cost = func() int64 { return 1 + r.Int64N(9) } },
		} {
			f := newFlood(algorithm, limit.Limit{Count: 6000, Window: limit.Second}, 1)
			spread(f)
			f.run(3)
			for second, spent := range f.spent[1:3] {
				if spent < 5950 {
					t.Errorf("%s, %s: %d spent of 6000 in second %d: %v", algorithm, name, spent, second+1, f.spent)
				}
			}
			t.Logf("%-14s %-11s spent %v, asked %v, refused %v after %d", algorithm, name, f.spent[:3], f.asked[:3], f.refused[:3], f.companions)
		}
	}
}

// One process asks for no call that is refused, once it has been refused: no more calls than are admitted.
func TestAFloodOfOneProcessAsksForWhatIsAdmittedAlone(t *testing.T) {
	t.Parallel()
	for _, algorithm := range shared {
		for _, count := range []int64{1, 50, 6000} {
			if algorithm == "sliding-log" && count > 1000 {
				continue
			}
			f := newFlood(algorithm, limit.Limit{Count: count, Window: limit.Second}, 1)
			f.run(3)
			for second, refused := range f.refused {
				if refused > 0 {
					t.Errorf("%s, %d/s: %d calls refused by the store in second %d", algorithm, count, refused, second)
				}
			}
			if most := int64(2*wayMicros/10 + 1); f.companions > most {
				t.Errorf("%s, %d/s: %d refused at first, %d fit into a round trip", algorithm, count, f.companions, most)
			}
		}
	}
}

// All processes see one opening, and one of them gets it. A refusal is four commands where it is given back, an admission
// three.
func TestAFloodOfManyProcessesAsksOnceEachAnOpening(t *testing.T) {
	t.Parallel()
	const count = 50
	for _, algorithm := range append(shared, "commands") {
		for _, n := range []int64{1, 4, 16, 40} {
			f := newFlood(strings.Replace(algorithm, "commands", "sliding-window", 1), limit.Limit{Count: count, Window: limit.Second}, int(n))
			f.commands = algorithm == "commands"
			const seconds = 3 // after the first
			f.run(1 + seconds)
			var asks, commands int64
			for second := 1; second <= seconds; second++ {
				asks += f.asked[second]
				commands += 3*f.asked[second] + f.refused[second]
				if f.spent[second] < count-1 {
					t.Errorf("%s, %d processes: %d of %d spent in a second", algorithm, n, f.spent[second], count)
				}
			}
			bound := count * (3 + (n-1)*4)
			t.Logf("%-14s %2d processes: %4d calls a second of at most %4d, %4d commands of %4d, %d refused at first", algorithm, n, asks/seconds, count*n, commands/seconds, bound, f.companions)
			if asks > seconds*count*n || commands > seconds*bound {
				t.Error("more than the bound")
			}
		}
	}
}

// A caller waits for a round trip at most beyond its turn, and the store is never asked before it.
func TestAnOpeningIsNeverEarlyAndLateByARoundTripAtMost(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"gcra", "token-bucket", "leaky-bucket"} {
		for _, count := range []int64{3, 50, 900} {
			f := newFlood(algorithm, limit.Limit{Count: count, Window: limit.Second}, 1)
			f.run(4)
			// The next call may come a gap of arrivals after the opening.
			if most := limit.Micros(2*wayMicros + 10); f.soon > 0 || f.late > most || f.late == 0 {
				t.Errorf("%s, %d/s: asked %d times too soon, late by up to %d µs, want at most %d", algorithm, count, f.soon, f.late, most)
			}
		}
	}
}
