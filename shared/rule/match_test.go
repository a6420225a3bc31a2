package rule_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

func compile(t testing.TB, specs ...rule.Spec) *rule.Set {
	t.Helper()
	set, faults := rule.Compile(rule.Draft{Rules: specs})
	if faults.Err() != nil {
		t.Fatal(faults)
	}
	return set
}

func scalar(text string) rule.Scalar { return rule.Scalar{Text: text, Set: true} }

func scalars(texts []string) (list []rule.Scalar) {
	for _, text := range texts {
		list = append(list, scalar(text))
	}
	return list
}

func spec(name string, paths, methods []string) rule.Spec {
	return rule.Spec{Name: scalar(name), Where: scalar("origin"), Limit: scalar("1/1s"), By: []rule.Scalar{scalar("key")},
		Paths: scalars(paths), Methods: scalars(methods)}
}

func names(matched []rule.Matched) string {
	var text []string
	for _, m := range matched {
		text = append(text, m.Rule.Name+"="+m.Pattern)
	}
	return strings.Join(text, " ")
}

func match(set *rule.Set, method, path string) string {
	return names(set.Match(rule.Origin, rule.Request{Method: method, Path: path}, nil))
}

func TestRequestsFindTheirRules(t *testing.T) {
	set := compile(t,
		spec("all", nil, nil),
		spec("search", []string{"/search", "/search/**"}, nil),
		spec("deep", []string{"/search/images/**", "/search/images/cats"}, nil),
		spec("write", []string{"/**"}, []string{"POST", "PUT"}),
		spec("user", []string{"/users/*", "/users/*/posts/**", "/users/me"}, []string{"GET"}),
	)
	for request, want := range map[string]string{
		"GET /":                      "all=*",
		"GET":                        "all=*",
		"POST /":                     "write=/** all=*",
		"GET /searches":              "all=*",
		"GET /search":                "search=/search all=*",
		"GET /search?x=/y":           "search=/search all=*",
		"GET /search/":               "search=/search all=*",
		"GET /search/a":              "search=/search/** all=*",
		"GET /search/images/cats":    "deep=/search/images/cats search=/search/** all=*",
		"PUT /search/images/dogs/1":  "deep=/search/images/** search=/search/** write=/** all=*",
		"GET /x/../search":           "search=/search all=*",
		"GET //search":               "search=/search all=*",
		"GET /%73earch":              "search=/search all=*",
		"GET /%2e%2e/search":         "search=/search all=*",
		"GET /a%2f..%2fsearch":       "search=/search all=*",
		`GET /a\..\search`:           "search=/search all=*",
		"GET /search;jsessionid=1":   "search=/search all=*",
		"GET /./search/.":            "search=/search all=*",
		"GET /../../../search":       "search=/search all=*",
		"GET /search//..":            "search=/search all=*",
		"GET /search%":               "all=*",
		"GET /%2573earch":            "all=*",
		"get /search/images/cats#ok": "deep=/search/images/cats search=/search/** all=*",
		"GET /Search":                "all=*",
		"GET /users/7":               "user=/users/* all=*",
		"HEAD /users/7":              "user=/users/* all=*",
		"get /users/7":               "user=/users/* all=*",
		"Head /users/7":              "user=/users/* all=*",
		"post /":                     "write=/** all=*",
		"GET /users/me":              "user=/users/me all=*",
		"GET /users/":                "all=*",
		"GET /users":                 "all=*",
		"GET /users/7/posts":         "all=*",
		"GET /users/7/posts/":        "user=/users/*/posts/** all=*",
		"GET /users/7/posts/9/x":     "user=/users/*/posts/** all=*",
		"GET /users/7/8":             "all=*",
		"GET /users/7%2F8":           "user=/users/* all=*",
		// A spelling of two meanings pays for both.
		"GET /search/%2e%2e/users/7": "user=/users/* search=/search/** all=*",
		"GET /users/..;/search":      "search=/search all=*",
		"GET /search/..;/users/7":    "user=/users/* search=/search/** all=*",
		"GET /search/../users/me":    "user=/users/me search=/search/** all=*",
	} {
		method, path, _ := strings.Cut(request, " ")
		got := strings.Fields(match(set, method, path))
		wanted := strings.Fields(want)
		slices.Sort(got)
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Errorf("%s: got %s, want %s", request, match(set, method, path), want)
		}
	}
}

func TestHostsAndHeadersNarrowARule(t *testing.T) {
	api, all, beta := spec("api", []string{"/a"}, nil), spec("sub", nil, nil), spec("beta", nil, nil)
	api.Hosts, all.Hosts, beta.HeaderNames = scalars([]string{"api.example.com", "[::1]"}), scalars([]string{"*.example.com"}), scalars([]string{"x-beta", "x-trial"})
	edge := spec("flood", nil, nil)
	edge.Where, edge.By = scalar("edge"), scalars([]string{"address"})
	set := compile(t, api, all, beta, edge)
	for _, c := range []struct{ path, host, headers, want string }{
		{"/a", "api.example.com", "", "api=/a sub=*"},
		{"/a", "API.Example.com:8080", "", "api=/a sub=*"},
		{"/a", "api.example.com.", "", "api=/a sub=*"},
		{"/b", "x.y.example.com", "", "sub=*"},
		{"/a", "example.com", "", ""},
		{"/a", ".example.com", "", ""},
		{"/a", "notexample.com", "", ""},
		{"/a", "", "", ""},
		{"/a", "[::1]:443", "", "api=/a"},
		{"/a", "[::1]", "", "api=/a"},
		{"/", "", "x-beta", ""},
		{"/", "", "x-trial x-beta", "beta=*"},
	} {
		q := rule.Request{Method: "GET", Path: c.path, Host: c.host, HasHeader: func(name string) bool { return slices.Contains(strings.Fields(c.headers), name) }}
		if got := names(set.Match(rule.Origin, q, nil)); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
		if got := names(set.Match(rule.Edge, q, nil)); got != "flood=*" {
			t.Errorf("%+v: the edge has %s", c, got)
		}
	}
}

