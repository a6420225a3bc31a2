package rules_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

const good = `version: 1
rules:
- name: search-per-key
  where: origin
  match: {paths: [/search, "/search/**"], methods: [GET]}
  by: [key, endpoint]
  algorithm: sliding-window
  limit: 100/1m
  on-store-failure: closed
  headers: retry-only
- name: flood-per-address
  where: edge
  by: [address]
  address-prefix: {v4: 24, v6: 56}
  algorithm: token-bucket
  limit: 50/1s
  burst: 200
  valid-key: {limit: 500/1s, burst: 2000}
`

func faultsOf(t *testing.T, text string) []string {
	t.Helper()
	release, err := rules.Parse("r.yaml", []byte(text))
	if err == nil {
		t.Errorf("%q was taken", text)
		return nil
	}
	faults, ok := errors.AsType[rule.Faults](err)
	if !ok || release != nil {
		t.Fatalf("%T %v, release %v", err, err, release)
	}
	var lines []string
	for _, f := range faults {
		lines = append(lines, f.Error())
	}
	return lines
}

func TestEveryFieldReachesItsRule(t *testing.T) {
	release, err := rules.Parse("r.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if release.Set.Len() != 2 || release.Number != 0 || len(release.Content) != 12 {
		t.Fatalf("%+v", release)
	}
	origin, edge := release.Set.Rule(0), release.Set.Edge()
	if origin.Name != "search-per-key" || origin.Where != rule.Origin || origin.Algorithm != rule.SlidingWindow ||
		origin.Limit != (limit.Limit{Count: 100, Window: limit.Minute}) || fmt.Sprint(origin.By) != "[key endpoint]" ||
		origin.OnStoreFailure != rule.Closed || origin.Headers != rule.RetryOnly {
		t.Errorf("origin rule %+v", origin)
	}
	if edge == nil || edge.Limit != (limit.Limit{Count: 50, Window: limit.Second, Burst: 200}) || edge.PrefixV4 != 24 || edge.PrefixV6 != 56 ||
		edge.Valid == nil || *edge.Valid != (limit.Limit{Count: 500, Window: limit.Second, Burst: 2000}) {
		t.Errorf("edge rule %+v", edge)
	}
	for path, want := range map[string]int{"/search": 1, "/search/a/b": 1, "/x/../search": 1, "/%73earch": 1, "/searches": 0} {
		if n := len(release.Set.Match(rule.Origin, rule.Request{Method: "GET", Path: path}, nil)); n != want {
			t.Errorf("%s matches %d rules, want %d", path, n, want)
		}
	}
	if n := len(release.Set.Match(rule.Origin, rule.Request{Method: "POST", Path: "/search"}, nil)); n != 0 {
		t.Errorf("POST matches %d rules of GET", n)
	}
}

func TestTheContentIsToldApart(t *testing.T) {
	one, _ := rules.Parse("a", []byte(good))
	same, _ := rules.Parse("b", []byte(good))
	other, _ := rules.Parse("a", []byte(good+"# a comment\n"))
	if one.Content != same.Content || one.Content == other.Content {
		t.Errorf("contents %s %s %s", one.Content, same.Content, other.Content)
	}
}

// What YAML and the rule model find wrong is told together, in the order of the file, each thing once.
func TestAllMistakesOfBothKindsAreToldAtOnce(t *testing.T) {
	got := faultsOf(t, `version: 2
tiers: {free: 1}
rules:
- name: Search
  where: edge
  by: [address]
  limit: [1]
  mode: shadow
  match: {paths: [], verbs: [GET]}
- nmae: x
  where: everywhere
  by: [key]
  limit: 100/0m
`)
	want := []string{
		`r.yaml:1:10: version: "2": want version: 1`,
		`r.yaml:2:15: tiers.free: "1": want a mapping with limit, burst`,
		`r.yaml:4:9: rules[0].name: "Search": want 1 to 63 of a-z, 0-9, -`,
		`r.yaml:7:10: rules[0].limit: want a single value`,
		`r.yaml:8:9: rules[0].mode: "shadow": this version's edge has no shadow rules`,
		`r.yaml:9:10: rules[0].match: this version's edge applies its rule to every request`,
		`r.yaml:9:18: rules[0].match.paths: want at least one value`,
		`r.yaml:9:22: rules[0].match.verbs: is unknown: want one of paths, methods, hosts, headers`,
		`r.yaml:10:3: rules[1].nmae: is unknown`,
		`r.yaml:10:3: rules[1].name: is missing`,
		`r.yaml:11:10: rules[1].where: "everywhere": want one of edge, origin`,
		`r.yaml:13:10: rules[1].limit: "100/0m": window must be 1ms to 366d`,
	}
	if len(got) != len(want) {
		t.Errorf("%d faults, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("fault %d: %s\nwant %s…", i, got[i], want[i])
		}
	}
	if t.Failed() {
		t.Log(strings.Join(got, "\n"))
	}
}

// A file that limits nothing is more likely half of one than meant.
func TestAFileThatLimitsNothingIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "is empty",
		"version: 1\n":                     "rules: want at least one rule",
		"version: 1\nrules: []\n":          "rules: want at least one rule",
		"version: 1\nrules:\n":             "rules: want a list",
		"version: 1\nrules: {}\n":          "rules: want a list",
		"rules:\n- {name: a}\n":            "version: want version: 1",
		good[:len(good)-len("t: 2000}\n")]: "is not YAML",
		good[:strings.Index(good, "  by: [address]")]: "rules[1].by: is missing",
	} {
		if got := strings.Join(faultsOf(t, text), "\n"); !strings.Contains(got, want) {
			t.Errorf("%.40q: %s, want %s", text, got, want)
		}
	}
}

func TestAFileIsReadUnderItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.rules.yaml")
	if _, err := rules.Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("version: 1\nrules: [x]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := rules.Load(path); err == nil || !strings.HasPrefix(err.Error(), path+":2:9: rules[0]: ") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := rules.Load(path); err != nil {
		t.Error(err)
	}
}

// A rule that lost its match to another mistake seems to apply everywhere, where it would fight with others.
func TestOneMistakeIsOneFault(t *testing.T) {
	const all = "version: 1\nrules:\n- {name: all, where: origin, by: [key], limit: 1/1s}\n"
	for text, want := range map[string]string{
		"word\n":         `r.yaml:1:1: "word": want a mapping with version, tiers, rules, overrides`,
		all + "- word\n": `r.yaml:4:3: rules[1]: "word": want a mapping with`,
		all + "- {name: a, where: origin, by: [key], limit: 1/1s, match: /a}\n":           `r.yaml:4:59: rules[1].match: "/a": want a mapping`,
		all + "- {name: a, where: origin, by: [key], limit: 1/1s, match: {paths: /a}}\n":  `r.yaml:4:67: rules[1].match.paths: "/a": want a list`,
		all + "- {name: a, where: origin, by: key, limit: 1/1s}\n":                        `r.yaml:4:32: rules[1].by: "key": want a list, as [key]`,
		all + "- {name: a, where: origin, limit: 1/1s}\n":                                 `r.yaml:4:3: rules[1].by: is missing`,
		all + "- {name: a, where: origin, by: [key], limit: 1/1s, match: {path: [/a]}}\n": `r.yaml:4:60: rules[1].match.path: is unknown`,
	} {
		if got := faultsOf(t, text); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%q:\n%s\nwant one: %s", text, strings.Join(got, "\n"), want)
		}
	}
}
