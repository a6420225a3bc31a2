package fault_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/fault"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/store/storetest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Without a fault, and with foreign values, it is a store as any other.
func TestConformance(t *testing.T) {
	storetest.Suite{
		Open:          func(*testing.T) limiter.Store { return fault.New(memory.New(10_000, nil)) },
		At:            storetest.AtCall,
		RemembersByAt: true,
		Foreign: map[string]func(*testing.T, limiter.Store, limiter.Charge){
			"spoilt": func(_ *testing.T, s limiter.Store, c limiter.Charge) { s.(*fault.Store).Spoil(c.Counter) },
		},
	}.Run(t)
}

func charge(n int, cost int64) limiter.Charge {
	return limiter.Charge{Counter: storetest.Name(n), Algorithm: rule.FixedWindow, Limit: limit.Limit{Count: 10, Window: limit.Hour}, Cost: cost}
}

// call is one of cost 1 from each of some counters.
func call(names ...int) *limiter.Call {
	c := &limiter.Call{Now: limit.Hour, Outcomes: make([]limiter.Outcome, len(names))}
	for _, n := range names {
		c.Charges = append(c.Charges, charge(n, 1))
	}
	return c
}

func used(t *testing.T, s *fault.Store, n int) int64 {
	t.Helper()
	c := &limiter.Call{Now: limit.Hour, Charges: []limiter.Charge{charge(n, 0)}, Outcomes: make([]limiter.Outcome, 1)}
	if err := s.Behind().Take(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	return 10 - c.Outcomes[0].Decision.Remaining
}

func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	var failed *limiter.StoreError
	if !errors.As(err, &failed) || failed.Reason != reason {
		t.Errorf("error %v, want reason %s", err, reason)
	}
}

func TestAFailedRequestIsNotDone(t *testing.T) {
	s, ctx := fault.New(memory.New(1000, nil)), context.Background()
	s.Inject(fault.Fault{On: fault.Take, Times: 2, Reason: "busy"})
	for range 2 {
		wantReason(t, s.Take(ctx, call(1)), "busy")
	}
	c := call(1)
	if err := s.Take(ctx, c); err != nil || !c.Outcomes[0].Charged || used(t, s, 1) != 1 {
		t.Errorf("the third: %v, %+v, %d used", err, c.Outcomes, used(t, s, 1))
	}
	s.Inject(fault.Fault{On: fault.Refund | fault.Reset, Reason: "answer"})
	wantReason(t, s.Refund(ctx, c), "answer")
	wantReason(t, s.Reset(ctx, c), "answer")
	if err := s.Take(ctx, call(1)); err != nil || used(t, s, 1) != 2 {
		t.Errorf("beside failing refunds: %v, %d used", err, used(t, s, 1))
	}
	s.Heal()
	if err := s.Reset(ctx, c); err != nil || used(t, s, 1) != 0 {
		t.Errorf("healed: %v, %d used", err, used(t, s, 1))
	}
}

func TestALostReplyIsOfARequestThatWasDone(t *testing.T) {
	s, c := fault.New(memory.New(1000, nil)), call(1, 2)
	s.Inject(fault.Fault{Reason: "deadline", Done: true})
	wantReason(t, s.Take(context.Background(), c), "deadline")
	if c.Outcomes[0].Charged || used(t, s, 1) != 1 || used(t, s, 2) != 1 {
		t.Errorf("outcomes %+v, %d and %d used", c.Outcomes, used(t, s, 1), used(t, s, 2))
	}
}

func TestADuplicateIsDoneTwiceAndAnsweredOnce(t *testing.T) {
	s, c := fault.New(memory.New(1000, nil)), call(1)
	s.Inject(fault.Fault{Twice: true, Times: 1})
	if err := s.Take(context.Background(), c); err != nil || !c.Outcomes[0].Made || c.Outcomes[0].Decision.Remaining != 9 || used(t, s, 1) != 2 {
		t.Errorf("%v, %+v, %d used", err, c.Outcomes, used(t, s, 1))
	}
	// With an id it is charged once.
	c = call(2)
	c.ID = storetest.ID(1)
	s.Inject(fault.Fault{Twice: true, Times: 1})
	if err := s.Take(context.Background(), c); err != nil || !c.Outcomes[0].Charged || used(t, s, 2) != 1 {
		t.Errorf("with an id: %v, %+v, %d used", err, c.Outcomes, used(t, s, 2))
	}
}

func TestAGateHoldsRequestsUntilItOpensOrTheirTimeIsUp(t *testing.T) {
	s, gate := fault.New(memory.New(1000, nil)), fault.NewGate()
	s.Inject(fault.Fault{On: fault.Take, Gate: gate})
	answers := make(chan error, 2)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { answers <- s.Take(ctx, call(1)) }()
	<-gate.Arrived()
	cancel()
	wantReason(t, <-answers, "deadline")
	go func() { answers <- s.Take(context.Background(), call(1)) }()
	<-gate.Arrived()
	if used(t, s, 1) != 0 {
		t.Errorf("%d used while all requests are held", used(t, s, 1))
	}
	gate.Open()
	gate.Open()
	if err := <-answers; err != nil || used(t, s, 1) != 1 {
		t.Errorf("after the gate opened: %v, %d used", err, used(t, s, 1))
	}
}

func TestLostPartsLeaveTheRest(t *testing.T) {
	for _, done := range []bool{false, true} {
		s, c := fault.New(memory.New(1000, nil)), call(1, 2, 3)
		lost := storetest.Name(2)
		s.Inject(fault.Fault{Done: done, Lost: func(c limiter.Counter) bool { return c == lost }})
		if err := s.Take(context.Background(), c); err != nil {
			t.Fatal(err)
		}
		if c.Outcomes[0].Status != limiter.Admitted || c.Outcomes[1].Status != limiter.Lost || !c.Outcomes[2].Charged {
			t.Errorf("outcomes %+v", c.Outcomes)
		}
		wantReason(t, c.Outcomes[1].Err, "unreachable")
		want := map[bool]int64{true: 1}[done]
		if used(t, s, 1) != 1 || used(t, s, 2) != want || used(t, s, 3) != 1 {
			t.Errorf("done %v: %d, %d, %d used", done, used(t, s, 1), used(t, s, 2), used(t, s, 3))
		}
		wantReason(t, s.Take(context.Background(), call(2)), "unreachable")
	}
}

func TestRequestsAreRecordedAsTheyCame(t *testing.T) {
	s, ctx := fault.New(memory.New(1000, nil)), context.Background()
	s.Inject(fault.Fault{On: fault.Reset, Reason: "busy"})
	c := call(1, 2)
	s.Take(ctx, c)
	s.Refund(ctx, c)
	s.Reset(ctx, call(3))
	c.Charges[0].Cost = 77
	asked := s.Asked()
	if len(asked) != 3 || asked[0].Op != fault.Take || asked[1].Op != fault.Refund || asked[2].Op != fault.Reset {
		t.Fatalf("asked %+v", asked)
	}
	if asked[0].Call.Outcomes[0].Charged || !asked[1].Call.Outcomes[0].Charged || asked[0].Call.Charges[0].Cost != 1 {
		t.Errorf("asked %+v", asked)
	}
	if len(s.Asked()) != 0 {
		t.Error("requests are told twice")
	}
}
