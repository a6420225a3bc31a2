package storetest

import (
	"context"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
	"github.com/weirproject/weir/shared/rule"
)

// Suite tells what a store under test is. All fields but Open are optional; what cannot be tested for want of one is
// left out, in sight, as a skipped test.
type Suite struct {
	// Open makes a store that holds nothing. It ends with its test.
	Open func(t *testing.T) limiter.Store
	// Algorithms are those that the store decides; nil stands for all.
	Algorithms []rule.Algorithm
	// At makes ready a request that is to be decided at now, for a store that does not go by a clock of its own: it gives
	// the context to ask with. [AtCall] is that of a store that decides at Call.Now. Without At, nothing that takes time
	// is tested; windows are half a year long, so that none ends during a test but once in that time.
	At func(ctx context.Context, s limiter.Store, now limit.Micros) context.Context
	// RemembersByAt tells that call ids are forgotten by At's clock, too.
	RemembersByAt bool
	// GivesBack tells that the store charges first and gives back what it should not have: a call that meets another one
	// in flight may be refused falsely. It never passes falsely.
	GivesBack bool
	// Spread gives each counter a hash tag of its own, so that calls meet several slots of a cluster.
	Spread bool
	// Foreign are values that are no counters: each writes one under the name that the store keeps c's counter under.
	Foreign map[string]func(t *testing.T, s limiter.Store, c limiter.Charge)
	// Contents is all that the store holds, by name, values with the instant they expire at: equal before and after a
	// call that writes nothing.
	Contents func(t *testing.T, s limiter.Store) map[string]string
	// Otherwise gives the reason why a case of the vectors is none for this store, "" for one that is.
	Otherwise func(file string, c limittest.Case) string
	// Seed of the random tests; 0 takes one from the clock. It is printed.
	Seed uint64
}

// AtCall is [Suite.At] of a store that decides at Call.Now.
func AtCall(ctx context.Context, _ limiter.Store, _ limit.Micros) context.Context { return ctx }

// each are the tests of one algorithm, all of the whole store.
var (
	each = []named[func(*fixture, rule.Algorithm)]{
		{"one of a hundred parallel calls gets the last one", lastOne},
		{"a refusal charges no rule", refusalIsFree},
		{"a peek charges nothing", peekIsFree},
		{"a changed limit applies at the next call", changedLimit},
		{"the largest numbers are exact", largest},
		{"a limit of nothing refuses", nothing},
		{"a cost above the limit is never admitted", never},
		{"a shadow charge stands alone", shadow},
		{"a counter that exists is charged, one that does not is not made", existing},
		{"the first charge tells that it made the counter", made},
		{"a repeated call is charged once", repeated},
		{"a repeated call of shadow charges alone is charged once", shadowsRepeated},
		{"a call that is given back is forgotten, shadow charges or not", givenBackBesideShadows},
		{"a call that charged nothing is not remembered", notRemembered},
		{"parallel repeats are charged once", parallelRepeats},
		{"a refund gives back what was charged", refund},
		{"a refund makes no counter", refundMakesNone},
		{"a refund of what was not charged gives nothing back", refundOfNothing},
		{"a refund after the limit was lowered leaves what is left to last", refundAfterLowered},
		{"a reset counter is as one never used", reset},
		{"a foreign value stops its own call alone", foreign},
		{"an answer tells what comes next", next},
		{"a wait is exact", exactWait},
		{"an id is remembered for a minute", minute},
		{"a charge is over with its window", expires},
		{"a refund goes into the window it was charged in", refundIntoWindow},
	}
	all = []named[func(*fixture)]{
		{"different names are different counters", namesApart},
		{"many rules are decided in one step", manyRules},
		{"parallel calls over several rules admit exactly", parallelRules},
		{"parallel calls and refunds leave nothing", parallelRefunds},
		{"one call has rules of every algorithm", mixedAlgorithms},
		{"costs of one call differ", mixedCosts},
		{"the vectors' answers", vectors},
		{"calls of all kinds are answered as package limit does", random},
	}
)

type named[T any] struct {
	name string
	test T
}

// Run runs the suite.
func (s Suite) Run(t *testing.T) {
	if s.Algorithms == nil {
		s.Algorithms = everyAlgorithm()
	}
	for _, e := range each {
		t.Run(e.name, func(t *testing.T) {
			for _, a := range s.Algorithms {
				t.Run(a.String(), func(t *testing.T) { e.test(s.fixture(t), a) })
			}
		})
	}
	for _, e := range all {
		t.Run(e.name, func(t *testing.T) { e.test(s.fixture(t)) })
	}
}

func everyAlgorithm() (all []rule.Algorithm) {
	for _, name := range limittest.Algorithms {
		if a, ok := rule.ParseAlgorithm(name); ok {
			all = append(all, a)
		}
	}
	return all
}
