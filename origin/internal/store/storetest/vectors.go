package storetest

import (
	"os"
	"path/filepath"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/moduletest"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
	"github.com/weirproject/weir/shared/rule"
)

// vectors are shared/limit's, as far as the port of a store reaches: a peek is for cost 1, costs are validated before.
func vectors(f *fixture) {
	f.virtual()
	files, err := limittest.ReadAll(os.DirFS(filepath.Join(moduletest.Root(f), "shared", "limit", "testdata")))
	if err != nil {
		f.Fatal(err)
	}
	cases, calls, out := 0, 0, 0
	for name, file := range files {
		for _, c := range file {
			if f.leftOut(name, c) {
				out++
				continue
			}
			cases++
			calls += f.vector(name, c, cases)
		}
	}
	f.Logf("vectors: %T %d cases, %d calls, %d cases left out", f.store, cases, calls, out)
	if least := 8 * len(f.Algorithms); cases < least || calls < 2*cases {
		f.Errorf("%d calls of %d cases, want at least %d cases", calls, cases, least)
	}
}

func (f *fixture) leftOut(file string, c limittest.Case) bool {
	a, known := rule.ParseAlgorithm(c.Algorithm)
	if !known {
		f.Errorf("%s:%d: no algorithm %q", file, c.Line, c.Algorithm)
	}
	switch first := c.Steps[0].Limit; {
	case !known, !f.does(a):
		return true
	case file == "changed-windows.txt": // a store's counters are named by their window
		return true
	case first.Count == 0: // a store keeps no counter that was never charged, so a raised limit of 0 begins full
		return true
	case f.Otherwise != nil:
		if why := f.Otherwise(file, c); why != "" {
			f.Logf("%s:%d: left out case %q: %s", file, c.Line, c.Name, why)
			return true
		}
	}
	return false
}

// vector plays a case on counter n, counting its calls.
func (f *fixture) vector(file string, c limittest.Case, n int) (calls int) {
	a, _ := rule.ParseAlgorithm(c.Algorithm)
	for _, step := range c.Steps {
		charge := limiter.Charge{Counter: f.charge(n, a, 1, 1).Counter, Algorithm: a, Limit: step.Limit, Offset: c.Offset, Cost: step.Cost}
		if limit.CheckCost(step.Cost) != nil {
			continue
		}
		f.now = step.Now
		switch step.Op {
		case limittest.Refund:
			f.refund(noID, []limiter.Charge{charge}, []limiter.Outcome{{Charged: true, At: step.Charged}})
		case limittest.Peek:
			if step.Cost > 1 {
				continue
			}
			charge.Cost = 0
			fallthrough
		default:
			outcomes, ok := f.take(charge)
			if got := outcomes[0].Decision; got != step.Want || ok != step.Want.Allowed {
				f.Errorf("%s:%d: case %q: admitted %v\n got %+v\nwant %+v", file, step.Line, c.Name, ok, got, step.Want)
			}
		}
		calls++
	}
	return calls
}
