package numbers

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/replay/tracegen"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// stormParts are parts of the storm with keys of their own, each a 500th: keys do not know of each other, and a part is
// through before the server lets its counters go, which it does by a clock that is not made up.
const (
	stormParts = 500
	stormRound = 20 // parts at once
)

// The retry storm of 60,000 calls a second, one rule of 90/min, without a deny cache: what replay tests call for call
// against the exact definition, here costs a store commands.
func TestTheRetryStormOfCommands(t *testing.T) {
	server := valkeytest.Start(t)
	rounds := stormParts / stormRound / share(stormParts/stormRound)
	inRound := stormRound
	if !*full {
		inRound = 2
	}
	var clocks []*clock
	var stores []*valkey.Store
	for range inRound {
		c := &clock{}
		clocks, stores = append(clocks, c), append(stores, plainCommands(t, server, c))
	}
	var calls, commands, admitted int64
	var mu sync.Mutex
	for round := range rounds {
		parts := make([]*part, inRound)
		for n := range parts {
			parts[n] = &part{store: stores[n], clock: clocks[n], number: round*inRound + n}
		}
		each := func(run func(p *part) (int64, int64, error)) (before map[string]int64) {
			before = server.Calls()
			var wg sync.WaitGroup
			for _, p := range parts {
				wg.Go(func() {
					c, a, err := run(p)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					calls, admitted = calls+c, admitted+a
				})
			}
			wg.Wait()
			return before
		}
		each(func(p *part) (int64, int64, error) { _, _, err := p.play(t, 0); return 0, 0, err })
		before := each(func(p *part) (int64, int64, error) { return p.play(t, 1) })
		commands += ran(t, server, before)
	}
	scale := float64(stormParts) / float64(rounds*inRound)
	perCall, perSecond := float64(commands)/float64(calls), float64(commands)*scale/60
	if math.Abs(perCall-3.625) > 0.003625 || math.Abs(perSecond-217_500) > 217.5 {
		t.Errorf("%d commands for %d calls of a minute: %.4f a call, %.0f/s", commands, calls, perCall, perSecond)
	}
	report(t, "retry storm, 60,000/s, commands, no deny cache: commands a call", "3.625 ± 0.1 %", fmt.Sprintf("%.4f", perCall))
	report(t, "the same: commands/s", "217,500 ± 0.1 %", thousands(int64(math.Round(perSecond))))
	report(t, "the same: admitted/s in a full minute", "≥ 22,400", thousands(int64(float64(admitted)*scale/60)))
	if float64(admitted)*scale/60 < 22_400 {
		t.Errorf("%d of %d calls admitted", admitted, calls)
	}
}

// part is a 500th of the storm, played by a process of its own.
type part struct {
	store  *valkey.Store
	clock  *clock
	number int
}

// play plays a minute of it: the warm-up is minute 0.
func (p *part) play(t *testing.T, minute int) (calls, admitted int64, err error) {
	s := tracegen.FullStorm(1)
	s.Hammering, s.Quiet, s.QuietRate = s.Hammering/stormParts, s.Quiet/stormParts, s.QuietRate/stormParts
	call := limiter.Call{Charges: make([]limiter.Charge, 1), Outcomes: make([]limiter.Outcome, 1)}
	begin := tracegen.Begin + limit.Micros(minute)*limit.Minute
	for c := range s.Calls() {
		if c.At < begin || c.At >= begin+limit.Minute {
			continue
		}
		p.clock.set(c.At)
		call.Charges[0] = limiter.Charge{Algorithm: rule.SlidingWindow, Limit: limit.Limit{Count: 90, Window: limit.Minute}, Cost: 1}
		kind := 'q'
		if c.Hammering {
			kind = 'h'
		}
		copy(call.Charges[0].Counter[:], fmt.Sprintf("w1:{0000}:%c%07d:%024d", kind, p.number, c.Key))
		if err := p.store.Take(t.Context(), &call); err != nil {
			return calls, admitted, err
		}
		calls++
		if call.Outcomes[0].Charged {
			admitted++
		}
	}
	return calls, admitted, nil
}
