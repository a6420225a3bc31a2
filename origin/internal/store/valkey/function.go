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

const (
	// maxTries bounds how often a request is made again for a library that is lost again and again.
	maxTries = 5
	// A slot on its way from server to server is tried again after unstablePause, until the deadline or so many times.
	unstablePause = 2 * time.Millisecond
	maxUnstable   = 500
	// clockApart is how far a server's time may be from what is expected before it is asked for it: more than an answer that
	// was long on its way can explain.
	clockApart = 2 * limit.Second
)

// functions is the strategy of one function call a slot.
type functions struct{ s *Store }

// take asks all slots at once. If any enforced charge is not admitted, those slots that charged are asked to give back.
func (f *functions) take(ctx context.Context, c *limiter.Call) error {
	if len(c.Charges) == 0 {
		return nil
	}
	groups := f.s.groups(c)
	if len(groups) > 1 && c.ID != (limiter.CallID{}) {
		leave, err := f.s.repeats.enter(ctx, c.ID)
		if err != nil {
			return storeError(ctx, err)
		}
		defer leave()
	}
	groups = f.run(ctx, groups, c.ID, func(g *group, n *node) request {
		return f.s.library.take(n.notAfter(ctx), f.s.options.SwitchAt, c.ID, g.charges)
	}, func(g *group) (again bool, err error) { return g.readTake(f.s) })
	return f.settle(ctx, c, groups)
}

