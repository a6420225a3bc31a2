package limiter_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
)

// sharedBy is a limiter that shares its limits with others, n in all.
func sharedBy(n *atomic.Int64) func(*limiter.Options) {
	return func(o *limiter.Options) { o.Processes = n.Load }
}

var algorithms = []string{"sliding-window", "fixed-window", "sliding-log", "token-bucket", "gcra", "leaky-bucket"}

func TestTheFallbackAdmitsAnNthAndSaysSo(t *testing.T) {
	for _, algorithm := range algorithms {
		t.Run(algorithm, func(t *testing.T) {
			var n atomic.Int64
			n.Store(4)
			w := newWorld(t, fmt.Sprintf("version: 1\nrules:\n- {name: r, where: origin, by: [key], algorithm: %s, limit: 100/1h}\n", algorithm), sharedBy(&n))
			a := key("a", "")
			if v := w.get(a, "/"); v.Degraded || v.Views[0].Limit.Count != 100 || v.Views[0].Decision.Limit != 100 {
				t.Errorf("by the store: %+v", v)
			}
			// The breaker flaps: ten times the store is away and back. What was admitted meanwhile stays counted.
			fellBack := 0
			for range 10 {
				w.store.Inject(fault.Fault{Reason: "open"})
				for range 10 {
					v := w.get(a, "/")
					if v.Allowed {
						fellBack++
					}
					if d := v.Views[0].Decision; !v.Degraded || v.Views[0].Limit.Count != 25 || d.Limit != 25 || !v.Allowed && d.RetryAfter <= 0 {
						t.Fatalf("without the store: %+v", v)
					}
				}
				w.store.Heal()
				w.get(a, "/")
			}
			if fellBack != 25 {
				t.Errorf("the fallback admitted %d of 100, want a quarter of the limit", fellBack)
			}
			// Others end: the share of those that are left is theirs at once, what they admitted still counts.
			n.Store(2)
			w.store.Inject(fault.Fault{Reason: "open"})
			if more := w.admitted(100, a, "/"); more > 25 {
				t.Errorf("%d more as one of two: the share is 50, of which 25 are used", more)
			}
			n.Store(1000)
			if v := w.get(key("b", ""), "/"); !v.Allowed || v.Views[0].Decision.Limit != 1 {
				t.Errorf("one of a thousand: %+v", v)
			}
		})
	}
}

func TestACostAboveTheShareIsNotToldNever(t *testing.T) {
	var n atomic.Int64
	n.Store(10)
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 10/1h, cost: 3}\n", sharedBy(&n))
	w.store.Inject(fault.Fault{Reason: "unreachable"})
	v := w.get(key("a", ""), "/")
	if d := v.Views[0].Decision; v.Allowed || v.Code != header.RateLimited || d.RetryAfter != limit.Second {
		t.Errorf("a cost of 3, with a share of 1 of a limit of 10: %+v", v)
	}
	v = w.check(limiter.Request{Caller: key("a", ""), Method: "GET", Path: "/", Cost: 11})
	if v.Views[0].Decision.RetryAfter != limit.Never {
		t.Errorf("a cost above the limit: %+v", v)
	}
}

// A refusal is asked about again after 30 s. If the store is away then, the rest of the hour is as used up as before.
func TestWhatTheStoreRefusedStaysRefusedWithoutIt(t *testing.T) {
	for _, algorithm := range algorithms {
		t.Run(algorithm, func(t *testing.T) {
			w := newWorld(t, fmt.Sprintf("version: 1\nrules:\n- {name: r, where: origin, by: [key], algorithm: %s, limit: 10/1h}\n", algorithm))
			a := key("a", "")
			w.admitted(10, a, "/")
			wait := w.get(a, "/").Views[0].Decision.RetryAfter
			frees := w.now + wait
			w.now += 31 * limit.Second // past the opening
			w.store.Inject(fault.Fault{Reason: "open"})
			if v := w.get(a, "/"); v.Allowed || !v.Degraded || v.Code != header.RateLimited || v.Views[0].Decision.RetryAfter != frees-w.now || v.Hint != (limiter.Hint{}) {
				t.Errorf("%+v, want a wait of %d", v, frees-w.now)
			}
			if v := w.check(limiter.Request{Caller: a, Method: "GET", Path: "/", Peek: true}); v.Allowed {
				t.Errorf("a peek: %+v", v)
			}
			w.now = frees - 1
			if v := w.get(a, "/"); v.Allowed {
				t.Errorf("1 µs early: %+v", v)
			}
			w.now = frees
			if v := w.get(a, "/"); !v.Allowed {
				t.Errorf("after its wait: %+v", v)
			}
		})
	}
}

// The store was heard since: it has room again, by a reset that this process was not told of.
func TestAnAdmissionEndsWhatARefusalSaid(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], algorithm: fixed-window, limit: 10/1h}\n")
	a := key("a", "")
	w.admitted(11, a, "/")
	call := limiter.Call{Now: w.now, Charges: w.asked, Outcomes: make([]limiter.Outcome, 1)}
	if err := w.store.Reset(context.Background(), &call); err != nil {
		t.Fatal(err)
	}
	w.now += 31 * limit.Second
	if v := w.get(a, "/"); !v.Allowed {
		t.Fatalf("after a reset: %+v", v)
	}
	w.store.Inject(fault.Fault{Reason: "open"})
	if v := w.get(a, "/"); !v.Allowed {
		t.Errorf("without the store: %+v", v)
	}
}

