package rules_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

var update = flag.Bool("update", false, "rewrite what the model's rules are refused with")

func TestTheWholeModelIsReadFromYAML(t *testing.T) {
	release, err := rules.LoadModel("testdata/model.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(release.Warnings) != 0 {
		t.Errorf("warnings:\n%v", release.Warnings)
	}
	s := release.Set
	var got []string
	for _, m := range s.Match(rule.Origin, rule.Request{Method: "HEAD", Path: "/search/x", Host: "api.example.com", HasHeader: func(string) bool { return true }}, nil) {
		got = append(got, m.Rule.Name+" "+m.Pattern)
	}
	if want := "[search-per-key /search/** everything-per-caller * trial *]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	r := s.Rule(3)
	if !r.Tier || r.Algorithm != rule.GCRA || r.Line != 30 || r.Penalty.Ceiling != 10*limit.Minute || fmt.Sprint(r.By) != "[key|user|address]" {
		t.Errorf("%+v", r)
	}
	g := s.Grant(&r, []rule.Part{rule.Key}, rule.Caller{Key: "k", Tenant: "acme", Tier: "paid"})
	if g.Limit != (limit.Limit{Count: 900, Window: limit.Minute, Burst: 90}) || g.Basis != rule.OfTenant {
		t.Errorf("%+v", g)
	}
}

func TestWhatIsNotEnforcedYetIsRefusedByNameAtItsPlace(t *testing.T) {
	const golden = "testdata/model.unenforced"
	_, err := rules.Load("testdata/model.yaml")
	if err == nil {
		t.Fatal("rules that nothing enforces are accepted")
	}
	sameAs(t, golden, err)
}

func TestBrokenTiersAndOverridesAreShownWithTheirPlace(t *testing.T) {
	_, err := rules.ParseModel("r.yaml", []byte(`version: 1
tiers:
  free: {limit: 60/1m}
  free: {limit: 61/1m}
  Paid: {limit: soon, brust: 3}
rules:
- name: a
  where: origin
  by: [key]
  tier: true
overrides:
- {rule: b, key-id: k, limit: 1/1s}
- {rule: a, tenant: t}
- 7
`))
	want := `r.yaml:4:3: tiers.free: is given twice: first at line 3
r.yaml:5:3: tiers.Paid: "Paid": want a tier's name: 1 to 63 of a-z, 0-9, -
r.yaml:5:23: tiers.Paid.brust: is unknown: want one of limit, burst
r.yaml:12:10: overrides[0].rule: "b": is no rule of this file
r.yaml:13:3: overrides[1].limit: is missing: want <calls>/<time> with time in ms, s, m, h or d, as 100/1m
r.yaml:14:3: overrides[2]: "7": want a mapping with rule, key-id, user, tenant, limit, burst`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

func TestDeepOrAliasedRulesAreBounded(t *testing.T) {
	bomb := "version: 1\nrules:\n- name: a\n  where: origin\n  by: &a0 [key]\n  limit: 1/1s\n  match: {paths: [/a]}\n"
	var nested strings.Builder
	nested.WriteString("version: 1\nx0: &x0 [/a]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&nested, "x%d: &x%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*x%d, ", i-1), 10), ", "))
	}
	nested.WriteString("rules:\n- {name: a, where: origin, by: [key], limit: 1/1s, match: {paths: *x29}}\n")
	for name, text := range map[string]string{
		"brackets":               strings.Repeat("[", 100_000),
		"indentation":            strings.Repeat(" ", 100) + "a: b",
		"aliases":                nested.String(),
		"too many rules":         "version: 1\nrules:\n" + strings.Repeat("- {name: a, where: origin, by: [key], limit: 1/1s}\n", rule.MaxRules+1),
		"an alias of all":        bomb + "- *a0\n",
		"aliases of a long list": "version: 1\nrules: [&r {name: a, where: origin, by: [key], limit: 1/1s, match: {paths: [" + strings.Repeat("/a,", 10_000) + "]}}," + strings.Repeat("*r,", 2000) + "]\n",
	} {
		_, err := rules.ParseModel("r.yaml", []byte(text))
		if err == nil || strings.Count(err.Error(), "\n") > 101 {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Entries beyond the bound are not read: each would fault by itself.
	for _, text := range []string{"version: 1\nrules: [" + strings.Repeat("x,", rule.MaxRules+1) + "]\n",
		"version: 1\nrules: [{name: a, where: origin, by: [key], limit: 1/1s}]\noverrides: [" + strings.Repeat("x,", rule.MaxOverrides+1) + "]\n"} {
		if _, err := rules.ParseModel("r.yaml", []byte(text)); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "want at most") {
			t.Errorf("%.60q: %.300v", text, err)
		}
	}
}

// sameAs holds a message against the one that a file keeps; -update writes that.
func sameAs(t *testing.T, golden string, message error) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, []byte(message.Error()+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || message.Error()+"\n" != string(want) {
		t.Errorf("got:\n%v\nwant:\n%s", message, want)
	}
}