// The index finds what a comparison with every pattern finds.
func TestTheIndexFindsWhatAScanFinds(t *testing.T) {
	const seed = 4
	random := rand.New(rand.NewPCG(seed, 0))
	one := func(list ...string) string { return list[random.IntN(len(list))] }
	path := func(segment func() string) string {
		text := ""
		for range random.IntN(5) {
			text += "/" + segment()
		}
		return text
	}
	matches := 0
	for round := range 300 {
		specs := make([]rule.Spec, 1+random.IntN(30))
		for i := range specs {
			pattern := path(func() string { return one("a", "b", "c", "*") }) + one("", "/**")
			if pattern == "" {
				pattern = "/"
			}
			specs[i] = spec(fmt.Sprintf("r%d", i), []string{pattern}, nil)
			specs[i].Mode = scalar("shadow") // so that none fights another
			if random.IntN(3) == 0 {
				specs[i].Hosts = scalars([]string{one("h", "x.h", "*.h", "*.x.h")})
			}
		}
		set := compile(t, specs...)
		for range 100 {
			q := rule.Request{Method: "GET", Host: one("h", "x.h", "y.h", "y.x.h", "", "z"),
				Path: path(func() string { return one("a", "b", "c", "d", "", "..", "%61", "a;b", "a%2Fb", "*") }) + one("", "/")}
			var got, want []string
			for _, m := range set.Match(rule.Origin, q, nil) {
				got = append(got, m.Rule.Name)
			}
			for r := range set.Rules() {
				if set.Mismatch(&r, q) == "" {
					want = append(want, r.Name)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			matches += len(want)
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d round %d: %+v matches %v, a scan finds %v", seed, round, q, got, want)
			}
		}
	}
	if matches < 1000 {
		t.Errorf("only %d matches in all: the test shows nothing", matches)
	}
}

func TestARuleIsMatchedByItsNarrowestPattern(t *testing.T) {
	set := compile(t, spec("r", []string{"/**", "/a/**", "/a/*", "/*/b", "/a/b", "/*/*"}, nil))
	for path, want := range map[string]string{"/a/b": "/a/b", "/a/c": "/a/*", "/c/b": "/*/b", "/c/d": "/*/*", "/a/b/c": "/a/**", "/c": "/**"} {
		if got := match(set, "GET", path); got != "r="+want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestMatchingAllocatesNothingForUsualPaths(t *testing.T) {
	set := compile(t, spec("all", nil, nil), spec("search", []string{"/search/**", "/search/*/cats"}, nil))
	dst := make([]rule.Matched, 0, 8)
	for _, path := range []string{"/search/images/cats?q=1", "/search/.well-known/", "/search/images/"} {
		q := rule.Request{Method: "GET", Path: path, Host: "API.example.com:80"}
		if n := testing.AllocsPerRun(1000, func() { dst = set.Match(rule.Origin, q, dst[:0]) }); n != 0 || len(dst) != 2 {
			t.Errorf("%s: %v allocations for %d rules, want 0 for 2", path, n, len(dst))
		}
	}
}

// many is a rules file of n rules as a service with many endpoints has them.
func many(n int) []rule.Spec {
	specs := make([]rule.Spec, n)
	for i := range n {
		path := fmt.Sprintf("/service/%d/**", i)
		switch i % 10 {
		case 1:
			path = fmt.Sprintf("/tenants/*/reports/%d", i)
		case 2:
			path = fmt.Sprintf("/accounts/%d", i)
		}
		specs[i] = spec(fmt.Sprintf("service-%d-per-key", i), []string{path}, [][]string{nil, {"GET"}, {"POST", "PUT"}}[i%3])
		specs[i].Limit = scalar(fmt.Sprintf("%d/1m", 10+i%100))
		specs[i].By = [][]rule.Scalar{scalars([]string{"key"}), scalars([]string{"key|address", "endpoint"}), scalars([]string{"tenant"})}[i%3]
	}
	return specs
}

// retained is the heap that what make gives takes, with all that it keeps alive of what it was made from.
func retained[T any](make func() T) (made T, bytes int64) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	made = make()
	return made, heap() - before
}

func TestTenThousandRulesFitOneMegabyte(t *testing.T) {
	for name, limitOf := range map[string]func(i int) string{
		"a hundred limits":             func(i int) string { return fmt.Sprintf("%d/1m", 10+i%100) },
		"a limit of its own each rule": func(i int) string { return fmt.Sprintf("%d/1m", 1000+i) },
	} {
		t.Run(name, func(t *testing.T) {
			set, size := retained(func() *rule.Set {
				specs := many(rule.MaxRules)
				for i := range specs {
					specs[i].Limit = scalar(limitOf(i))
				}
				return compile(t, specs...)
			})
			t.Logf("%d rules take %d bytes, %d each", set.Len(), size, size/rule.MaxRules)
			if size >= 1_000_000 {
				t.Errorf("%d bytes, want less than 1 MB", size)
			}
			if got := match(set, "GET", "/service/9990/x"); !strings.HasPrefix(got, "service-9990-per-key") {
				t.Errorf("got %s", got)
			}
			for i, r := range slices.Collect(set.Rules()) {
				if want := fmt.Sprintf("service-%d-per-key", i); r.Name != want || int(r.Index) != i || rule.FormatRate(r.Limit) != limitOf(i) {
					t.Fatalf("rule %d reads as %+v", i, r)
				}
			}
		})
	}
}

func TestGrantsGoFromTheNarrowestToTheWidest(t *testing.T) {
	draft, _ := readDraft(t, "testdata/good.txt")
	set, faults := rule.Compile(draft)
	if faults.Err() != nil {
		t.Fatal(faults)
	}
	perMinute := func(n, burst int64) limit.Limit { return limit.Limit{Count: n, Window: limit.Minute, Burst: burst} }
	for _, c := range []struct {
		rule    string
		present rule.Parts
		who     rule.Caller
		want    rule.Grant
	}{
		{"export", rule.Parts(0).With(rule.Key), rule.Caller{Key: "acme-prod", Tenant: "acme", Tier: "paid"}, rule.Grant{Limit: perMinute(5000, 0), Basis: rule.OfKey}},
		{"export", rule.Parts(0).With(rule.Key), rule.Caller{Key: "acme-test", Tenant: "acme", Tier: "paid"}, rule.Grant{Limit: perMinute(900, 90), Basis: rule.OfTenant}},
		{"export", rule.Parts(0).With(rule.Key), rule.Caller{Key: "k", Tenant: "t", Tier: "paid"}, rule.Grant{Limit: perMinute(600, 100), Basis: rule.OfTier}},
		{"export", rule.Parts(0).With(rule.Key), rule.Caller{Key: "k", Tier: "staff"}, rule.Grant{Unlimited: true, Basis: rule.OfTier}},
		{"export", rule.Parts(0).With(rule.Key), rule.Caller{Key: "k", Tier: "unheard-of"}, rule.Grant{Limit: perMinute(60, 0), Basis: rule.OfStrictest}},
		{"export", rule.Parts(0).With(rule.User), rule.Caller{User: "https://id.example.com|acme|joe", Tenant: "acme"}, rule.Grant{Unlimited: true, Basis: rule.OfUser}},
		// The address is shared: nothing that hangs on one caller moves its limit.
		{"export", rule.Parts(0).With(rule.Address), rule.Caller{Tenant: "acme", Tier: "paid"}, rule.Grant{Limit: perMinute(60, 0), Basis: rule.OfStrictest}},
		{"search-per-key", rule.Parts(0).With(rule.Key), rule.Caller{Key: "k", Tenant: "acme"}, rule.Grant{Limit: perMinute(0, 0), Basis: rule.OfTenant}},
		{"search-per-key", rule.Parts(0).With(rule.Key), rule.Caller{Key: "k"}, rule.Grant{Limit: perMinute(100, 0)}},
	} {
		rules := slices.Collect(set.Rules())
		r := &rules[slices.IndexFunc(rules, func(r rule.Rule) bool { return r.Name == c.rule })]
		chosen, missing := r.Principal(c.present, nil)
		if got := set.Grant(r, chosen, c.who); got != c.want || missing != nil {
			t.Errorf("%s for %+v: %+v, want %+v", c.rule, c.who, got, c.want)
		}
	}
}

func TestAPrincipalIsTheFirstPresentOfEachChoice(t *testing.T) {
	s := spec("r", []string{"/a"}, nil)
	s.By = scalars([]string{"key|user|address", "endpoint"})
	r := compile(t, s).Rule(0)
	for present, want := range map[rule.Parts]string{
		rule.Parts(0).With(rule.Key).With(rule.Address):  "[key endpoint] ",
		rule.Parts(0).With(rule.User).With(rule.Address): "[user endpoint] ",
		rule.Parts(0).With(rule.Address):                 "[address endpoint] ",
		rule.Parts(0).With(rule.Tenant):                  "[] key|user|address",
	} {
		chosen, missing := r.Principal(present, nil)
		if got := fmt.Sprint(chosen, " ", missing.String()); got != want {
			t.Errorf("%b: %q, want %q", present, got, want)
		}
	}
}

func TestLintFindsPathsThatAnonymousCallersHaveForFree(t *testing.T) {
	lint := func(specs ...rule.Spec) string {
		set := compile(t, specs...)
		return rule.Lint(rule.Draft{Rules: specs}, set).Error()
	}
	by := func(s rule.Spec, parts ...string) rule.Spec { s.By = scalars(parts); return s }
	keyed := spec("keyed", []string{"/a/*/b/**"}, []string{"GET", "POST"})
	open := `rules[0].match: "GET /a/*/b/**": no rule applies there to a request without key: add one by address, or name a fallback, as key|address`
	post := strings.Replace(open, "GET", "POST", 1)
	shadow := by(spec("shadow", nil, nil), "address")
	shadow.Mode = scalar("shadow")
	edge := by(spec("edge", nil, nil), "address")
	edge.Where = scalar("edge")
	hosted := by(spec("hosted", nil, nil), "address")
	hosted.Hosts = scalars([]string{"*.example.com"})
	punished := shadow
	punished.PenaltyAt, punished.PenaltyAfter = rule.Source{File: "f", Line: 3}, scalar("1")
	punished.PenaltyCeiling, punished.PenaltyDecay = scalar("1m"), scalar("1m")
	for name, c := range map[string]struct {
		others []rule.Spec
		want   string
	}{
		"a penalty for nobody":    {[]rule.Spec{punished}, open + "\n" + `f:3: rules[1].penalty: a shadow rule refuses nobody: it begins with mode: enforce`},
		"alone":                   {nil, open},
		"another by key":          {[]rule.Spec{spec("x", nil, nil)}, open + "\n" + `rules[1].match: "*": no rule applies there to a request without key: add one by address, or name a fallback, as key|address`},
		"everything, by address":  {[]rule.Spec{by(spec("x", nil, nil), "address")}, ""},
		"first present":           {[]rule.Spec{by(spec("x", nil, nil), "key|address")}, ""},
		"global":                  {[]rule.Spec{by(spec("x", []string{"/**"}, nil), "global")}, ""},
		"the edge":                {[]rule.Spec{edge}, ""},
		"one of its methods":      {[]rule.Spec{by(spec("x", nil, []string{"GET"}), "address")}, post},
		"both methods, two rules": {[]rule.Spec{by(spec("x", nil, []string{"GET"}), "address"), by(spec("y", nil, []string{"POST"}), "address")}, ""},
		"only a shadow":           {[]rule.Spec{shadow}, open},
		"only one host":           {[]rule.Spec{hosted}, open},
		"a wider pattern":         {[]rule.Spec{by(spec("x", []string{"/a/**"}, nil), "address")}, ""},
		"the same pattern":        {[]rule.Spec{by(spec("x", []string{"/*/*/b/**"}, nil), "address")}, ""},
		"a narrower pattern":      {[]rule.Spec{by(spec("x", []string{"/a/1/b/**"}, nil), "address")}, open},
		"one level of it":         {[]rule.Spec{by(spec("x", []string{"/a/*/b/*"}, nil), "address")}, open},
	} {
		if got := lint(append([]rule.Spec{keyed}, c.others...)...); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
	tiers := rule.Draft{Rules: []rule.Spec{by(spec("x", nil, nil), "address")}, Tiers: []rule.TierSpec{{Name: scalar("free"), Limit: scalar("1/1s")}}}
	set, _ := rule.Compile(tiers)
	if got := rule.Lint(tiers, set).Error(); got != "tiers.free: no rule has tier: true" {
		t.Errorf("got %s", got)
	}
}

func TestTooManyFormsOfPatternsAreRefused(t *testing.T) {
	var specs []rule.Spec
	for i := range 129 {
		path := ""
		for bit := range 8 {
			path += []string{"/a", "/*"}[i>>bit&1]
		}
		specs = append(specs, spec(fmt.Sprintf("r%d", i), []string{path}, nil))
	}
	if _, faults := rule.Compile(rule.Draft{Rules: specs[:128]}); faults.Err() != nil {
		t.Error(faults)
	}
	want := `rules: "129": patterns have too many forms (segments, places of *, labels of hosts): want at most 128`
	if _, faults := rule.Compile(rule.Draft{Rules: specs}); faults.Error() != want {
		t.Errorf("got %v", faults)
	}
}

func TestARuleOfNoPathFightsOneOfEveryPath(t *testing.T) {
	_, faults := rule.Compile(rule.Draft{Rules: []rule.Spec{spec("a", nil, nil), spec("b", []string{"/**"}, nil)}})
	if len(faults) != 1 || !strings.Contains(faults[0].Error(), "limits the same callers on the same requests as a") {
		t.Errorf("got %v", faults)
	}
}

// 64 hosts times 64 paths are 4,096 entries of a rule.
func TestPairsOfHostsAndPathsAreBoundedInAll(t *testing.T) {
	var hosts, paths []string
	for i := range 64 {
		hosts = append(hosts, fmt.Sprintf("h%d.example.com", i))
		paths = append(paths, fmt.Sprintf("/p%d", i))
	}
	var specs []rule.Spec
	for i := range 30 {
		s := spec(fmt.Sprintf("r%d", i), paths, nil)
		for _, h := range hosts {
			s.Hosts = append(s.Hosts, scalar(h))
		}
		s.Limit = scalar(fmt.Sprintf("%d/%dm", i+1, (i+1)*(i+1)))
		specs = append(specs, s)
	}
	if _, faults := rule.Compile(rule.Draft{Rules: specs[:24]}); faults.Err() != nil {
		t.Error(faults)
	}
	want := "rules[24].match: want at most 100000 pairs of a host and a path in all rules together"
	if _, faults := rule.Compile(rule.Draft{Rules: specs}); faults.Error() != want {
		t.Errorf("got %v", faults)
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			set := compile(b, many(n)...)
			dst := make([]rule.Matched, 0, 8)
			q := rule.Request{Method: "GET", Path: "/service/3/items/42"}
			b.ReportAllocs()
			for b.Loop() {
				dst = set.Match(rule.Origin, q, dst[:0])
			}
			if len(dst) != 1 {
				b.Fatal(names(dst))
			}
		})
	}
}

// A method in small letters is the same endpoint: else it would have a counter of its own.
func TestAMethodNamesAnEndpointInAnyCase(t *testing.T) {
	for method, want := range map[string]string{"GET": "GET", "get": "GET", "pAtch": "PATCH", "": "*", "GETS": "*", "PURGE": "*", "tra\u017fe": "*", "M-SEARCH": "*"} {
		if got := rule.EndpointMethod(method); got != want {
			t.Errorf("%s: %s, want %s", method, got, want)
		}
	}
}
