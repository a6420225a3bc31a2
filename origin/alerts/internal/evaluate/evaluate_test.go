package evaluate

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"gopkg.in/yaml.v3"
)

const (
	rulesFile = "../../weir.rules.yaml"
	testsFile = "../../weir.rules.test.yaml"
)

// suite is a file of tests, as far as ours use promtool's format.
type suite struct {
	RuleFiles          []string      `yaml:"rule_files"`
	EvaluationInterval time.Duration `yaml:"evaluation_interval"`
	Tests              []struct {
		Name        string        `yaml:"name"`
		Interval    time.Duration `yaml:"interval"`
		InputSeries []struct {
			Series string `yaml:"series"`
			Values string `yaml:"values"`
		} `yaml:"input_series"`
		AlertRuleTest []struct {
			EvalTime  time.Duration `yaml:"eval_time"`
			Alertname string        `yaml:"alertname"`
			ExpAlerts []struct {
				Labels map[string]string `yaml:"exp_labels"`
			} `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	} `yaml:"tests"`
}

var language = parser.NewParser(parser.Options{})

func readRules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, faults := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation, language, slog.New(slog.DiscardHandler))
	for _, err := range faults {
		t.Error(err)
	}
	all := map[string]rulefmt.Rule{}
	if groups != nil {
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				all[r.Alert] = r
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no alerts", rulesFile)
	}
	return all
}

func readTests(t *testing.T) suite {
	t.Helper()
	f, err := os.Open(testsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s suite
	strict := yaml.NewDecoder(f)
	strict.KnownFields(true)
	if err := strict.Decode(&s); err != nil {
		t.Fatalf("%s: %v", testsFile, err)
	}
	if !slices.Equal(s.RuleFiles, []string{"weir.rules.yaml"}) || s.EvaluationInterval <= 0 {
		t.Fatalf("%s: rule_files %v, evaluation_interval %v", testsFile, s.RuleFiles, s.EvaluationInterval)
	}
	return s
}

func TestAlerts(t *testing.T) {
	rules, s := readRules(t), readTests(t)
	fired, silent := map[string]bool{}, map[string]bool{}
	for _, test := range s.Tests {
		t.Run(test.Name, func(t *testing.T) {
			var series memory
			for _, in := range test.InputSeries {
				of, values, err := language.ParseSeriesDesc(in.Series + " " + in.Values)
				if err != nil {
					t.Fatalf("%s %s: %v", in.Series, in.Values, err)
				}
				var samples []chunks.Sample
				for i, v := range values {
					if !v.Omitted {
						samples = append(samples, sample{int64(i) * test.Interval.Milliseconds(), v.Value})
					}
				}
				series = append(series, storage.NewListSeries(of, samples))
			}
			for _, check := range test.AlertRuleTest {
				r, known := rules[check.Alertname]
				if !known {
					t.Fatalf("there is no alert %q", check.Alertname)
				}
				var want []string
				for _, e := range check.ExpAlerts {
					of := maps.Clone(r.Labels)
					maps.Copy(of, e.Labels)
					want = append(want, labels.FromMap(of).String())
				}
				slices.Sort(want)
				got := firing(t, r, series, s.EvaluationInterval, check.EvalTime)
				if !slices.Equal(got, want) {
					t.Errorf("%s at %v: fires for %v, want %v", check.Alertname, check.EvalTime, got, want)
				}
				fired[r.Alert] = fired[r.Alert] || len(want) > 0
				silent[r.Alert] = silent[r.Alert] || len(want) == 0
			}
		})
	}
	for name := range rules {
		if !fired[name] || !silent[name] {
			t.Errorf("%s: no test says both when it fires and when it does not", name)
		}
	}
	fmt.Printf("alerts: %d, each tested to fire and to be silent\n", len(rules))
}

// firing are the labels of the alerts of one rule that fire at an instant, the rule having been evaluated at each
// interval from 0 on: an alert fires once its expression has held for as long as it says, without a gap.
func firing(t *testing.T, r rulefmt.Rule, series memory, interval, at time.Duration) (alerts []string) {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: language})
	defer engine.Close()
	since := map[string]time.Duration{}
	for now := time.Duration(0); now <= at; now += interval {
		query, err := engine.NewInstantQuery(context.Background(), series, nil, r.Expr, time.UnixMilli(now.Milliseconds()))
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		result := query.Exec(context.Background())
		vector, err := result.Vector()
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		holds := map[string]time.Duration{}
		for _, element := range vector {
			b := labels.NewBuilder(element.Metric).Del(labels.MetricName)
			for name, value := range r.Labels {
				b.Set(name, value)
			}
			of := b.Labels().String()
			began, known := since[of]
			if !known {
				began = now
			}
			holds[of] = began
		}
		query.Close()
		since = holds
	}
	for of, began := range since {
		if at-began >= time.Duration(r.For) {
			alerts = append(alerts, of)
		}
	}
	slices.Sort(alerts)
	return alerts
}

// An evaluator that says yes to all, or no, would pass much of the above.
func TestAnAlertWaitsForItsTimeWithoutAGap(t *testing.T) {
	r := rulefmt.Rule{Alert: "X", Expr: "x > 0", For: model.Duration(time.Minute)}
	for values, want := range map[string]string{"1x8": "fires", "1 1 0 1 1 1 1 1": "not yet", "0x8": "never"} {
		of, sequence, err := language.ParseSeriesDesc("x " + values)
		if err != nil {
			t.Fatal(err)
		}
		var samples []chunks.Sample
		for i, v := range sequence {
			samples = append(samples, sample{int64(i) * 15_000, v.Value})
		}
		alerts := firing(t, r, memory{storage.NewListSeries(of, samples)}, 15*time.Second, 90*time.Second)
		if (len(alerts) == 1) != (want == "fires") {
			t.Errorf("%s: %v, want: %s", values, alerts, want)
		}
	}
}

func TestEachAlertNamesItsSectionOfTheRunbook(t *testing.T) {
	for name, r := range readRules(t) {
		if want := "origin/RUNBOOK.md#" + strings.ToLower(name); r.Annotations["runbook"] != want || r.Annotations["summary"] == "" {
			t.Errorf("%s: runbook %q, want %q; summary %q", name, r.Annotations["runbook"], want, r.Annotations["summary"])
		}
	}
}

// sample is a float at an instant in ms.
type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// memory is a store of series, in place of a TSDB.
type memory []storage.Series

func (m memory) Querier(_, _ int64) (storage.Querier, error) { return m, nil }
func (m memory) Close() error                                { return nil }

func (m memory) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (m memory) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (m memory) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &set{at: -1}
	for _, s := range m {
		of := s.Labels()
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(of.Get(m.Name)) }) {
			found.series = append(found.series, s)
		}
	}
	slices.SortFunc(found.series, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return found
}

// set goes through series.
type set struct {
	series []storage.Series
	at     int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }
