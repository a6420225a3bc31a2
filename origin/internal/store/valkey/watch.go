package valkey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/shared/limit"
)

const (
	// probeEvery is how often a server that does not answer is asked whether it does, and clockEvery how often one that
	// does is asked for its time. Half a second is how long a recovery may go unseen; clocks part by microseconds in
	// thirty seconds, and that one was stepped the function tells at once. Plain commands tell no time: until a step is learnt
	// processes that learnt it count in windows of their own.
	probeEvery      = 500 * time.Millisecond
	clockEvery      = 30 * time.Second
	clockEveryPlain = 2 * time.Second
	// clockSamples is how many answers the clock's offset is the best of: the one of the shortest round trip.
	clockSamples = 3
)

// watch connects, then keeps what is known of the server true, until ctx ends.
func (n *node) watch(ctx context.Context) {
	defer close(n.done)
	var told troubles
	for ctx.Err() == nil {
		err := n.check(ctx)
		wait := clockEvery
		if st, chosen := n.s.chosen(); chosen == nil {
			wait = st.clockEvery()
		}
		if err != nil {
			wait = probeEvery
		} else if n.breaker.State() != breaker.Closed {
			wait = breaker.OpenTime
		}
		if ctx.Err() == nil {
			n.up.Store(err == nil)
			n.s.upChanged()
			// Told last: who reads it finds the store as it says.
			n.s.tell(&told, n.addr, "store does not answer: rules answer by their on-store-failure until it does", err)
			if err != nil {
				n.s.refreshSoon() // another may have taken its place
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-n.wake:
			if err != nil { // known to be down: do not hurry
				select {
				case <-ctx.Done():
				case <-timer.C:
				}
			}
		}
		timer.Stop()
	}
}

// check connects if need be and asks the server for its time.
func (n *node) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	client := n.client.Load()
	if client == nil {
		connected, err := n.connect(ctx)
		if err != nil {
			return err
		}
		n.client.Store(&connected)
		close(n.ready)
		return nil
	}
	if err := n.synchronise(ctx, *client); err != nil {
		return err
	}
	if err := n.try(ctx); err != nil || !n.refused.Load() {
		return err
	}
	// A server that tells the time may still refuse every check, which is as good as none.
	st, err := n.s.chosen()
	if err != nil {
		return err
	}
	if err := st.probe(ctx, n); err != nil {
		return err
	}
	n.refused.Store(false)
	return nil
}

// try is the one call that a server is tried by which was left alone for long enough, where no caller is before it: without,
// a process that nobody calls would leave it alone for ever, and count among the live ones no more.
func (n *node) try(ctx context.Context) error {
	if n.breaker.State() != breaker.Probing {
		return nil
	}
	st, err := n.s.chosen()
	if err != nil {
		return err
	}
	done, ok := n.breaker.Allow()
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(n.s.options.Deadline, ioTimeout))
	defer cancel()
	switch err = st.probe(ctx, n); {
	case err == nil:
		done(breaker.OK)
	case errors.Is(err, context.Canceled):
		done(breaker.Void)
	default:
		done(breaker.Failed)
		if ctx.Err() != nil {
			return nil // too slow for checks: it answers, though
		}
	}
	return err
}

// connect makes a client of the server that checks can be sent to.
func (n *node) connect(ctx context.Context) (client valkey.Client, err error) {
	client, err = valkey.NewClient(n.s.clientOption(n.addr))
	if err == nil {
		err = n.inspect(ctx, client)
	}
	if err == nil {
		err = n.s.prepare(ctx, n, client)
	}
	if err == nil {
		err = n.synchronise(ctx, client)
	}
	if err != nil && client != nil {
		client.Close()
	}
	return client, err
}

// inspect refuses a server that this store cannot be right on, and warns of one that may drop counters.
func (n *node) inspect(ctx context.Context, client valkey.Client) error {
	n.s.count("info")
	text, err := client.Do(ctx, client.B().Info().Section("server", "memory").Build()).ToString()
	if err != nil {
		return err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	switch cluster := fields["server_mode"] == "cluster" || fields["redis_mode"] == "cluster"; {
	case cluster && !n.s.options.Cluster:
		return errors.New("the server is part of a cluster, of which it has some counters only: want store.cluster: true")
	case !cluster && n.s.options.Cluster:
		return errors.New("the server is no part of a cluster: want store.cluster: false")
	}
	if policy := fields["maxmemory_policy"]; policy != "noeviction" {
		n.s.options.Log.Warn("store may evict counters, which forgets what callers have used: set maxmemory-policy noeviction", "store", n.addr, "policy", policy)
	}
	return nil
}

// synchronise learns how far the server's clock is ahead. The server reads it after we read ours, so the offset is at
// most a round trip too large, which makes not_after late by that, never early.
func (n *node) synchronise(ctx context.Context, client valkey.Client) error {
	var offset, shortest limit.Micros
	for i := range clockSamples {
		sent := n.s.now()
		n.s.count("time")
		parts, err := client.Do(ctx, client.B().Time().Build()).AsIntSlice()
		if err != nil {
			return err
		}
		if len(parts) != 2 {
			return fmt.Errorf("%w: TIME answered %d numbers, want 2", errUnreadable, len(parts))
		}
		if trip := n.s.now() - sent; i == 0 || trip < shortest {
			offset, shortest = limit.Micros(parts[0])*limit.Second+limit.Micros(parts[1])-sent, trip
		}
	}
	n.setOffset(offset)
	return nil
}
