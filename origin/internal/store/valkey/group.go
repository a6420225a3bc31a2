package valkey

import (
	"context"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
)

// group is the charges of a call that share a slot.
type group struct {
	part
	charges  []limiter.Charge
	outcomes []limiter.Outcome
	indexes  []int // of the charges in the call; nil: they are all of them
	loads    int64 // of the library on the server that was asked, before
	reply    string
	stale    bool  // was answered so once
	failure  error // why the charges are lost, a [limiter.StoreError]
}

// at is the index in the call of charge i.
func (g *group) at(i int) int {
	if g.indexes == nil {
		return i
	}
	return g.indexes[i]
}

// groups are the charges of a call by slot. Those of one slot alone, or of a standalone server, are the call's own slices.
func (s *Store) groups(c *limiter.Call) []*group {
	first := slotOf(&c.Charges[0].Counter)
	together := true
	for i := range c.Charges {
		together = together && (!s.options.Cluster || slotOf(&c.Charges[i].Counter) == first)
	}
	if together {
		return []*group{{part: part{slot: first}, charges: c.Charges, outcomes: c.Outcomes}}
	}
	var groups []*group
charges:
	for i := range c.Charges {
		slot := slotOf(&c.Charges[i].Counter)
		for _, g := range groups {
			if g.slot == slot {
				g.add(c, i)
				continue charges
			}
		}
		g := &group{part: part{slot: slot}}
		g.add(c, i)
		groups = append(groups, g)
	}
	return groups
}

func (g *group) add(c *limiter.Call, i int) {
	g.indexes = append(g.indexes, i)
	g.charges = append(g.charges, c.Charges[i])
	g.outcomes = append(g.outcomes, c.Outcomes[i])
}

// charged is a copy of the group with those of some charges that were made, nil if there is none.
func (g *group) charged(some func(*limiter.Charge) bool) *group {
	back := &group{part: part{slot: g.slot}}
	for i := range g.charges {
		if g.outcomes[i].Charged && some(&g.charges[i]) {
			back.charges = append(back.charges, g.charges[i])
			back.outcomes = append(back.outcomes, g.outcomes[i])
		}
	}
	if back.charges == nil {
		return nil
	}
	return back
}

// pieces is the group as one group a charge, nil if it is one or cannot be parted. A server that a slot is on its way from
// takes no request about two keys of which one is not there; about one key it does.
func (g *group) pieces(id limiter.CallID) (pieces []*group) {
	if len(g.charges) < 2 || id != (limiter.CallID{}) {
		return nil
	}
	for i := range g.charges {
		if g.charges[i].Former != (limiter.Counter{}) {
			return nil
		}
		pieces = append(pieces, &group{
			part: part{slot: g.slot}, charges: g.charges[i : i+1 : i+1], outcomes: g.outcomes[i : i+1 : i+1], indexes: []int{g.at(i)},
		})
	}
	return pieces
}

const (
	// maxGiveBacks bounds the give-backs under way. A give-back beyond it is not made: the counters stay charged until
	// their windows end.
	maxGiveBacks = 1000
	// giveBackTime is how long a give-back may take, whatever its call's deadline.
	giveBackTime = time.Second
)

// Results of a give-back, for metrics.
const (
	givenBack     = "done"
	notGivenBack  = "failed"
	giveBacksFull = "dropped"
)

// giveBack runs back, which asks n slots to give back what they charged. If it is to wait for that, it does until ctx ends;
// then back goes on by itself, within bounds.
func (s *Store) giveBack(ctx context.Context, n int, wait bool, back func(context.Context) bool) {
	if n == 0 {
		return
	}
	select {
	case s.backs <- struct{}{}:
	default:
		s.countGiveBacks(giveBacksFull, n)
		return
	}
	done := make(chan struct{})
	go func() {
		defer func() { <-s.backs }()
		defer close(done)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
		defer cancel()
		if back(within) {
			s.countGiveBacks(givenBack, n)
		} else {
			s.countGiveBacks(notGivenBack, n)
		}
	}()
	if !wait {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (s *Store) countGiveBacks(result string, n int) {
	if s.options.GiveBacks != nil {
		s.options.GiveBacks.WithLabelValues(result).Add(float64(n))
	}
}

// remove deletes the keys of all charges, one command a key: a slot on its way from server to server takes no two.
func (s *Store) remove(ctx context.Context, c *limiter.Call, keys func(*node, *limiter.Charge) []string) error {
	if len(c.Charges) == 0 {
		return nil
	}
	var parts []*part
	for _, g := range s.groups(c) {
		g.ask = func(n *node, b valkey.Builder) (commands []valkey.Completed) {
			for i := range g.charges {
				for _, key := range keys(n, &g.charges[i]) {
					s.count("del")
					commands = append(commands, b.Del().Key(key).Build())
				}
			}
			return commands
		}
		parts = append(parts, &g.part)
	}
	s.exchange(ctx, parts)
	for _, p := range parts {
		err := p.err
		for _, r := range p.replies {
			if err == nil {
				err = r.Error()
			}
		}
		if err != nil {
			return s.failed(ctx, p.node, err)
		}
	}
	return nil
}
