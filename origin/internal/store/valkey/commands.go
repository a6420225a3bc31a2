package valkey

import (
	"context"
	"fmt"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// commands is the strategy of plain commands, for servers without functions. A counter is one number for each of its
// windows, under the counter's name with the window's number. A check charges first (INCRBY, PEXPIRE NX, and GETRANGE of the
// window before) and looks then: what a refused call charged is given back in a second round trip (DECRBY).
//
// It never admits more than the limit, since a charge counts from before its own decision on. It may refuse falsely, by
// what other calls charged that are refused themselves and have not given back yet. What was charged by a call whose
// answer never came stays until its window is out of view.
//
// Time is the process's clock with its offset to the server's. Processes whose offsets are wrong by e in all count in
// different windows for so long: a caller gets at most what is admitted within e of a window's edge twice, and the window
// before weighs less by e / window.
type commands struct {
	s     *Store
	clock func(*node) limit.Micros
	spare int64 // ms that numbers outlive their use by; 0 where clock runs as the server's does
	owed  owed
}

// madeUpSpare is an hour: servers let keys expire by their own clocks, and a minute of made-up time can take longer than one
// of theirs. A number that nobody looks at any more disturbs nobody, since its name tells its window.
const madeUpSpare = 3_600_000

func newCommands(s *Store) strategy {
	if now := s.options.Clock; now != nil {
		return &commands{s: s, clock: func(*node) limit.Micros { return now() }, spare: madeUpSpare}
	}
	return &commands{s: s, clock: (*node).now}
}

// supports is [strategy.supports]: what needs no more than numbers by window.
func (c *commands) supports(a rule.Algorithm) bool { return Commands.Supports(a) }

func (c *commands) clockEvery() time.Duration { return clockEveryPlain }

// take is [limiter.Store.Take]. A call whose ID belongs to one that is being decided waits for what becomes of that one:
// within a process before it charges, since what it would charge meanwhile, and give back, could refuse the other; through
// another process after it gave that back.
func (c *commands) take(ctx context.Context, call *limiter.Call) error {
	if call.ID != (limiter.CallID{}) {
		leave, err := c.s.repeats.enter(ctx, call.ID)
		if err != nil {
			return storeError(ctx, err)
		}
		defer leave()
	}
	for pause := claimPause; ; pause = min(2*pause, maxClaimPause) {
		waits, err := c.try(ctx, c.newWork(call))
		if !waits {
			return err
		}
		if !sleep(ctx, pause) {
			return &limiter.StoreError{Reason: reasonDeadline, Err: ctx.Err()}
		}
	}
}

// Pauses of a call that waits for another one with its ID, from a round trip or two on.
const (
	claimPause    = 200 * time.Microsecond
	maxClaimPause = 2 * time.Millisecond
)

// try makes a call, unless it waits for another one, which gives back what it charged.
func (c *commands) try(ctx context.Context, w *work) (waits bool, err error) {
	c.look(ctx, w)
	w.plan()
	c.round(ctx, w.batches)
	if w.restore() {
		c.round(ctx, w.batches)
	}
	if err = w.lost(); err != nil || w.id != nil && w.id.claim == others {
		w.undoAll()
		c.settle(ctx, w)
		return err == nil, err
	}
	w.decide()
	c.settle(ctx, w)
	c.mend()
	return false, nil
}

// look finds out which of the counters that are not to be made exist.
func (c *commands) look(ctx context.Context, w *work) {
	asked := false
	for i := range w.entries {
		e := &w.entries[i]
		if e.charge.Existing && e.lost == nil {
			asked = true
			e.do(opLook)
			if e.sliding() {
				e.do(opLookBefore)
			}
		}
	}
	if !asked {
		return
	}
	c.round(ctx, w.batches)
	for i := range w.entries {
		e := &w.entries[i]
		e.unmade = e.charge.Existing && !e.exists && e.lost == nil
	}
}

// plan says what is asked of each counter. A call that is refused whatever the counters hold charges none.
func (w *work) plan() {
	hopeless, charging := false, false
	first := w.first()
	for i := range w.entries {
		e := &w.entries[i]
		if !e.charge.Shadow && e.lost == nil {
			hopeless = hopeless || e.unmade || e.never()
		}
		charging = charging || first != nil && e.charge.Shadow == first.charge.Shadow && e.cost > 0
	}
	for i := range w.entries {
		e := &w.entries[i]
		switch {
		case e.unmade || e.lost != nil:
			continue
		case e.cost == 0 || e.never() || hopeless && !e.charge.Shadow:
			e.do(opRead)
		default:
			e.do(opCharge)
			e.do(opExpire)
		}
		if e.sliding() {
			e.do(opReadBefore)
		}
	}
	if charging && w.call.ID != (limiter.CallID{}) {
		w.ask(opClaim)
	}
}

// ask asks for the call's ID, or drops it, beside the counters and in the slot of the first.
func (w *work) ask(o op) {
	if e := w.first(); e != nil {
		e.batch.id = idName(&e.charge.Counter, w.call.ID)
		e.batch.todo = append(e.batch.todo, command{op: o})
		w.id = e.batch
	}
}

// first is the first entry that is enforced, of a call of shadow charges alone the first; nil if none can be kept.
func (w *work) first() (first *entry) {
	for i := range w.entries {
		if e := &w.entries[i]; e.batch != nil && (first == nil || first.charge.Shadow && !e.charge.Shadow) {
			first = e
		}
	}
	return first
}

// restore lifts counters that were found below zero, by what they lacked before this call, false if there is none.
// Whoever finds one does so, before deciding by what it holds then: a charge that came before counts in full.
func (w *work) restore() (any bool) {
	for i := range w.entries {
		e := &w.entries[i]
		if e.charged && e.lost == nil && e.held < 0 {
			e.lacks = -e.held
			e.do(opRestore)
			any = true
		}
	}
	return any
}

// lost is the error of a call that nothing is known of, since no counter's server answered.
func (w *work) lost() error {
	var err error
	for i := range w.entries {
		e := &w.entries[i]
		if e.lost == nil {
			return nil
		}
		err = e.lost
	}
	return err
}

// undoAll plans to give back whatever was charged.
func (w *work) undoAll() {
	for i := range w.entries {
		if e := &w.entries[i]; e.charged {
			e.do(opGiveBack)
		}
	}
}

// decide fills the outcomes and plans what is to be given back.
func (w *work) decide() {
	id := w.id
	all, known := true, id != nil && id.claim == remembered
	for i := range w.entries {
		e := &w.entries[i]
		e.decide()
		if !e.charge.Shadow {
			all = all && (e.status == limiter.Admitted || e.status == limiter.Lost)
		}
	}
	for i := range w.entries {
		e := &w.entries[i]
		kept := e.charged && e.status == limiter.Admitted && !known && (e.charge.Shadow || all)
		o := &w.call.Outcomes[i]
		*o = e.outcome(kept)
		if known && !e.charge.Shadow && e.status == limiter.Refused {
			o.Status, o.Decision.Allowed, o.Decision.RetryAfter, o.AskAgain = limiter.Admitted, true, 0, 0
		}
		if e.charged && !kept {
			e.do(opGiveBack)
		}
	}
	switch {
	case id == nil || known || !id.placed: // nothing to tell, or its server was never reached
	case all:
		id.todo = append(id.todo, command{op: opRemember})
	case id.claim == ours:
		id.todo = append(id.todo, command{op: opForget})
	}
}

// prepare asks whether the server knows the youngest of the commands.
func (c *commands) prepare(ctx context.Context, n *node, client valkey.Client) error {
	c.s.count("pexpire")
	err := client.Do(ctx, client.B().Pexpire().Key(probeKey).Milliseconds(1).Nx().Build()).Error()
	if err != nil && !c.s.movedOn(err) {
		return fmt.Errorf("plain commands need PEXPIRE with NX, which Valkey and Redis have from 7.0 on: %w", err)
	}
	return nil
}

// probe sends what a check may, about what expires at once.
func (c *commands) probe(ctx context.Context, n *node) error {
	client := n.client.Load()
	if client == nil {
		return errNotConnected
	}
	c.mend()
	b := (*client).B()
	probes := []struct {
		op   string
		sent valkey.Completed
	}{
		{"set", b.Set().Key(probeKey).Value("0").PxMilliseconds(1).Build()},
		{"incrby", b.Incrby().Key(probeKey).Increment(0).Build()},
		{"pexpire", b.Pexpire().Key(probeKey).Milliseconds(1).Nx().Build()},
		{"getrange", getNumber(b, probeKey)},
		{"decrby", b.Decrby().Key(probeKey).Decrement(0).Build()},
		{"del", b.Del().Key(probeKey).Build()}, // and what DECRBY may have made
	}
	sent := make([]valkey.Completed, len(probes))
	for i, p := range probes {
		c.s.count(p.op)
		sent[i] = p.sent
	}
	for _, r := range (*client).DoMulti(ctx, sent...) {
		if err := r.Error(); err != nil && !valkey.IsValkeyNil(err) && !c.s.movedOn(err) {
			return err
		}
	}
	return nil
}

// probeKey is a name that no counter has.
var probeKey = func() string {
	c := limiter.Counter{}.Overflow()
	return string(c[:])
}()
