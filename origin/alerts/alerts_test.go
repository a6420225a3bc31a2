package alerts

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/origin/internal/telemetry"
)

// alert is what these tests read of a rule; internal/evaluate reads all of it, strictly.
type alert struct {
	Alert string `yaml:"alert"`
	Expr  string `yaml:"expr"`
}

func read(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alert }
	}
	text := content(t, "weir.rules.yaml")
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 9 {
		t.Fatalf("%d alerts were read", len(all))
	}
	return all
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// metrics are the names of all metrics with the labels of each, as an origin makes them and as the filter defines them.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	known := map[string][]string{}
	m := telemetry.New()
	m.Tokens(nil)
	described := make(chan *prometheus.Desc, 256)
	m.Registry.Describe(described)
	close(described)
	// fqName: "weir_x", help: "…", constLabels: {}, variableLabels: {a,b}
	form := regexp.MustCompile(`fqName: "(weir_\w+)".*variableLabels: \{([^}]*)\}`)
	for d := range described {
		if found := form.FindStringSubmatch(d.String()); found != nil {
			known[found[1]] = strings.FieldsFunc(found[2], func(r rune) bool { return r == ',' || r == ' ' })
		}
	}
	edge := regexp.MustCompile(`abi\.(?:Counter|Gauge), "(weir_edge_\w+)"\)`).FindAllStringSubmatch(content(t, "../../plugin/metrics.go"), -1)
	for _, found := range edge {
		known[found[1]] = nil
	}
	if len(edge) < 10 || len(known) < 30 {
		t.Fatalf("%d metrics are known, %d of the filter", len(known), len(edge))
	}
	return known
}

// An alert on a metric that nobody makes never fires, and nobody would see that.
func TestAlertsAreAboutMetricsThatExist(t *testing.T) {
	known := metrics(t)
	// Prometheus adds these itself; le is a histogram's.
	free := []string{"instance", "job", "le"}
	metric := regexp.MustCompile(`\b(weir_\w+)(?:\{([^}]*)\})?`)
	by := regexp.MustCompile(`by \(([^)]*)\)`)
	for _, a := range read(t) {
		found := metric.FindAllStringSubmatch(a.Expr, -1)
		if len(found) == 0 {
			t.Errorf("%s: no metric in %s", a.Alert, a.Expr)
		}
		labels := slices.Clone(free)
		for _, m := range found {
			name := strings.TrimSuffix(m[1], "_bucket")
			of, ok := known[name]
			if !ok {
				t.Errorf("%s: there is no metric %s", a.Alert, name)
			}
			labels = append(labels, of...)
			for matcher := range strings.SplitSeq(m[2], ",") {
				if label, _, is := strings.Cut(strings.TrimSpace(matcher), "="); is && !slices.Contains(of, label) {
					t.Errorf("%s: %s has no label %s", a.Alert, name, label)
				}
			}
		}
		for _, m := range by.FindAllStringSubmatch(a.Expr, -1) {
			for label := range strings.SplitSeq(m[1], ",") {
				if label = strings.TrimSpace(label); !slices.Contains(labels, label) {
					t.Errorf("%s: by %s, which no metric in it has", a.Alert, label)
				}
			}
		}
	}
}

func TestTheRunbookHasASectionForEachAlert(t *testing.T) {
	var want []string
	for _, a := range read(t) {
		want = append(want, a.Alert)
	}
	var got []string
	sections := strings.Split(content(t, "../RUNBOOK.md"), "\n## ")[1:]
	for _, s := range sections {
		name, text, _ := strings.Cut(s, "\n")
		got = append(got, name)
		if len(strings.Fields(text)) < 40 {
			t.Errorf("RUNBOOK.md: %s says hardly anything", name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("RUNBOOK.md has sections\n%q, want one for each alert in order\n%q", got, want)
	}
}
