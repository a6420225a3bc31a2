package storetest

import (
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/rule"
)

// first is an algorithm for tests that mind none.
func (f *fixture) first() rule.Algorithm { return f.Algorithms[0] }

func namesApart(f *fixture) {
	a := f.first()
	for n := range 500 {
		if _, ok := f.take(f.charge(n, a, 1, 1)); !ok {
			f.Fatalf("counter %d was used up by another's call", n)
		}
	}
	for n := range 500 {
		f.wantUsed(1, f.charge(n, a, 1, 1))
	}
}

func manyRules(f *fixture) {
	var charges []limiter.Charge
	for n := range 20 {
		charges = append(charges, f.charge(n, f.first(), int64(n+1), 1))
	}
	f.mustTake(charges...)
	outcomes, ok := f.take(charges...)
	if ok {
		f.Fatal("a used-up rule among twenty let the call pass")
	}
	for n, o := range outcomes {
		if (o.Status == limiter.Refused) != (n == 0) || o.Charged || o.Decision.Remaining != int64(n) {
			f.Errorf("rule %d: %+v", n, o)
		}
	}
}

// Callers of overlapping rules in different orders: what is admitted is exact, nothing is charged twice, nobody waits
// for ever.
func parallelRules(f *fixture) {
	a := f.first()
	admitted := parallel(60, func(i int) bool {
		charges := []limiter.Charge{f.charge(1, a, 40, 1), f.charge(2+i%3, a, 15, 1)}
		if i%2 == 1 {
			charges[0], charges[1] = charges[1], charges[0]
		}
		_, ok := f.take(charges...)
		return ok
	})
	// Of a store that gives back, the first rule refuses at most 60-40 and each of the others 20-15.
	if admitted > 40 || admitted < 40 && !f.GivesBack || admitted < 25 {
		f.Errorf("admitted %d of 60 at a limit of 40", admitted)
	}
	f.wantUsed(admitted, f.charge(1, a, 40, 1))
	if sum := f.used(f.charge(2, a, 15, 1)) + f.used(f.charge(3, a, 15, 1)) + f.used(f.charge(4, a, 15, 1)); sum != admitted {
		f.Errorf("admitted %d, the other rule's counters hold %d", admitted, sum)
	}
	f.Logf("admitted %d of 60 parallel calls at a limit of 40", admitted)
}

func parallelRefunds(f *fixture) {
	a := rule.SlidingWindow // a queue takes only the last call back
	if !f.does(a) {
		a = f.first()
	}
	id := limiter.CallID{}
	charges := []limiter.Charge{f.charge(1, a, 20, 1), f.charge(2, a, 20, 2)}
	admitted := parallel(50, func(int) bool {
		outcomes, ok := f.take(charges...)
		if ok {
			f.refund(id, charges, outcomes)
		}
		return ok
	})
	if admitted < 1 {
		f.Error("none of 50 calls was admitted")
	}
	f.wantUsed(0, charges...)
}

func (f *fixture) does(a rule.Algorithm) bool {
	for _, b := range f.Algorithms {
		if a == b {
			return true
		}
	}
	return false
}

func mixedAlgorithms(f *fixture) {
	var charges []limiter.Charge
	for n, a := range f.Algorithms {
		charges = append(charges, f.charge(n, a, 10, 3))
	}
	outcomes := f.mustTake(charges...)
	for i, o := range outcomes {
		if !o.Charged || !o.Made || o.Decision.Remaining != 7 {
			f.Errorf("%s: %+v", charges[i].Algorithm, o)
		}
	}
	for i := range charges { // each in turn is the one that refuses
		f.mustTake(f.charge(i, charges[i].Algorithm, 10, 7))
		f.writesNothing(func() {
			if outcomes, ok := f.take(charges...); ok || outcomes[i].Status != limiter.Refused {
				f.Errorf("%s at its limit: admitted %v, %+v", charges[i].Algorithm, ok, outcomes)
			}
		})
		for n := range charges {
			want := int64(3)
			if n <= i {
				want = 10
			}
			f.wantUsed(want, charges[n])
		}
	}
}