// readTake fills the group's outcomes. A stale answer is too late, or the server's clock was stepped, which its time tells:
// one more try, by the right offset.
func (g *group) readTake(s *Store) (again bool, err error) {
	if g.reply, err = g.replies[0].ToString(); err != nil {
		return false, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	now, stale, err := s.library.readTake(g.reply, g.charges, g.outcomes)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if !stale {
		if ahead := g.node.now() - now; s.extra == nil && (ahead > clockApart || ahead < -clockApart) {
			g.node.look() // its clock was stepped back: by the old offset a deadline is never over there
		}
		return false, nil
	}
	g.node.learnTime(now)
	if g.stale {
		return false, errStale
	}
	g.stale = true
	return true, nil
}

// settle makes the call's outcomes of the groups'. With a refusal it has the others give back what they charged: so in a
// cluster any counter may hold charges for a moment that are none.
func (f *functions) settle(ctx context.Context, c *limiter.Call, groups []*group) error {
	lost, refused := 0, false
	for _, g := range groups {
		if g.failure != nil {
			lost++
			for i := range g.outcomes {
				g.outcomes[i] = limiter.Outcome{Status: limiter.Lost, Err: g.failure}
			}
			continue
		}
		for i := range g.charges {
			refused = refused || !g.charges[i].Shadow && g.outcomes[i].Status != limiter.Admitted
		}
	}
	if lost == len(groups) {
		return groups[0].failure
	}
	if refused && len(groups) > 1 {
		if err := f.undo(ctx, c.ID, groups); err != nil {
			return err
		}
	}
	for _, g := range groups {
		for i, o := range g.outcomes {
			if f.s.options.Cluster {
				o.AskAgain = askAgain(g.charges[i].Limit, o.AskAgain)
			}
			c.Outcomes[g.at(i)] = o
		}
	}
	return nil
}

// undo has the enforced charges of groups given back, and makes their outcomes those of charges that were not made.
func (f *functions) undo(ctx context.Context, id limiter.CallID, groups []*group) error {
	var backs []*group
	for _, g := range groups {
		if g.failure != nil {
			continue
		}
		back := g.charged(func(c *limiter.Charge) bool { return !c.Shadow })
		if back == nil {
			continue
		}
		backs = append(backs, back)
		undone := make([]limiter.Outcome, len(g.outcomes))
		if err := f.s.library.undone(g.reply, g.charges, undone); err != nil {
			return &limiter.StoreError{Reason: reasonAnswer, Err: err}
		}
		for i := range g.charges {
			if !g.charges[i].Shadow {
				g.outcomes[i] = undone[i]
			}
		}
	}
	f.s.giveBack(ctx, len(backs), true, func(ctx context.Context) bool { return f.refundGroups(ctx, id, backs) == nil })
	return nil
}

// refund is [limiter.Store.Refund].
func (f *functions) refund(ctx context.Context, c *limiter.Call) error {
	var backs []*group
	for _, g := range f.s.groups(c) {
		if back := g.charged(func(*limiter.Charge) bool { return true }); back != nil {
			backs = append(backs, back)
		}
	}
	return f.refundGroups(ctx, c.ID, backs)
}

func (f *functions) refundGroups(ctx context.Context, id limiter.CallID, groups []*group) error {
	groups = f.run(ctx, groups, id, func(g *group, _ *node) request {
		return f.s.library.giveBack(f.s.options.SwitchAt, id, g.charges, g.outcomes)
	}, func(*group) (again bool, err error) { return false, nil }) // what it answers tells nothing
	for _, g := range groups {
		if g.failure != nil {
			return g.failure
		}
	}
	return nil
}

// reset is [limiter.Store.Reset].
func (f *functions) reset(ctx context.Context, c *limiter.Call) error {
	return f.s.remove(ctx, c, func(_ *node, c *limiter.Charge) []string {
		if c.Former != (limiter.Counter{}) {
			return []string{string(c.Counter[:]), string(c.Former[:])}
		}
		return []string{string(c.Counter[:])}
	})
}

// prepare loads the library.
func (f *functions) prepare(ctx context.Context, n *node, client valkey.Client) error {
	return n.load(ctx, client)
}

// probe asks a counter that nobody has, as a check that may write would.
func (f *functions) probe(ctx context.Context, n *node) error {
	ask := limiter.Charge{Counter: limiter.Counter{}.Overflow(), Algorithm: rule.SlidingWindow, Limit: limit.Limit{Count: 1, Window: limit.Second}}
	log := ask
	log.Algorithm = rule.SlidingLog // which is read by a command of its own
	g := &group{charges: []limiter.Charge{ask, log}}
	g.slot = slotOf(&ask.Counter)
	r := f.s.library.take(n.notAfter(ctx), f.s.options.SwitchAt, limiter.CallID{}, g.charges)
	r.function, r.readOnly = f.s.library.check, false
	if f.s.extra != nil {
		r.args = append(r.args, f.s.extra(ctx))
	}
	client := n.client.Load()
	if client == nil {
		return errNotConnected
	}
	reply, err := (*client).Do(ctx, f.fcall((*client).B(), r)).ToString()
	if err != nil && isFunctionMissing(err) {
		if err = n.load(ctx, *client); err == nil {
			reply, err = (*client).Do(ctx, f.fcall((*client).B(), r)).ToString()
		}
	}
	if err != nil {
		if f.s.movedOn(err) {
			return nil // takes checks of slots that it has
		}
		return err
	}
	if _, _, err = f.s.library.readTake(reply, g.charges, make([]limiter.Outcome, len(g.charges))); err != nil {
		return fmt.Errorf("%w: function library %s: %w", errUnreadable, f.s.library.name, err)
	}
	return nil
}

func (f *functions) supports(rule.Algorithm) bool { return true }

func (f *functions) clockEvery() time.Duration { return clockEvery }

// run asks all groups until each is answered or lost, in one round trip where nothing is in the way, and gives them back:
// more of them where one had to be asked in pieces. Only what was not executed is asked again: a function that a server
// lost is loaded there, once, and its groups alone are repeated.
func (f *functions) run(ctx context.Context, groups []*group, id limiter.CallID,
	make func(*group, *node) request, read func(*group) (again bool, err error)) []*group {
	var all []*group
	for try := 1; len(groups) > 0; try++ {
		f.ask(ctx, groups, make)
		var on []*group
		unstable := false
		for _, g := range groups {
			again, err := false, g.result()
			switch {
			case err == nil:
				again, err = read(g)
			case isFunctionMissing(err):
				if try == maxTries { // it is there, by what loading says: another one has its name
					err = g.node.cannotLoad(err)
				} else {
					err = g.node.loadAfter(ctx, g.loads)
					again = err == nil
				}
			case isTryAgain(err):
				if pieces := g.pieces(id); pieces != nil {
					on = append(on, pieces...)
					continue
				}
				again = try < maxUnstable && ctx.Err() == nil
				unstable = true
			}
			if again {
				on = append(on, g)
				continue
			}
			if err != nil {
				g.failure = f.s.failed(ctx, g.node, err)
			}
			all = append(all, g)
		}
		if groups = on; unstable {
			sleep(ctx, unstablePause)
		}
	}
	return all
}

// ask makes one exchange of groups.
func (f *functions) ask(ctx context.Context, groups []*group, make func(*group, *node) request) {
	var few [8]*part
	parts := few[:0]
	for _, g := range groups {
		g.ask = func(n *node, b valkey.Builder) []valkey.Completed {
			g.loads = n.loads.Load()
			r := make(g, n)
			if f.s.extra != nil {
				r.args = append(r.args, f.s.extra(ctx))
			}
			return []valkey.Completed{f.fcall(b, r)}
		}
		parts = append(parts, &g.part)
	}
	f.s.exchange(ctx, parts)
}

func (f *functions) fcall(b valkey.Builder, r request) valkey.Completed {
	if r.readOnly {
		f.s.count("fcall_ro")
		return b.FcallRo().Function(r.function).Numkeys(int64(len(r.keys))).Key(r.keys...).Arg(r.args...).Build()
	}
	f.s.count("fcall")
	return b.Fcall().Function(r.function).Numkeys(int64(len(r.keys))).Key(r.keys...).Arg(r.args...).Build()
}

// result is why the exchange brought no reply.
func (g *group) result() error {
	if g.err != nil {
		return g.err
	}
	if err := g.replies[0].Error(); !valkey.IsValkeyNil(err) {
		return err
	}
	return nil
}

func isTryAgain(err error) bool {
	e, ok := valkey.IsValkeyErr(err)
	return ok && e.IsTryAgain()
}
