package rule_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// readSpecs reads the fixtures' flat form: `rule` begins a rule, then `field value…` lines, `#` comments. It stands in
// for YAML, which this package does not know; positions are those of the fixture.
func readSpecs(t *testing.T, name string) (specs []rule.Spec, want []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		at := rule.Source{File: filepath.Base(name), Line: i + 1}
		if message, ok := strings.CutPrefix(line, "want "); ok {
			want = append(want, message)
			continue
		}
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if f[0] == "rule" {
			specs = append(specs, rule.Spec{At: at})
			continue
		}
		s := &specs[len(specs)-1]
		var list []rule.Scalar
		for _, v := range f[1:] {
			if v == `""` {
				v = ""
			}
			list = append(list, rule.Scalar{Text: v, At: at, Set: true})
		}
		switch f[0] {
		case "name":
			s.Name = list[0]
		case "where":
			s.Where = list[0]
		case "algorithm":
			s.Algorithm = list[0]
		case "limit":
			s.Limit = list[0]
		case "burst":
			s.Burst = list[0]
		case "by":
			s.By = list
		case "paths":
			s.Paths, s.MatchAt = list, at
		case "methods":
			s.Methods, s.MatchAt = list, at
		case "prefix":
			s.PrefixV4, s.PrefixV6, s.PrefixAt = list[0], list[1], at
		case "valid":
			s.ValidLimit, s.ValidAt = list[0], at
			if len(list) > 1 {
				s.ValidBurst = list[1]
			}
		case "on-store-failure":
			s.OnStoreFailure = list[0]
		case "headers":
			s.Headers = list[0]
		default:
			t.Fatalf("%s:%d: unknown field %q", name, i+1, f[0])
		}
	}
	return specs, want
}

func TestBrokenRulesAreRefusedAllAtOnceWithTheirPlace(t *testing.T) {
	files, _ := filepath.Glob("testdata/broken/*.txt")
	if len(files) == 0 {
		t.Fatal("no broken fixtures found")
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			specs, want := readSpecs(t, name)
			set, faults := rule.Compile(specs)
			if set != nil || len(want) == 0 {
				t.Fatalf("set %v with %d faults wanted", set, len(want))
			}
			if got := strings.Split(faults.Error(), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func TestGoodRulesCompileToWhatTheySay(t *testing.T) {
	specs, _ := readSpecs(t, "testdata/good.txt")
	set, faults := rule.Compile(specs)
	if faults.Err() != nil {
		t.Fatal(faults)
	}
	edge := set.Edge()
	if edge == nil || edge.Name != "flood-per-address" || edge.PrefixV4 != 24 || edge.PrefixV6 != 56 ||
		edge.Limit != (limit.Limit{Count: 50, Window: limit.Second, Burst: 200}) ||
		*edge.Valid != (limit.Limit{Count: 500, Window: limit.Second, Burst: 2000}) {
		t.Errorf("edge rule %+v valid %+v", edge, edge.Valid)
	}
	search := set.Rules[1]
	if search.Where != rule.Origin || search.Algorithm != rule.SlidingWindow || search.Limit != (limit.Limit{Count: 100, Window: limit.Minute}) ||
		search.OnStoreFailure != rule.Closed || search.Headers != rule.RetryOnly || search.Index != 1 {
		t.Errorf("origin rule %+v", search)
	}
}

func TestRatesRoundTrip(t *testing.T) {
	for _, text := range []string{"0/1s", "1/1ms", "997/1s", "100/1m", "106752/24h", "9007199254740991/366d", "6000/1500ms", "1/90s"} {
		l, reason := rule.ParseRate(text)
		if reason != "" {
			t.Errorf("%s: %s", text, reason)
			continue
		}
		again, reason := rule.ParseRate(rule.FormatRate(l))
		if reason != "" || again != l {
			t.Errorf("%s is formatted as %s, which reads as %+v (%s)", text, rule.FormatRate(l), again, reason)
		}
	}
	for _, text := range []string{"", "/", "100", "100/", "/1m", "100/m", "100/1", "-1/1s", "+1/1s", "1.5/1s", "1e3/1s", "0x10/1s", " 1/1s", "1/1s ",
		"1/1us", "1/1w", "1/1ss", "01/1s", "1/0s", "1/367d", "1/9223372036854775807d", "9007199254740992/1s", "9223372036854775808/1s", "99999999999999999999/1s", "1/1s/1s", "１/1s"} {
		if l, reason := rule.ParseRate(text); reason == "" {
			t.Errorf("%q is read as %+v, want a refusal", text, l)
		}
	}
}

func TestFaultsStayOnOneLineWhateverTheyShow(t *testing.T) {
	f := rule.Fault{At: rule.Source{File: "f", Line: 3}, Field: "x", Value: "a\nb\x1b[31m" + strings.Repeat("é", 10_000), Want: "want y"}
	if text := f.Error(); strings.ContainsAny(text, "\n\x1b") || len(text) > 400 || !strings.HasPrefix(text, `f:3: x: "a\nb`) {
		t.Errorf("%d bytes: %q", len(text), text)
	}
	if (rule.Faults{}).Err() != nil {
		t.Error("no faults are an error")
	}
}
