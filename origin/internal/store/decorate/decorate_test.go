package decorate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/decorate"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/store/storetest"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// all is a store with everything round it, in the order that the server has.
func all(next limiter.Store, m *telemetry.Metrics) limiter.Store {
	return decorate.Traced(decorate.Metered(decorate.Deadline(next, time.Minute), m))
}

func TestADecoratedStoreIsTheStore(t *testing.T) {
	storetest.Suite{
		Open:          func(*testing.T) limiter.Store { return all(memory.New(memory.DefaultSize, nil), telemetry.New()) },
		At:            storetest.AtCall,
		RemembersByAt: true,
	}.Run(t)
}

// asked is a store that does what a test says.
type asked func(ctx context.Context, c *limiter.Call) error

func (a asked) Take(ctx context.Context, c *limiter.Call) error   { return a(ctx, c) }
func (a asked) Refund(ctx context.Context, c *limiter.Call) error { return a(ctx, c) }
func (a asked) Reset(ctx context.Context, c *limiter.Call) error  { return a(ctx, c) }

// each makes every kind of request.
func each(s limiter.Store, ctx context.Context, do func(op string, err error)) {
	do("take", s.Take(ctx, call()))
	do("refund", s.Refund(ctx, call()))
	do("reset", s.Reset(ctx, call()))
}

func call() *limiter.Call {
	return &limiter.Call{Now: limit.Hour, Outcomes: make([]limiter.Outcome, 2), Charges: []limiter.Charge{
		{Counter: storetest.Name(1), Algorithm: rule.SlidingWindow, Limit: limit.Limit{Count: 5, Window: limit.Hour}, Cost: 1},
		{Counter: storetest.Name(2), Algorithm: rule.SlidingWindow, Limit: limit.Limit{Count: 5, Window: limit.Hour}, Cost: 1},
	}}
}

// A call that is asked again, for a wider counter or without a foreign one, waits no longer for that.
func TestADeadlineIsThatOfACallHoweverOftenItIsAsked(t *testing.T) {
	var by []time.Time
	s := decorate.Deadline(asked(func(ctx context.Context, _ *limiter.Call) error {
		deadline, _ := ctx.Deadline()
		by = append(by, deadline)
		return ctx.Err()
	}), time.Hour)
	c := call()
	for range 3 {
		if err := s.Take(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if by[0] != by[1] || by[0] != by[2] {
		t.Errorf("deadlines %v", by)
	}
	if err := s.Take(t.Context(), call()); err != nil || !by[3].After(by[0]) {
		t.Errorf("of another call %v, want one of its own", by[3])
	}
	c.By = time.Now().Add(-1)
	if err := s.Take(t.Context(), c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after it: %v", err)
	}
}

// A client that goes away must not have its call charged to the fallback: the store goes on, up to the deadline.
func TestADeadlineHoldsWhateverTheCallerDoes(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	s := decorate.Deadline(asked(func(ctx context.Context, _ *limiter.Call) error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("ended with its caller: %w", err)
		}
		if _, ok := ctx.Deadline(); !ok {
			return errors.New("has no deadline")
		}
		<-ctx.Done()
		return &limiter.StoreError{Reason: "deadline", Err: context.Cause(ctx)}
	}), time.Millisecond)
	each(s, gone, func(op string, err error) {
		var failed *limiter.StoreError
		if !errors.As(err, &failed) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", op, err)
		}
	})
}

func TestRequestsAndFailuresAreCounted(t *testing.T) {
	m := telemetry.New()
	fault := error(nil)
	s := decorate.Metered(asked(func(_ context.Context, c *limiter.Call) error {
		c.Outcomes[1] = limiter.Outcome{Status: limiter.Lost, Err: &limiter.StoreError{Reason: "unreachable", Err: errors.New("x")}}
		return fault
	}), m)
	each(s, t.Context(), func(string, error) {})
	for _, fault = range []error{&limiter.StoreError{Reason: "busy", Err: errors.New("x")}, errors.New("odd")} {
		each(s, t.Context(), func(op string, err error) {
			if !errors.Is(err, fault) {
				t.Errorf("%s: %v is not passed on", op, err)
			}
		})
	}
	for reason, want := range map[string]float64{"unreachable": 1, "busy": 3, "other": 3} {
		if n := testutil.ToFloat64(m.StoreErrors.WithLabelValues(reason)); n != want {
			t.Errorf("%v errors of reason %s, want %v", n, reason, want)
		}
	}
	if n := testutil.CollectAndCount(m.StoreDuration); n != 3 {
		t.Errorf("%d operations have a time, want 3", n)
	}
}

func TestSpansTellWhatWasAskedAndNoPrincipal(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(kept))
	fault := error(nil)
	s := decorate.Traced(asked(func(_ context.Context, c *limiter.Call) error {
		c.Outcomes[1].Status = limiter.Refused
		return fault
	}))
	ctx, root := provider.Tracer("test").Start(t.Context(), "request")
	each(s, ctx, func(string, error) {})
	fault = &limiter.StoreError{Reason: "unreachable", Err: errors.New("dial 192.0.2.1: refused")}
	each(s, ctx, func(string, error) {})
	root.End()
	var got []string
	for _, span := range kept.GetSpans() {
		if span.Name == "request" {
			continue
		}
		text := span.Name + " " + span.Status.Code.String() + " " + span.Status.Description
		for _, a := range span.Attributes {
			text += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
		}
		if span.Parent.SpanID() != root.SpanContext().SpanID() {
			t.Errorf("%s is not under the request", text)
		}
		for _, secret := range []string{"w1:", "192.0.2.1"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s tells %s", text, secret)
			}
		}
		got = append(got, text)
	}
	want := `store take Unset  weir.store.op=take weir.rules=2 weir.store.status=refused
store refund Unset  weir.store.op=refund weir.rules=2 weir.store.status=done
store reset Unset  weir.store.op=reset weir.rules=2 weir.store.status=done
store take Error unreachable weir.store.op=take weir.rules=2 weir.store.status=unreachable
store refund Error unreachable weir.store.op=refund weir.rules=2 weir.store.status=unreachable
store reset Error unreachable weir.store.op=reset weir.rules=2 weir.store.status=unreachable`
	if strings.Join(got, "\n") != want {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
	}
}

func TestMetricsAndUnrecordedSpansAllocateNothing(t *testing.T) {
	s := decorate.Traced(decorate.Metered(asked(func(context.Context, *limiter.Call) error { return nil }), telemetry.New()))
	c, ctx := call(), context.Background()
	if n := testing.AllocsPerRun(1000, func() {
		if s.Take(ctx, c) != nil || s.Refund(ctx, c) != nil || s.Reset(ctx, c) != nil {
			t.Fatal("failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
