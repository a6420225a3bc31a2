package valkey

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
)

// A stopped server leaves its sockets open, so that a client may queue for it without end. More checks than its queue
// holds must come back by their deadline all the same, and leave nothing behind.
func TestAStoppedServerHoldsNobodyPastTheDeadline(t *testing.T) {
	server := valkeytest.Start(t)
	s, _ := open(t, server.Addr, production)
	l := limit.Limit{Count: 1000, Window: limit.Hour}
	take(t, s, -1, charge(1, l, 1))
	server.Stop()

	const callers, calls = 64, 100
	// A hundred deadlines: far above what a busy machine adds, far below the seconds until a dead connection is noticed.
	const deadline, late = 5 * time.Millisecond, 500 * time.Millisecond
	var held, passed atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range calls {
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				began := time.Now()
				if err := s.Take(ctx, &limiter.Call{Charges: []limiter.Charge{charge(1, l, 1)}, Outcomes: make([]limiter.Outcome, 1)}); err == nil {
					passed.Add(1)
				}
				if time.Since(began) > late {
					held.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if held.Load() > 0 || passed.Load() > 0 {
		t.Errorf("of %d checks, %d were held for %v and more, %d were answered", callers*calls, held.Load(), late, passed.Load())
	}
	if n := runtime.NumGoroutine(); n > 2*maxInFlight+100 {
		t.Errorf("%d goroutines wait for the server, want at most about %d", n, 2*maxInFlight)
	}

	<-time.After(250 * time.Millisecond) // as above: past the last deadline and what not_after is late by
	server.Continue()
	recovered := time.After(20 * time.Second)
	o := make([]limiter.Outcome, 1)
	for { // the connection may have been given up meanwhile; there is no event for the next one
		if err := s.Take(context.Background(), &limiter.Call{Charges: []limiter.Charge{charge(1, l, 0)}, Outcomes: o}); err == nil {
			break
		}
		select {
		case <-recovered:
			t.Fatal("the server runs again, checks still fail")
		case <-time.After(50 * time.Millisecond):
		}
	}
	if used := l.Count - o[0].Decision.Remaining; used != 1 {
		t.Errorf("calls that were answered by their failure mode were charged all the same: %d used, want 1", used)
	}
}
