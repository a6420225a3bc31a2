package telemetry_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
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

// Who runs an origin finds each metric in the README, with its labels' names, and none that is not.
func TestTheReadmeListsEveryMetric(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Health and metrics\n")
	section, _, _ = strings.Cut(section, "\n## ")
	m := telemetry.New()
	m.Tokens(nil)
	described := make(chan *prometheus.Desc, 256)
	m.Registry.Describe(described)
	close(described)
	ours := map[string]bool{}
	for d := range described {
		// fqName: "weir_x", help: "…", constLabels: {}, variableLabels: {a,b}
		name := regexp.MustCompile(`fqName: "(weir_\w+)"`).FindStringSubmatch(d.String())
		if name == nil {
			continue // of Go and of the process
		}
		ours[name[1]] = true
		labels := regexp.MustCompile(`variableLabels: \{([^}]*)\}`).FindStringSubmatch(d.String())
		row := regexp.MustCompile("(?m)^\\|.*`" + name[1] + "`.*$").FindString(section)
		if row == "" {
			t.Errorf("%s is missing", name[1])
		}
		for _, l := range strings.FieldsFunc(labels[1], func(r rune) bool { return r == ',' || r == ' ' }) {
			if !strings.Contains(row, "`"+l+"`") {
				t.Errorf("%s: label %s is missing", name[1], l)
			}
		}
	}
	for _, name := range regexp.MustCompile("`(weir_[a-z_]*[a-z])`").FindAllStringSubmatch(section, -1) {
		if !ours[name[1]] {
			t.Errorf("%s is no metric of an origin", name[1])
		}
	}
	if len(ours) < 20 {
		t.Errorf("%d metrics were described", len(ours))
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
