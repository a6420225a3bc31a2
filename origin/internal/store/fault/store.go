package fault

import (
	"context"
	"slices"

	"github.com/weirproject/weir/origin/internal/limiter"
)

// Take is [limiter.Store.Take].
func (s *Store) Take(ctx context.Context, c *limiter.Call) error {
	return s.do(ctx, s.meet(Take, c), c, s.take)
}

// Refund is [limiter.Store.Refund]. A foreign value takes nothing back.
func (s *Store) Refund(ctx context.Context, c *limiter.Call) error {
	return s.do(ctx, s.meet(Refund, c), c, s.refund)
}

// Reset is [limiter.Store.Reset]; it ends what [Store.Spoil] began.
func (s *Store) Reset(ctx context.Context, c *limiter.Call) error {
	return s.do(ctx, s.meet(Reset, c), c, s.reset)
}

// take is a take of a store with foreign values. In place of the charge of a foreign one, the store behind is asked for
// one that it refuses, and writes nothing for: so it charges what it would charge.
func (s *Store) take(ctx context.Context, c *limiter.Call) error {
	foreign := s.foreign(c.Charges)
	if len(foreign) == 0 {
		return s.behind.Take(ctx, c)
	}
	call := *c
	call.Charges = slices.Clone(c.Charges)
	for _, i := range foreign {
		call.Charges[i].Limit.Count, call.Charges[i].Limit.Burst = 0, 0
	}
	if err := s.behind.Take(ctx, &call); err != nil {
		return err
	}
	for _, i := range foreign {
		c.Outcomes[i] = limiter.Outcome{Status: limiter.Foreign}
	}
	return nil
}

func (s *Store) refund(ctx context.Context, c *limiter.Call) error {
	call := copyOf(c)
	for _, i := range s.foreign(c.Charges) {
		call.Outcomes[i].Charged = false
	}
	return s.behind.Refund(ctx, &call)
}

func (s *Store) reset(ctx context.Context, c *limiter.Call) error {
	if err := s.behind.Reset(ctx, c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range c.Charges {
		delete(s.spoilt, c.Charges[i].Counter)
	}
	return nil
}

// foreign are the charges whose counter's name holds a foreign value.
func (s *Store) foreign(charges []limiter.Charge) (indexes []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spoilt) == 0 {
		return nil
	}
	for i := range charges {
		if s.spoilt[charges[i].Counter] {
			indexes = append(indexes, i)
		}
	}
	return indexes
}
