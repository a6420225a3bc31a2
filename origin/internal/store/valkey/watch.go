package valkey

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// watch connects, then keeps [Store.Up] and the clock's offset true, until ctx ends.
func (s *Store) watch(ctx context.Context) {
	defer close(s.done)
	told := "" // the trouble that was logged last
	for ctx.Err() == nil {
		err := s.look(ctx)
		wait := clockEvery
		if err != nil {
			wait = probeEvery
		}
		if ctx.Err() == nil {
			told = s.tell(err, told)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.wake:
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

// look connects if need be and asks the server for its time.
func (s *Store) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	client := s.client.Load()
	if client == nil {
		connected, err := s.connect(ctx)
		if err != nil {
			return err
		}
		if err := s.synchronise(ctx, connected); err != nil {
			connected.Close()
			return err
		}
		s.client.Store(&connected)
		return nil
	}
	if err := s.synchronise(ctx, *client); err != nil || !s.refused.Load() {
		return err
	}
	// A server that tells the time may still refuse every check, which is as good as none.
	if _, err := s.call(ctx, *client, []limiter.Charge{probe}); err != nil {
		return err
	}
	s.refused.Store(false)
	return nil
}

// probe asks a counter that nobody has, charging nothing.
var probe = limiter.Charge{
	Counter: limiter.Counter{}.Overflow(), Algorithm: rule.SlidingWindow,
	Limit: limit.Limit{Count: 1, Window: limit.Second},
}

func (s *Store) connect(ctx context.Context) (valkey.Client, error) {
	client, err := valkey.NewClient(valkey.ClientOption{
		InitAddress:       []string{s.options.Addr},
		Username:          s.options.Username,
		Password:          s.options.Password,
		SelectDB:          s.options.DB,
		Dialer:            net.Dialer{Timeout: ioTimeout},
		ConnWriteTimeout:  ioTimeout,
		DisableCache:      true, // counters are never read but to be changed
		DisableRetry:      true, // a check is not repeated behind our back: it may have charged
		AlwaysPipelining:  true, // a lone Do with a deadline would close its connection on expiry
		ForceSingleClient: true,
		ClientName:        "weir",
	})
	if err != nil {
		return nil, err
	}
	if err := s.inspect(ctx, client); err != nil {
		client.Close()
		return nil, err
	}
	return client, s.load(ctx, client)
}

// inspect refuses a server that this store cannot be right on, and warns of one that may drop counters.
func (s *Store) inspect(ctx context.Context, client valkey.Client) error {
	s.count("info")
	text, err := client.Do(ctx, client.B().Info().Section("server", "memory").Build()).ToString()
	if err != nil {
		return err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	if mode := fields["server_mode"]; mode == "cluster" || fields["redis_mode"] == "cluster" {
		return errors.New("the server is part of a cluster, which this version does not support: want a standalone server")
	}
	if policy := fields["maxmemory_policy"]; policy != "noeviction" {
		s.options.Log.Warn("store may evict counters, which forgets what callers have used: set maxmemory-policy noeviction", "store", s.options.Addr, "policy", policy)
	}
	return nil
}

// synchronise learns how far the server's clock is ahead. The server reads it after we read ours, so the offset is at
// most a round trip too large, which makes not_after late by that, never early.
func (s *Store) synchronise(ctx context.Context, client valkey.Client) error {
	sent := s.now()
	s.count("time")
	parts, err := client.Do(ctx, client.B().Time().Build()).AsIntSlice()
	if err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("TIME answered %d numbers, want 2", len(parts))
	}
	s.offset.Store(parts[0]*1_000_000 + parts[1] - int64(sent))
	return nil
}

// tell logs a change of the server's state, one line each, and reports it.
func (s *Store) tell(err error, told string) string {
	up, trouble := err == nil, ""
	if !up {
		trouble = err.Error()
	}
	if s.up.Swap(up) != up && s.options.OnUp != nil {
		s.options.OnUp(up)
	}
	switch {
	case trouble == told && (told != "" || !up):
	case up && told != "":
		s.options.Log.Info("store answers again", "store", s.options.Addr)
	case up:
	default:
		s.options.Log.Error("store does not answer: rules answer by their on-store-failure until it does", "store", s.options.Addr, "reason", trouble)
	}
	return trouble
}