func mixedCosts(f *fixture) {
	a := f.first()
	one, seven, peeked := f.charge(1, a, 20, 1), f.charge(2, a, 20, 7), f.charge(3, a, 20, 0)
	outcomes := f.mustTake(one, seven, peeked)
	if !outcomes[0].Charged || !outcomes[1].Charged || outcomes[2].Charged {
		f.Errorf("outcomes %+v", outcomes)
	}
	f.wantUsed(1, one)
	f.wantUsed(7, seven)
	f.wantUsed(0, peeked)
	f.mustTake(f.charge(3, a, 20, 20))
	if outcomes, ok := f.take(one, seven, peeked); ok || outcomes[2].Status != limiter.Refused {
		f.Errorf("with the peeked counter used up: admitted %v, %+v", ok, outcomes)
	}
	f.wantUsed(1, one)
	f.wantUsed(7, seven)
}

func shadow(f *fixture, a rule.Algorithm) {
	enforced, beside, full := f.charge(1, a, 5, 1), f.charge(2, a, 5, 2), f.charge(3, a, 5, 1)
	f.mustTake(f.charge(3, a, 5, 5))
	outcomes := f.mustTake(shadowed(full), enforced, shadowed(beside))
	f.wantStatus(outcomes, limiter.Refused, limiter.Admitted, limiter.Admitted)
	if outcomes[0].Charged || !outcomes[1].Charged || !outcomes[2].Charged {
		f.Errorf("a used-up shadow charge beside others: %+v", outcomes)
	}
	f.wantUsed(1, enforced)
	f.wantUsed(2, beside)
	// A refused call charges its shadow rules, as if each were the only one.
	outcomes, ok := f.take(shadowed(beside), enforced, full)
	f.wantStatus(outcomes, limiter.Admitted, limiter.Admitted, limiter.Refused)
	if ok || !outcomes[0].Charged || outcomes[1].Charged || outcomes[2].Charged {
		f.Errorf("a refused call with a shadow charge: admitted %v, %+v", ok, outcomes)
	}
	f.wantUsed(1, enforced)
	f.wantUsed(4, beside)
	f.wantUsed(5, full)
	outcomes, _ = f.take(shadowed(beside), shadowed(enforced))
	f.wantStatus(outcomes, limiter.Refused, limiter.Admitted)
	f.wantUsed(4, beside)
	f.wantUsed(2, enforced)
}

func existing(f *fixture, a rule.Algorithm) {
	here, missing := f.charge(1, a, 5, 1), onlyIfThere(f.charge(2, a, 5, 1))
	f.mustTake(here)
	f.writesNothing(func() {
		outcomes, ok := f.take(here, missing, f.charge(3, a, 5, 6))
		f.wantStatus(outcomes, limiter.Admitted, limiter.Unmade, limiter.Refused)
		if ok || outcomes[0].Charged || outcomes[1].Charged || outcomes[1].Made {
			f.Errorf("a counter that is not there: admitted %v, %+v", ok, outcomes)
		}
	})
	outcomes, _ := f.take(here, shadowed(missing))
	f.wantStatus(outcomes, limiter.Admitted, limiter.Unmade)
	f.wantUsed(2, here)
	f.wantUsed(0, missing)
	if o := f.mustTake(onlyIfThere(here))[0]; !o.Charged || o.Made || o.Decision.Remaining != 2 {
		f.Errorf("a counter that is there: %+v", o)
	}
}

func made(f *fixture, a rule.Algorithm) {
	f.mustTake(f.charge(1, a, 5, 0))
	for i := range 3 {
		if o := f.mustTake(f.charge(1, a, 5, 1), f.charge(2+i, a, 5, 1)); o[0].Made != (i == 0) || !o[1].Made {
			f.Errorf("call %d: %+v", i, o)
		}
	}
}
