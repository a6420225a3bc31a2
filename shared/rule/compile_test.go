package rule_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

var update = flag.Bool("update", false, "rewrite the messages that broken fixtures expect")

// readDraft reads the fixtures' flat form: `rule` begins a rule, then `field value…` lines, `#` comments. It stands in
// for YAML, which this package does not know; positions are those of the fixture.
func readDraft(t *testing.T, name string) (d rule.Draft, want []string) {
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
		var list []rule.Scalar
		for _, v := range f[1:] {
			v, n, _ := strings.Cut(v, "~") // a~9 is aaaaaaaaa
			if times, err := strconv.Atoi(n); err == nil {
				v = strings.Repeat(v, times)
			}
			if v == `""` {
				v = ""
			}
			if v == "-" {
				list = append(list, rule.Scalar{})
				continue
			}
			list = append(list, rule.Scalar{Text: v, At: at, Set: true})
		}
		many := func() rule.Scalar { return append(list, rule.Scalar{}, rule.Scalar{}, rule.Scalar{})[0] }
		switch f[0] {
		case "rule":
			d.Rules = append(d.Rules, rule.Spec{At: at})
		case "copies": // of the last rule, under other names
			last := d.Rules[len(d.Rules)-1]
			n, _ := strconv.Atoi(list[0].Text)
			for i := range n {
				last.Name = rule.Scalar{Text: fmt.Sprintf("copy-%d", i), At: at, Set: true}
				if len(list) > 1 { // each at a path of its own
					last.Paths = []rule.Scalar{{Text: fmt.Sprintf(list[1].Text, i), At: at, Set: true}}
				}
				d.Rules = append(d.Rules, last)
			}
		case "tier":
			list = append(list, rule.Scalar{}, rule.Scalar{})
			d.Tiers = append(d.Tiers, rule.TierSpec{At: at, Name: list[0], Limit: list[1], Burst: list[2]})
		case "exempt":
			d.Edge.Exempt = append(d.Edge.Exempt, networks(t, at, "edge.exempt", f[1:])...)
		case "deny":
			d.Edge.Deny = append(d.Edge.Deny, networks(t, at, "edge.deny", f[1:])...)
		case "table":
			d.Edge.TableEntries = many()
		case "stale":
			d.Edge.StaleAfter = many()
		case "unverified":
			list = append(list, rule.Scalar{}, rule.Scalar{})
			d.Edge.UnverifiedAt, d.Edge.UnverifiedLimit, d.Edge.UnverifiedBurst = at, list[0], list[1]
		case "override": // rule key user tenant limit burst
			list = append(list, make([]rule.Scalar, 6)...)
			d.Overrides = append(d.Overrides, rule.OverrideSpec{At: at, Rule: list[0], Key: list[1], User: list[2], Tenant: list[3], Limit: list[4], Burst: list[5]})
		default:
			readField(t, &d.Rules[len(d.Rules)-1], f[0], at, list, many)
		}
	}
	return d, want
}

// networks reads prefixes; from+n is n single addresses from one on.
func networks(t *testing.T, at rule.Source, field string, texts []string) (specs []rule.NetworkSpec) {
	t.Helper()
	for i, text := range texts {
		from, count, many := strings.Cut(text, "+")
		p, err := netip.ParsePrefix(from)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(count)
		if !many {
			n = 1
		}
		for a := p.Addr(); n > 0; n, a = n-1, a.Next() {
			spec := rule.NetworkSpec{At: at, Field: field + "[" + strconv.Itoa(i) + "]", Text: text, Network: rule.Network{V6: a.Is6(), Bits: uint8(p.Bits())}}
			copy(spec.Address[:], a.AsSlice())
			if !spec.Valid() {
				t.Fatalf("%v: %s is no network", at, text)
			}
			specs = append(specs, spec)
		}
	}
	return specs
}

func readField(t *testing.T, s *rule.Spec, field string, at rule.Source, list []rule.Scalar, one func() rule.Scalar) {
	t.Helper()
	list = append(list, rule.Scalar{}, rule.Scalar{}, rule.Scalar{})
	given := list[: len(list)-3 : len(list)-3]
	switch field {
	case "name":
		s.Name = one()
	case "where":
		s.Where = one()
	case "algorithm":
		s.Algorithm = one()
	case "mode":
		s.Mode = one()
	case "limit":
		s.Limit = one()
	case "burst":
		s.Burst = one()
	case "tiered":
		s.Tier = one()
	case "cost":
		s.Cost = one()
	case "exact":
		s.Exact = one()
	case "offset":
		s.Offset = one()
	case "by":
		s.By = given
	case "paths":
		s.Paths, s.MatchAt = given, at
	case "methods":
		s.Methods, s.MatchAt = given, at
	case "hosts":
		s.Hosts, s.MatchAt = given, at
	case "with":
		s.HeaderNames, s.MatchAt = given, at
	case "prefix":
		s.PrefixV4, s.PrefixV6, s.OuterV6, s.PrefixAt = list[0], list[1], list[2], at
	case "valid":
		s.ValidLimit, s.ValidBurst, s.ValidAt = list[0], list[1], at
	case "penalty":
		s.PenaltyAfter, s.PenaltyCeiling, s.PenaltyDecay, s.PenaltyAt = list[0], list[1], list[2], at
	case "on-store-failure":
		s.OnStoreFailure = one()
	case "headers":
		s.Headers = one()
	default:
		t.Fatalf("%v: unknown field %q", at, field)
	}
}