// Case 14 with a process that is too busy to hear its store in time: calls that missed their deadline admit what the store
// is not known to have refused, at most this process's share.
func TestParallelCallsThatMissTheirDeadline(t *testing.T) {
	const calls = 100
	for _, c := range []struct {
		name     string
		n        int64
		answered bool // one of them in time
		want     int
	}{
		{"one is answered, which uses up what was left", 4, true, 1},
		{"none is answered, one process of four", 4, false, 25},
		{"none is answered, one process of a thousand", 1000, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var n atomic.Int64
			n.Store(c.n)
			w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], algorithm: fixed-window, limit: 100/1h}\n", sharedBy(&n))
			a := key("a", "")
			if passed := w.admitted(calls-1, a, "/"); passed != calls-1 {
				t.Fatalf("%d passed", passed)
			}
			gate, held := fault.NewGate(), calls
			if c.answered {
				held--
			}
			w.store.Inject(fault.Fault{Gate: gate, Times: held})
			ctx, miss := context.WithCancel(context.Background())
			defer miss()
			var passed atomic.Int64
			var all sync.WaitGroup
			answered := make(chan limiter.Verdict, calls)
			for range calls {
				all.Go(func() {
					v, err := w.limiter.Check(ctx, limiter.Request{Caller: a, Method: "GET", Path: "/"})
					if err != nil {
						t.Error(err)
					}
					if v.Allowed {
						passed.Add(1)
					}
					answered <- v
				})
			}
			for range held {
				<-gate.Arrived()
			}
			if c.answered {
				if v := <-answered; !v.Allowed || v.Degraded {
					t.Errorf("the one in time: %+v", v)
				}
			}
			miss()
			all.Wait()
			if int(passed.Load()) != c.want {
				t.Errorf("%d of %d passed, want %d", passed.Load(), calls, c.want)
			}
			if left := w.left(a); left < 0 || left > 1 {
				t.Errorf("%d left at the store", left)
			}
		})
	}
}

func TestWithoutRoomToAskTheAnswerIsOverloaded(t *testing.T) {
	for mode, admitted := range map[string]bool{"local": false, "closed": false, "open": true} {
		for name, f := range map[string]fault.Fault{
			"no answer":   {Reason: limiter.Busy},
			"a lost part": {Reason: limiter.Busy, Lost: func(limiter.Counter) bool { return true }},
		} {
			w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 10/1h, on-store-failure: "+mode+"}\n")
			w.store.Inject(f)
			v := w.get(key("a", ""), "/")
			if v.Allowed != admitted || !v.Degraded || v.Hint != (limiter.Hint{}) {
				t.Errorf("%s, %s: %+v", mode, name, v)
			}
			if !admitted && (v.Code != header.Overloaded || v.Views[0].Decision.RetryAfter != limit.Second) {
				t.Errorf("%s, %s: %+v", mode, name, v)
			}
			if w.local.Len() != 0 {
				t.Errorf("%s, %s: the fallback was charged", mode, name)
			}
			w.store.Heal()
			if left := w.left(key("a", "")); left != 10 {
				t.Errorf("%s, %s: %d left at the store", mode, name, left)
			}
		}
	}
}

// Whoever is over a limit is told that, not that there is no room.
func TestOverloadAndALimitAreNotConfused(t *testing.T) {
	w := newWorld(t, threeParts[:len("\nversion: 1\nrules:\n")]+`
- {name: full, where: origin, by: [key], limit: 1/1h}
- {name: busy, where: origin, by: [address], limit: 100/1h}
`)
	a := key("a", "")
	w.get(a, "/")
	w.limiter.Use(w.limiter.Release())
	busy := w.counters(a, "/")[1]
	w.store.Inject(fault.Fault{Reason: limiter.Busy, Lost: func(c limiter.Counter) bool { return c == busy }})
	if v := w.get(a, "/"); v.Code != header.RateLimited || v.Views[v.Deciding].Rule != "full" {
		t.Errorf("%+v", v)
	}
	if v := w.get(key("b", ""), "/"); v.Code != header.Overloaded || v.Views[v.Deciding].Rule != "busy" {
		t.Errorf("%+v", v)
	}
	w.store.Heal()
	if left := w.left(key("b", "")); left != 1 {
		t.Errorf("the refused call was charged: %d left", left)
	}
}

// A call that waited for the store for longer than the limit's window takes from what its process admits by itself at the
// instant at which it does: by the one at which it began, all that others took since would count as not taken yet.
func TestACallThatWaitedLongTakesNoShareOfThePast(t *testing.T) {
	for _, algorithm := range algorithms {
		t.Run(algorithm, func(t *testing.T) {
			w := newWorld(t, fmt.Sprintf("version: 1\nrules:\n- {name: r, where: origin, by: [key], algorithm: %s, limit: 5/1s}\n", algorithm))
			a := key("a", "")
			gate := fault.NewGate()
			w.store.Inject(fault.Fault{Gate: gate, Reason: "deadline", Times: 1})
			answered := make(chan limiter.Verdict, 1)
			go func() { answered <- w.get(a, "/") }()
			<-gate.Arrived()
			w.mu.Lock()
			w.now += 5 * limit.Second
			w.mu.Unlock()
			w.store.Inject(fault.Fault{Reason: "deadline"})
			before := w.admitted(4, a, "/")
			gate.Open()
			if v := <-answered; v.Allowed {
				before++
			}
			if after := w.admitted(10, a, "/"); before+after != 5 {
				t.Errorf("%d admitted before and %d after the call that waited, at one instant, want 5 in all", before, after)
			}
		})
	}
}
