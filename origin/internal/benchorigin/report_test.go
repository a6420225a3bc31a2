package benchorigin

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/weirproject/weir/origin/internal/store/valkey"
	"github.com/weirproject/weir/shared/rule"
)

// median of one figure of a case's rounds.
func (c *one) median(figure func(sample) float64) float64 {
	var all []float64
	for _, s := range c.taken {
		all = append(all, figure(s))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func cpuOf(s sample) float64      { return s.cpu }
func p50Of(s sample) float64      { return s.p50 }
func p99Of(s sample) float64      { return s.p99 }
func commandsOf(s sample) float64 { return s.commands }

// table is the medians of all cases, as Markdown, then how they stand to what the design expects.
func table(all []*one) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 1, ' ', tabwriter.TabIndent)
	fmt.Fprintln(w, "| store | rules | verdict | strategy\t| store CPU µs\t| p50 ms\t| p99 ms\t| commands\t|")
	fmt.Fprintln(w, "|---|---|---|---\t|---\t|---\t|---\t|---\t|")
	for _, c := range all {
		shape := strings.Split(c.name(), "/")
		fmt.Fprintf(w, "| %s | %s | %s | %s\t| %.1f\t| %.2f\t| %.2f\t| %.2f\t|\n", shape[0], strings.TrimSuffix(strings.Replace(shape[1], "-rules", "", 1), "-"), shape[2], shape[3],
			c.median(cpuOf)/1e3, c.median(p50Of)/1e6, c.median(p99Of)/1e6, c.median(commandsOf))
	}
	w.Flush()
	fmt.Fprintln(&out)
	find := func(place string, rules int, refused bool, s valkey.Strategy, a rule.Algorithm) *one {
		for _, c := range all {
			if c.place == place && c.rules == rules && c.refused == refused && c.strategy == s && !c.spread && c.algorithm == a && len(c.taken) > 0 {
				return c
			}
		}
		return nil
	}
	for _, goal := range []struct {
		refused   bool
		algorithm rule.Algorithm
		most      float64
	}{{false, rule.SlidingWindow, 2.1}, {true, rule.SlidingWindow, 1.9}, {false, rule.GCRA, 2.1}, {true, rule.GCRA, 1.9}} {
		single := find("standalone", 1, goal.refused, valkey.Function, goal.algorithm)
		three := find("standalone", 3, goal.refused, valkey.Function, goal.algorithm)
		if single == nil || three == nil {
			continue
		}
		// Round by round: what slows the machine slows both.
		var ratios []float64
		for i := range single.taken {
			ratios = append(ratios, three.taken[i].cpu/single.taken[i].cpu)
		}
		slices.Sort(ratios)
		fmt.Fprintf(&out, "# store CPU of 3 rules ÷ 1 rule, function, %s, refused %v: %.2f (expected at most %.1f)\n",
			goal.algorithm, goal.refused, ratios[len(ratios)/2], goal.most)
	}
	for _, want := range []struct {
		place    string
		rules    int
		refused  bool
		strategy valkey.Strategy
		commands float64
	}{
		{"standalone", 3, false, valkey.Function, 1}, {"standalone", 3, true, valkey.Function, 1},
		{"standalone", 3, false, valkey.Commands, 9}, {"standalone", 3, true, valkey.Commands, 12},
	} {
		if c := find(want.place, want.rules, want.refused, want.strategy, rule.SlidingWindow); c != nil {
			fmt.Fprintf(&out, "# commands a decision, %s: %.2f (expected %.0f)\n", c.name(), c.median(commandsOf), want.commands)
		}
	}
	return out.String()
}