func TestBrokenRulesAreRefusedAllAtOnceWithTheirPlace(t *testing.T) {
	files, _ := filepath.Glob("testdata/broken/*.txt")
	if len(files) == 0 {
		t.Fatal("no broken fixtures found")
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			draft, want := readDraft(t, name)
			set, faults := rule.Compile(draft)
			if *update {
				rewrite(t, name, faults)
				return
			}
			if set != nil || len(want) == 0 {
				t.Fatalf("set %v with %d faults wanted", set, len(want))
			}
			if got := strings.Split(faults.Error(), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func rewrite(t *testing.T, name string, faults rule.Faults) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "want ") {
			b.WriteString(line)
		}
	}
	for _, f := range faults {
		b.WriteString("want " + f.Error() + "\n")
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestGoodRulesCompileToWhatTheySay(t *testing.T) {
	draft, _ := readDraft(t, "testdata/good.txt")
	set, faults := rule.Compile(draft)
	if faults.Err() != nil {
		t.Fatal(faults)
	}
	edge := set.Edge()
	if edge == nil || edge.Name != "flood-per-address" || edge.PrefixV4 != 24 || edge.PrefixV6 != 56 || edge.OuterV6 != 48 ||
		edge.Algorithm != rule.TokenBucket || edge.Limit != (limit.Limit{Count: 50, Window: limit.Second, Burst: 200}) ||
		*edge.Valid != (limit.Limit{Count: 500, Window: limit.Second, Burst: 2000}) {
		t.Errorf("edge rule %+v %+v", edge, edge.Terms)
	}
	search := set.Rule(1)
	if search.Where != rule.Origin || search.Algorithm != rule.SlidingWindow || search.Limit != (limit.Limit{Count: 100, Window: limit.Minute}) ||
		search.OnStoreFailure != rule.Closed || search.Headers != rule.RetryOnly || search.Index != 1 || search.Line != 12 || search.Cost != 1 {
		t.Errorf("origin rule %+v", search)
	}
	export := set.Rule(3)
	if export.Algorithm != rule.GCRA || !export.Tier || !export.Exact || export.OnStoreFailure != rule.Closed || export.Cost != 5 ||
		export.Mode != rule.Enforce || fmt.Sprint(export.By) != "[key|user|address endpoint]" || fmt.Sprint(export.HeaderNames) != "[x-export]" ||
		export.Penalty != (rule.Penalty{After: 10, Ceiling: 10 * limit.Minute, Decay: limit.Minute}) ||
		export.Limit != (limit.Limit{Count: 60, Window: limit.Minute}) {
		t.Errorf("tiered rule %+v %+v", export, export.Terms)
	}
	if e := set.EdgeSettings; len(e.Exempt) != 2 || len(e.Deny) != 3 || !e.Deny[0].V6 || e.TableEntries != 4096 || e.StaleAfter != limit.Hour ||
		e.Unverified != (limit.Limit{Count: 100, Window: limit.Second, Burst: 200}) {
		t.Errorf("edge settings %+v", e)
	}
	if trial := set.Rule(4); trial.Mode != rule.Shadow || trial.Algorithm != rule.FixedWindow || !trial.Offset {
		t.Errorf("shadow rule %+v", trial.Terms)
	}
	if warnings := rule.Lint(draft, set); len(warnings) != 0 {
		t.Errorf("warnings:\n%v", warnings)
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
	f.Field = "tiers.a\nb\x1b[31m" + strings.Repeat("é", 10_000) // names in a path are the writer's to choose
	if text := f.Error(); strings.ContainsAny(text, "\n\x1b") || len(text) > 700 || !strings.HasPrefix(text, `f:3: tiers.a\nb`) {
		t.Errorf("%d bytes: %q", len(text), text)
	}
	if (rule.Faults{}).Err() != nil {
		t.Error("no faults are an error")
	}
}
