package header_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

func fields(v header.View) map[string]string {
	got := map[string]string{}
	header.Each(v, func(name, value string) { got[name] = value })
	return got
}

// Case 4: a wait of 0.4 s says 1, never 0, never negative.
func TestRetryAfterIsNeverEarly(t *testing.T) {
	for wait, want := range map[limit.Micros]int64{0: 1, 1: 1, 400 * limit.Millisecond: 1, limit.Second: 1, limit.Second + 1: 2, 90 * limit.Second: 90} {
		if got := header.RetryAfterSeconds(wait); got != want {
			t.Errorf("%d µs: %d s, want %d", wait, got, want)
		}
	}
}

func TestFieldsTellAnAdmittedCallWhatIsLeft(t *testing.T) {
	v := header.View{Rule: "search-per-key", Limit: limit.Limit{Count: 100, Window: limit.Minute},
		Decision: limit.Decision{Allowed: true, Limit: 100, Remaining: 41, ResetAfter: 30*limit.Second + 1}}
	want := map[string]string{
		"ratelimit":             `"search-per-key";r=41;t=31`,
		"ratelimit-policy":      `"search-per-key";q=100;w=60`,
		"x-ratelimit-limit":     "100",
		"x-ratelimit-remaining": "41",
		"x-ratelimit-reset":     "31",
	}
	got := fields(v)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %q, want %q", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
}

func TestModesTellNoMoreThanTheyMay(t *testing.T) {
	refused := limit.Decision{Limit: 5, RetryAfter: 400 * limit.Millisecond, ResetAfter: limit.Second}
	for mode, want := range map[rule.Headers]string{rule.RetryOnly: "retry-after: 1", rule.None: ""} {
		var got []string
		header.Each(header.View{Rule: "r", Mode: mode, Decision: refused}, func(n, v string) { got = append(got, n+": "+v) })
		if strings.Join(got, "; ") != want {
			t.Errorf("%v: %q, want %q", mode, got, want)
		}
	}
	refused.RetryAfter = limit.Never
	if got := fields(header.View{Rule: "r", Decision: refused}); got["retry-after"] != "" {
		t.Errorf("a call that can never pass is told to retry after %q", got["retry-after"])
	}
}

// An independent parser reads what Each writes, at the bounds of the numbers too.
func TestFieldsAreStructuredFields(t *testing.T) {
	for _, v := range []header.View{
		{Rule: "a", Limit: limit.Limit{Count: 100, Window: limit.Minute}, Decision: limit.Decision{Limit: 100, Remaining: 41}},
		{Rule: "b-9", Limit: limit.Limit{Count: limit.MaxCount, Window: limit.MaxWindow}, Decision: limit.Decision{Limit: limit.MaxCount, Remaining: limit.MaxCount, ResetAfter: 732 * limit.Day}},
		{Rule: "c", Limit: limit.Limit{Count: 0, Window: limit.Millisecond}, Decision: limit.Decision{RetryAfter: limit.Never, ResetAfter: limit.Never}},
		{Rule: "d", Limit: limit.Limit{Count: 1, Window: limit.Day, Burst: 36_600}, Decision: limit.Decision{Limit: 36_600, ResetAfter: limit.MaxRefill}},
	} {
		got := fields(v)
		for name, params := range map[string]string{"ratelimit": "r", "ratelimit-policy": "q w"} {
			list, err := httpsfv.UnmarshalList([]string{got[name]})
			if err != nil || len(list) != 1 {
				t.Errorf("%s: %q: %v", name, got[name], err)
				continue
			}
			item := list[0].(httpsfv.Item)
			if item.Value != v.Rule {
				t.Errorf("%s: %q names %v, want %q", name, got[name], item.Value, v.Rule)
			}
			for _, p := range strings.Fields(params) {
				if n, ok := item.Params.Get(p); !ok || n.(int64) < 0 {
					t.Errorf("%s: %q: parameter %s is %v", name, got[name], p, n)
				}
			}
		}
	}
}

