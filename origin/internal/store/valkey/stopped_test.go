package valkey

import (
	"context"
	"errors"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirproject/weir/origin/internal/breaker"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
)

// overdue is a context whose deadline is known and whose end a test commands.
type overdue struct {
	context.Context
	deadline time.Time
	over     chan struct{}
}

func (o *overdue) Deadline() (time.Time, bool) { return o.deadline, true }
func (o *overdue) Done() <-chan struct{}       { return o.over }

func (o *overdue) Err() error {
	select {
	case <-o.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// goAs is wg.Go of a function whose goroutines, with all that they start, are told from those of other tests.
func goAs(name string, wg *sync.WaitGroup, f func()) {
	wg.Go(func() { pprof.Do(context.Background(), pprof.Labels("as", name), func(context.Context) { f() }) })
}

// goroutinesAs counts the goroutines of a name.
func goroutinesAs(t *testing.T, name string) (all int) {
	t.Helper()
	var text strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(text.String()) {
		if count, _, ok := strings.Cut(line, " @ "); ok {
			n, _ = strconv.Atoi(count)
		} else if strings.HasPrefix(line, "# labels: ") && strings.Contains(line, strconv.Quote(name)) {
			all += n
		}
	}
	return all
}

// A stopped server leaves its sockets open, so that a client may queue for it without end. More checks than may be in
// flight must come back when their deadline is over all the same, while what they sent is still unanswered, and what the
// server finds in its sockets later must charge nobody.
func TestAStoppedServerHoldsNobodyPastTheDeadline(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, _ := open(t, server.Addr, production)
	n := s.topology.only
	l := limit.Limit{Count: 10_000, Window: limit.Hour}
	take(t, s, -1, charge(1, l, 1))
	server.Stop()
	defer server.Continue()

	const beyond = 400
	ctx := &overdue{context.Background(), time.Now().Add(time.Millisecond), make(chan struct{})}
	reasons := make(chan string, maxInFlight+beyond)
	var waiting sync.WaitGroup
	for range maxInFlight + beyond {
		goAs("callers", &waiting, func() {
			err := s.Take(ctx, &limiter.Call{Charges: []limiter.Charge{charge(1, l, 1)}, Outcomes: make([]limiter.Outcome, 1)})
			var failed *limiter.StoreError
			if errors.As(err, &failed) {
				reasons <- failed.Reason
			} else {
				reasons <- "none"
			}
		})
	}
	told := map[string]int{}
	for range beyond { // those that there is no room for are told at once
		told[<-reasons]++
	}
	if told[reasonBusy]+told[reasonOpen] != beyond || told[reasonBusy] == 0 {
		t.Errorf("of those beyond the bound: %v, want %d of %s, %s", told, beyond, reasonBusy, reasonOpen)
	}
	// Those beyond the bound are told, but maybe not over yet.
	if most := goroutinesAs(t, "callers"); most < maxInFlight || most > 2*maxInFlight+beyond {
		t.Errorf("%d goroutines wait for the server, want %d callers and at most as many that send for them", most, maxInFlight)
	}
	unanswered := len(n.inFlight)
	close(ctx.over)
	waiting.Wait()
	for range maxInFlight {
		told[<-reasons]++
	}
	if told["none"] > 0 || told[reasonDeadline] == 0 {
		t.Errorf("from a stopped server: %v", told)
	}
	// Nobody waited for the server: what they sent is in flight still, unless the silence was noticed just now.
	if after := len(n.inFlight); after != unanswered && told[reasonUnreachable] == 0 {
		t.Errorf("%d requests were in flight before the deadline was over, %d after", unanswered, after)
	}

	<-time.After(250 * time.Millisecond) // time itself has to pass what not_after is late by, a round trip at most
	server.Continue()
	o := make([]limiter.Outcome, 1)
	within(t, "checks pass again", func() bool { // the connection may have been given up; there is no event for the next one
		return s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{charge(1, l, 0)}, Outcomes: o}) == nil
	})
	if used := l.Count - o[0].Decision.Remaining; used != 1 {
		t.Errorf("calls that were answered by their failure mode were charged all the same: %d used, want 1", used)
	}
}

// A process that has no room for another call says nothing about the server: its breaker stays as it is.
func TestWantOfRoomIsNoFailureOfTheServer(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s, commands := open(t, server.Addr, production)
	n := s.topology.only
	ask := func() error {
		return s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{charge(1, limit.Limit{Count: 10, Window: limit.Hour}, 1)}, Outcomes: make([]limiter.Outcome, 1)})
	}
	for range maxInFlight {
		n.inFlight <- struct{}{}
	}
	room := sync.OnceFunc(func() {
		for range maxInFlight {
			<-n.inFlight
		}
	})
	t.Cleanup(room)
	for range 10 * breaker.MinSample {
		var failed *limiter.StoreError
		if err := ask(); !errors.As(err, &failed) || failed.Reason != limiter.Busy {
			t.Fatalf("%v, want %s", err, limiter.Busy)
		}
	}
	if state := n.breaker.State(); state != breaker.Closed {
		t.Errorf("the breaker is %v", state)
	}
	// A server that fails, on the other hand, is no overload of ours, though those that wait for it have the room. The watch,
	// which would try it by itself, is ended.
	n.cancel()
	<-n.done
	for range breaker.MinSample {
		if done, ok := n.breaker.Allow(); ok {
			done(breaker.Failed)
		}
	}
	within(t, "the breaker probes", func() bool { return n.breaker.State() == breaker.Probing })
	for range 5 {
		var failed *limiter.StoreError
		if err := ask(); !errors.As(err, &failed) || failed.Reason != reasonOpen {
			t.Errorf("while probing: %v, want %s", err, reasonOpen)
		}
	}
	if sent := testutil.ToFloat64(commands.WithLabelValues("fcall")); sent != 0 {
		t.Errorf("%v calls are counted as sent", sent)
	}
	room()
	if err := ask(); err != nil || n.breaker.State() != breaker.Closed {
		t.Errorf("with room again: %v, the breaker is %v", err, n.breaker.State())
	}
}
