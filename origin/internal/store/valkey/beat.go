package valkey

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

const (
	// beatEvery is how often a process tells that it is live, and liveFor how long that holds: a process that dies is counted
	// for as long as three beats may get lost. More often would cost the server more than a thousandth of what checks do.
	beatEvery = 2 * time.Second
	liveFor   = 7 * limit.Second
	// recentBeats is how many counts the largest is taken of: those of liveFor. A server that lost its data counts the processes
	// anew, and each would take too large a share if it went away again meanwhile.
	recentBeats = 4
	// maxLive bounds what is believed, whoever wrote it: a share is 1 long before.
	maxLive = 1_000_000
	// goodbyeWait bounds how long the end of a process waits to be told.
	goodbyeWait = 250 * time.Millisecond

	// liveKey holds the live processes, each with when it was last heard, by the server's clock.
	liveKey = "w1:{live}:processes"
)

// liveSlot is the slot of liveKey, which has its tag where counters have it.
var liveSlot = func() uint16 {
	var c limiter.Counter
	copy(c[:], liveKey)
	return slotOf(&c)
}()

// beats tell how many processes share the servers. The zero value is one that counts nobody but this process.
type beats struct {
	id      string
	live    atomic.Int64           // 0 before the first count
	refused atomic.Pointer[string] // why the server does not count; nil while it does
	running sync.WaitGroup
	first   chan struct{} // closed once the first count was tried

	// The goroutine's own.
	recent [recentBeats]int64
	counts int // beats that counted
	told   troubles
}

func (s *Store) startBeats(ctx context.Context) {
	b := &s.beats
	b.first = make(chan struct{})
	if !s.options.Process {
		close(b.first)
		return
	}
	b.id = newBeatID()
	b.running.Go(func() { s.keepBeating(ctx) })
}

// newBeatID names this process among the live ones.
func newBeatID() string {
	var id [12]byte
	rand.Read(id[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// Processes is how many live processes share the servers, this one included, as they were counted last: at least 1, which is
// also what a process knows that never reached them.
func (s *Store) Processes() int64 { return max(1, s.beats.live.Load()) }

// Uncounted is why a server that answers does not count the processes, so that [Store.Processes] is an old number, or 1 where
// there is none; empty while it does.
func (s *Store) Uncounted() string {
	if why := s.beats.refused.Load(); why != nil {
		return *why
	}
	return ""
}

// keepBeating beats until ctx ends, then says goodbye.
func (s *Store) keepBeating(ctx context.Context) {
	select {
	case <-s.looked:
	case <-ctx.Done():
	}
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for first := true; ctx.Err() == nil; first = false {
		if n := s.liveNode(); n != nil {
			within, cancel := context.WithTimeout(ctx, ioTimeout)
			s.tellBeat(ctx, n, s.beat(within, n, n.now()))
			cancel()
		}
		if first {
			close(s.beats.first)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	s.goodbye()
}

// liveNode is the server that counts the processes, nil while it is not known to answer: it is not asked then, so that a server
// that fails is left alone.
func (s *Store) liveNode() *node {
	n := s.topology.only
	if s.options.Cluster {
		n = s.topology.slots[liveSlot].Load()
	}
	if n == nil || !n.up.Load() || n.client.Load() == nil || n.breaker.State() != breaker.Closed {
		return nil
	}
	return n
}

// beat tells n that this process is live at now, and learns how many are.
func (s *Store) beat(ctx context.Context, n *node, now limit.Micros) error {
	client := n.client.Load()
	if client == nil {
		return errNotConnected
	}
	build := (*client).B
	from, to := micros(now-liveFor), micros(now+liveFor) // a clock that was stepped back leaves some ahead of it
	for _, command := range []string{"zadd", "zremrangebyscore", "zcount", "pexpire"} {
		s.count(command)
	}
	var live int64
	for i, reply := range (*client).DoMulti(ctx,
		build().Zadd().Key(liveKey).ScoreMember().ScoreMember(float64(now), s.beats.id).Build(),
		build().Zremrangebyscore().Key(liveKey).Min("-inf").Max("("+from).Build(),
		build().Zcount().Key(liveKey).Min(from).Max(to).Build(),
		build().Pexpire().Key(liveKey).Milliseconds(int64(2*liveFor/limit.Millisecond)).Build(),
	) {
		count, err := reply.AsInt64()
		if isForeign(err) {
			// Not left to expire, as one under a counter's name: each beat prolongs it.
			s.count("del")
			_ = (*client).Do(ctx, build().Del().Key(liveKey).Build()).Error() // else the next beat does
		}
		if err != nil {
			return err
		}
		if i == 2 {
			live = count
		}
	}
	s.beats.learn(live)
	if g := s.options.LiveProcesses; g != nil {
		g.Set(float64(s.Processes()))
	}
	return nil
}

// learn takes a count in. The largest of those that were counted lately holds.
func (b *beats) learn(live int64) {
	b.recent[b.counts%recentBeats] = min(live, maxLive)
	b.counts++
	most := int64(1)
	for _, n := range b.recent {
		most = max(most, n)
	}
	b.live.Store(most)
}

// tellBeat logs what keeps processes from being counted.
func (s *Store) tellBeat(ctx context.Context, n *node, err error) {
	switch _, answered := valkey.IsValkeyErr(err); {
	case err == nil, ctx.Err() != nil:
		s.beats.told.over()
		s.setUncounted(nil)
	case !answered:
		n.look() // the watch tells
	case s.movedOn(err):
		s.refreshSoon() // until the next beat
	default:
		why := err.Error()
		s.setUncounted(&why)
		if reason, news := s.beats.told.add(err); news {
			s.options.Log.Warn("live processes are not counted: while the store is away this process falls back to its share by the last known number",
				"store", n.addr, "processes", s.Processes(), "reason", reason)
		}
	}
}

func (s *Store) setUncounted(why *string) {
	if g := s.options.Uncounted; g != nil {
		uncounted := 0.0
		if why != nil {
			uncounted = 1
		}
		g.Set(uncounted)
	}
	s.beats.refused.Store(why)
}

// goodbye takes this process out of the count, if that is quick.
func (s *Store) goodbye() {
	n := s.liveNode()
	if n == nil {
		return
	}
	client := n.client.Load()
	if client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbyeWait)
	defer cancel()
	s.count("zrem")
	_ = (*client).Do(ctx, (*client).B().Zrem().Key(liveKey).Member(s.beats.id).Build()).Error() // else it is counted for liveFor
}

func micros(at limit.Micros) string { return strconv.FormatInt(int64(at), 10) }
