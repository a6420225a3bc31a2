package telemetry_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirproject/weir/origin/internal/telemetry"
)

func TestEachDecisionIsCountedUnderItsOwnLabels(t *testing.T) {
	m := telemetry.New()
	r := m.Rule("a")
	r.Count(telemetry.Allow, telemetry.Store)
	r.Count(telemetry.Deny, telemetry.DenyCache)
	r.Count(telemetry.Deny, telemetry.DenyCache)
	r.Count(telemetry.Open, telemetry.Local)
	r.Count(telemetry.Closed, telemetry.Local)
	r.Count(telemetry.Never, telemetry.Store)
	m.Rule("b").Count(telemetry.Allow, telemetry.Local)
	if m.Rule("a") != r {
		t.Error("a rule's counters did not live on across releases")
	}
	lines := map[[3]string]float64{
		{"a", "allow", "store"}: 1, {"a", "deny", "deny_cache"}: 2, {"a", "open", "local"}: 1, {"a", "closed", "local"}: 1,
		{"a", "never", "store"}: 1, {"b", "allow", "local"}: 1,
	}
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found, sum := 0, 0.0
	for _, f := range families {
		if f.GetName() != "weir_decisions_total" {
			continue
		}
		for _, metric := range f.GetMetric() {
			var key [3]string
			for _, l := range metric.GetLabel() {
				key[map[string]int{"rule": 0, "outcome": 1, "source": 2}[l.GetName()]] = l.GetValue()
			}
			sum += metric.GetCounter().GetValue()
			if metric.GetCounter().GetValue() == lines[key] && lines[key] > 0 {
				found++
			}
		}
	}
	if found != len(lines) || sum != 7 {
		t.Errorf("%d of %d series are right, %v decisions counted, want 7", found, len(lines), sum)
	}
}

func TestCountingADecisionAllocatesNothing(t *testing.T) {
	r := telemetry.New().Rule("a")
	if n := testing.AllocsPerRun(1000, func() { r.Count(telemetry.Deny, telemetry.DenyCache) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// Names and labels must be what Prometheus' own linter takes.
func TestMetricsAreWellNamed(t *testing.T) {
	m := telemetry.New()
	m.Rule("a")
	m.SetRelease(0, "abc")
	problems, err := testutil.GatherAndLint(m.Registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
