package campaign

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/storetest"
	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// asking is what a client asked of one counter.
type asking struct {
	key    string
	refund bool
	m      modelled
}

// told is what it was answered.
type told struct {
	admitted, charged bool
	remaining         int64
}

// linear is one counter by package limit. Time stands still in it: windows are long, so that nothing refills or expires.
var linear = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		at := map[string]int{}
		for _, o := range history {
			key := o.Input.(asking).key
			if _, ok := at[key]; !ok {
				at[key] = len(parts)
				parts = append(parts, nil)
			}
			parts[at[key]] = append(parts[at[key]], o)
		}
		return parts
	},
	Init:  func() any { return nil },
	Equal: reflect.DeepEqual,
	Step: func(state, input, output any) (bool, any) {
		in, out := input.(asking), output.(told)
		c := newCounters()
		if state == nil {
			state, _ = c.load(in.m, linearNow)
		}
		if in.refund {
			return true, refund(state, in.m, linearNow, linearNow)
		}
		next, d := take(state, in.m, linearNow)
		if d.Allowed {
			return out.admitted && out.charged && out.remaining == d.Remaining, next
		}
		return !out.admitted && !out.charged && out.remaining == d.Remaining, state
	},
}

const linearNow = begin

// What parallel clients are answered by a real server is what some order of their calls, each between when it was sent and
// when it was answered, gives by package limit.
func TestCountersOnValkeyAreLinearizable(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) valkey.Options{
		"standalone": func(t *testing.T) valkey.Options { return valkey.Options{Addrs: []string{valkeytest.Start(t).Addr}} },
		"cluster": func(t *testing.T) valkey.Options {
			return valkey.Options{Addrs: valkeytest.StartCluster(t, 3).Addrs(), Cluster: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			up := make(chan bool, 64)
			o := open(t)
			o.Log, o.OnUp, o.Strategy = slog.New(slog.DiscardHandler), func(b bool) { up <- b }, valkey.Function
			s := valkey.New(o)
			t.Cleanup(s.Close)
			patience := time.After(20 * time.Second)
			for is := false; !is; {
				select {
				case is = <-up:
				case <-patience:
					t.Fatal("the store does not come up")
				}
			}
			first := *seed
			if first == 0 {
				first = rand.Uint64() >> 1
			}
			t.Logf("repeat with -args -seed %d", first)
			history := record(t, s, first)
			if result := porcupine.CheckOperationsTimeout(linear, history, time.Minute); result != porcupine.Ok {
				t.Errorf("%d operations: %s", len(history), result)
			}
			// What cannot be is found: one more admission than was given.
			for i := range history {
				if out := history[i].Output.(told); !history[i].Input.(asking).refund && !out.admitted {
					out.admitted, out.charged = true, true
					history[i].Output = out
					break
				}
			}
			if porcupine.CheckOperationsTimeout(linear, history, time.Minute) == porcupine.Ok {
				t.Error("a refusal that is told as an admission is not found")
			}
			t.Logf("linear: %s: %d operations", name, len(history))
		})
	}
}

// record has clients call a store in parallel, and notes what they see.
func record(t *testing.T, s limiter.Store, first uint64) (history []porcupine.Operation) {
	const clients, calls, counters = 6, 60, 12
	ruled := []rule.Algorithm{rule.TokenBucket, rule.GCRA, rule.SlidingWindow, rule.FixedWindow, rule.LeakyBucket, rule.SlidingLog}
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for client := range clients {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(first, uint64(client)))
			type paying struct {
				call limiter.Call
				in   asking
			}
			var paid []paying
			for range calls {
				n := r.IntN(counters)
				in := asking{key: string(rune('a' + n)), m: modelled{algorithm: ruled[n%len(ruled)], limit: limit.Limit{Count: 7, Window: 300 * limit.Day}, cost: 1 + r.Int64N(2)}}
				call := limiter.Call{Outcomes: make([]limiter.Outcome, 1), Charges: []limiter.Charge{
					{Counter: storetest.Name(n), Algorithm: in.m.algorithm, Limit: in.m.limit, Cost: in.m.cost}}}
				ask := s.Take
				if len(paid) > 0 && r.IntN(3) == 0 {
					last := len(paid) - 1
					call, in, ask = paid[last].call, paid[last].in, s.Refund
					in.refund, paid = true, paid[:last]
				}
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				sent := time.Since(began)
				err := ask(ctx, &call)
				answered := time.Since(began)
				cancel()
				if err != nil {
					t.Errorf("%+v: %v", in, err)
					return
				}
				out := told{}
				if !in.refund {
					o := call.Outcomes[0]
					out = told{o.Status == limiter.Admitted, o.Charged, o.Decision.Remaining}
					if o.Charged {
						paid = append(paid, paying{call, in})
					}
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: int64(sent), Return: int64(answered)})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}
