// Command windowerror measures what a sliding window counter gets wrong against the exact log of its own admissions, and
// prints the table of the package's README.
package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weirproject/weir/shared/limit"
)

const (
	windows = 2000 // of traffic each
	seed    = 20_817
)

var rule = limit.Limit{Count: 100, Window: limit.Minute}

// shape is a kind of traffic: the instants of its calls, in order.
type shape struct {
	name  string
	calls func(r *rand.Rand) []limit.Micros
}

var shapes = []shape{
	{"uniform, 0.9 × the limit", func(r *rand.Rand) []limit.Micros { return uniform(r, 90) }},
	{"uniform, 1.1 × the limit", func(r *rand.Rand) []limit.Micros { return uniform(r, 110) }},
	{"uniform, 10 × the limit", func(r *rand.Rand) []limit.Micros { return uniform(r, 1000) }},
	{"bursty: 20 to 120 calls in a second, at 0.9 × the limit", bursty},
	{"edge-hugging: 150 calls a window within a second of its edges", edgeHugging},
	{"adversarial: bunches on purpose", adversarial},
}

func main() { fmt.Print(table()) }

func table() string {
	var b strings.Builder
	b.WriteString("| traffic | calls | admitted | a log admits | wrongly admitted | wrongly refused | most in any minute |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|\n")
	for _, s := range shapes {
		calls := s.calls(rand.New(rand.NewPCG(seed, seed)))
		slices.Sort(calls)
		e := measure(calls)
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d (%s) | %d (%s) | %s × the limit |\n", s.name, len(calls), e.admitted, e.exact,
			e.over, percent(e.over, e.admitted), e.under, percent(e.under, len(calls)), hundredths(e.worst, int(rule.Count)))
	}
	return b.String()
}

// errors of a sliding window: over are admissions and under refusals that its own exact log speaks against; worst is the
// most that it admitted in any interval of a window; exact is what a sliding log admits of the same calls.
type errors struct{ admitted, exact, over, under, worst int }

func measure(calls []limit.Micros) (e errors) {
	var window limit.SlidingWindow
	var reference limit.SlidingLog
	var log []limit.Micros // of what the window admitted and is in view
	for _, now := range calls {
		for len(log) > 0 && now-log[0] >= rule.Window {
			log = log[1:]
		}
		var d limit.Decision
		if window, d = window.Take(rule, now, 1); d.Allowed {
			e.admitted++
			log = append(log, now)
			e.worst = max(e.worst, len(log))
			if len(log) > int(rule.Count) {
				e.over++
			}
		} else if len(log) < int(rule.Count) {
			e.under++
		}
		if reference, d = reference.Take(rule, now, 1); d.Allowed {
			e.exact++
		}
	}
	return e
}

func uniform(r *rand.Rand, perWindow int64) []limit.Micros {
	calls := make([]limit.Micros, windows*perWindow)
	for i := range calls {
		calls[i] = limit.Micros(r.Int64N(windows * int64(rule.Window)))
	}
	return calls
}

func bursty(r *rand.Rand) (calls []limit.Micros) {
	now := limit.Micros(0)
	for now < windows*rule.Window {
		n := 20 + r.Int64N(101)
		for range n {
			calls = append(calls, now+limit.Micros(r.Int64N(int64(limit.Second))))
		}
		// The pause after n calls is on average what n calls at 0.9 times the limit take.
		now += limit.Micros(r.Int64N(2 * n * int64(rule.Window) / 90))
	}
	return calls
}

func edgeHugging(r *rand.Rand) (calls []limit.Micros) {
	for w := range limit.Micros(windows) {
		for range 150 {
			calls = append(calls, max(0, w*rule.Window+limit.Micros(r.Int64N(2*int64(limit.Second)))-limit.Second))
		}
	}
	return calls
}

// adversarial spends the whole limit in the last millisecond of a window, then asks every 10 ms, which gets what the
// weight of that bunch frees, until the window ends. Two windows of rest make it a fresh client again.
func adversarial(*rand.Rand) (calls []limit.Micros) {
	for w := limit.Micros(0); w < windows; w += 4 {
		edge := (w + 1) * rule.Window
		for i := range rule.Count {
			calls = append(calls, edge-limit.Millisecond+limit.Micros(i))
		}
		for at := edge; at < edge+rule.Window-limit.Millisecond; at += 10 * limit.Millisecond {
			calls = append(calls, at)
		}
	}
	return calls
}

// percent and hundredths write n/of without floats, like all numbers here: the table is the same on every machine.
func percent(n, of int) string {
	return fmt.Sprintf("%d.%02d %%", n*10_000/of/100, n*10_000/of%100)
}

func hundredths(n, of int) string {
	return fmt.Sprintf("%d.%02d", n*100/of/100, n*100/of%100)
}