func TestTheTightestRuleIsShown(t *testing.T) {
	view := func(allowed bool, quota, remaining int64, wait limit.Micros) header.View {
		return header.View{Decision: limit.Decision{Allowed: allowed, Limit: quota, Remaining: remaining, RetryAfter: wait}}
	}
	for name, c := range map[string]struct {
		views []header.View
		want  int
	}{
		"none":                          {nil, -1},
		"smallest share left":           {[]header.View{view(true, 10, 5, 0), view(true, 1000, 100, 0), view(true, 10, 2, 0)}, 1},
		"a refusal before an admission": {[]header.View{view(true, 10, 0, 0), view(false, 10, 3, 5)}, 1},
		"longest wait":                  {[]header.View{view(false, 1, 0, 5), view(false, 1, 0, limit.Never), view(false, 1, 0, 9)}, 1},
		"a quota of nothing":            {[]header.View{view(true, 10, 5, 0), view(false, 0, 0, limit.Never)}, 1},
	} {
		if got := header.Tightest(c.views); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestManyRulesShowTheMostRestrictiveThatMayBeShown(t *testing.T) {
	view := func(name string, mode rule.Headers, allowed bool, remaining int64, wait limit.Micros) header.View {
		return header.View{Rule: name, Mode: mode, Limit: limit.Limit{Count: 10, Window: limit.Second},
			Decision: limit.Decision{Allowed: allowed, Limit: 10, Remaining: remaining, RetryAfter: wait}}
	}
	shadow := view("shadow", rule.Full, false, 0, 9*limit.Second)
	shadow.Shadow = true
	for name, c := range map[string]struct {
		views []header.View
		want  string
	}{
		"the tightest":                        {[]header.View{view("a", rule.Full, true, 5, 0), view("b", rule.Full, true, 2, 0)}, `"b";r=2;t=0`},
		"a hidden rule stays hidden":          {[]header.View{view("a", rule.Full, true, 5, 0), view("b", rule.None, true, 2, 0), view("c", rule.RetryOnly, true, 1, 0)}, `"a";r=5;t=0`},
		"the refusal":                         {[]header.View{view("a", rule.Full, true, 1, 0), view("b", rule.Full, false, 2, 1)}, `"b";r=2;t=0`},
		"a hidden refusal tells nothing":      {[]header.View{view("a", rule.Full, false, 0, 1), view("b", rule.None, false, 0, 2)}, ""},
		"a refusal is told by its own mode":   {[]header.View{view("a", rule.RetryOnly, false, 0, 2), view("b", rule.Full, true, 1, 0)}, "retry 1"},
		"case 29: shadow before the enforced": {[]header.View{shadow, view("b", rule.Full, false, 0, 1)}, `"b";r=0;t=0`},
		"only shadows":                        {[]header.View{shadow}, ""},
		"none":                                {nil, ""},
	} {
		got := ""
		header.OfMany(c.views, func(name, value string) {
			if name == "ratelimit" || name == "retry-after" && got == "" {
				got = strings.TrimPrefix(value, "retry ")
				if name == "retry-after" {
					got = "retry " + value
				}
			}
		})
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestJitterSpreadsAHerdAndIsNeverEarly(t *testing.T) {
	const spread = 10 * limit.Second
	seconds := map[string]int{}
	for i := range 10_000 {
		principal := keyfilter.Hash(keyfilter.HashKey{}, []byte{byte(i), byte(i >> 8)})
		jitter := header.Jitter(principal, spread)
		if jitter < 0 || jitter > spread || jitter != header.Jitter(principal, spread) {
			t.Fatalf("jitter of %d is %d", i, jitter)
		}
		seconds[fields(header.View{Mode: rule.RetryOnly, Jitter: jitter, Decision: limit.Decision{RetryAfter: 3 * limit.Second}})["retry-after"]]++
	}
	for s := 4; s <= 13; s++ {
		if n := seconds[strconv.Itoa(s)]; n < 800 || n > 1200 {
			t.Errorf("%d of 10,000 come back after %d s, want about 1,000: %v", n, s, seconds)
		}
	}
	for _, principal := range []uint64{0, 1, math.MaxUint64} {
		if j := header.Jitter(principal, 0); j != 0 {
			t.Errorf("jitter without a spread is %d", j)
		}
		if j := header.Jitter(principal, limit.Never); j < 0 {
			t.Errorf("jitter is %d", j)
		}
	}
	long := header.View{Mode: rule.RetryOnly, Jitter: limit.Never, Decision: limit.Decision{RetryAfter: limit.Never - 1}}
	if got := fields(long)["retry-after"]; got != "9223372036855" {
		t.Errorf("the longest wait is %q s", got)
	}
}

func TestTheWindowOfABucketsQuotaIsTheTimeItTakesToEarn(t *testing.T) {
	for _, c := range []struct {
		limit limit.Limit
		want  string
	}{
		{limit.Limit{Count: 100, Window: limit.Minute, Burst: 20}, `"r";q=20;w=12`},
		{limit.Limit{Count: 7, Window: limit.Second, Burst: 50}, `"r";q=50;w=8`},
		{limit.Limit{Count: 1000, Window: limit.Second, Burst: 1}, `"r";q=1;w=1`},
		{limit.Limit{Count: limit.MaxCount, Window: limit.MaxWindow, Burst: limit.MaxCount - 1}, `"r";q=999999999999999;w=31622400`},
	} {
		v := header.View{Rule: "r", Limit: c.limit, Decision: limit.Decision{Allowed: true, Limit: c.limit.Burst}}
		if got := fields(v)["ratelimit-policy"]; got != c.want {
			t.Errorf("%+v: %s, want %s", c.limit, got, c.want)
		}
	}
}

func TestProblemsAreJSONAndTellNoMoreThanTheyMay(t *testing.T) {
	p := header.Problem{Code: header.RateLimited, Rule: "r", Where: "edge", Release: 7, RetryAfter: 400_001}
	for mode, want := range map[rule.Headers]map[string]any{
		rule.Full:      {"status": 429.0, "code": "rate_limited", "retry_after_ms": 401.0, "rule": "r", "where": "edge", "release": 7.0},
		rule.RetryOnly: {"status": 429.0, "code": "rate_limited", "retry_after_ms": 401.0},
		rule.None:      {"status": 429.0, "code": "rate_limited"},
	} {
		p.Mode = mode
		var got map[string]any
		if err := json.Unmarshal(p.Append(nil), &got); err != nil {
			t.Fatal(err)
		}
		if got["type"] != "about:blank" || got["title"] == "" {
			t.Errorf("%v: %v", mode, got)
		}
		delete(got, "type")
		delete(got, "title")
		if len(got) != len(want) {
			t.Errorf("%v: got %v, want %v", mode, got, want)
		}
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%v: %s is %v, want %v", mode, name, got[name], value)
			}
		}
	}
}

func TestAProblemNamesTheFieldToBlame(t *testing.T) {
	for field, want := range map[string]any{"": nil, "x-api-key": "x-api-key", "a\"b": "a?b"} {
		var got map[string]any
		if err := json.Unmarshal(header.Problem{Code: header.BadRequest, Mode: rule.None, Field: field}.Append(nil), &got); err != nil {
			t.Fatal(err)
		}
		if got["field"] != want {
			t.Errorf("field %q: %v", field, got)
		}
	}
}

func FuzzProblemsAreAlwaysJSON(f *testing.F) {
	f.Add("rate_limited", `a"b\`, "edge\n", uint64(1), int64(-1))
	f.Add("", "\x00é", "", uint64(math.MaxUint64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, code, name, where string, release uint64, wait int64) {
		p := header.Problem{Code: header.Code(code), Rule: name, Where: where, Release: release, RetryAfter: limit.Micros(wait)}
		if b := p.Append(nil); !json.Valid(b) || strings.Count(string(b), "\n") != 1 {
			t.Errorf("%q", b)
		}
	})
}

func TestEveryCodeHasItsStatus(t *testing.T) {
	for code, want := range map[header.Code]int{
		header.RateLimited: 429, header.KeyUnknown: 401, header.KeyMalformed: 401, header.KeyConflict: 400, header.TokenInvalid: 401, header.AddressDenied: 403,
		header.Overloaded: 503, header.LimiterUnavailable: 503, header.UpstreamDown: 502, header.UpstreamSlow: 504, header.BadRequest: 400, "nonsense": 500,
	} {
		if got := code.Status(); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
}

func TestProblemsFitABufferWithoutAllocating(t *testing.T) {
	p := header.Problem{Code: header.KeyUnknown, Rule: strings.Repeat("r", 63), Where: "origin", Release: math.MaxUint64, RetryAfter: limit.MaxRefill}
	buffer := make([]byte, 0, 512)
	if n := testing.AllocsPerRun(1000, func() { buffer = p.Append(buffer[:0]) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
