package rule_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/rule"
)

func compile(t testing.TB, specs ...rule.Spec) *rule.Set {
	t.Helper()
	set, faults := rule.Compile(specs)
	if faults.Err() != nil {
		t.Fatal(faults)
	}
	return set
}

func spec(name string, paths, methods []string) rule.Spec {
	scalar := func(text string) rule.Scalar { return rule.Scalar{Text: text, Set: true} }
	s := rule.Spec{Name: scalar(name), Where: scalar("origin"), Limit: scalar("1/1s"), By: []rule.Scalar{scalar("key")}}
	for _, p := range paths {
		s.Paths = append(s.Paths, scalar(p))
	}
	for _, m := range methods {
		s.Methods = append(s.Methods, scalar(m))
	}
	return s
}

func names(matched []rule.Matched) string {
	var text []string
	for _, m := range matched {
		text = append(text, m.Rule.Name+"="+m.Pattern)
	}
	return strings.Join(text, " ")
}

func TestRequestsFindTheirRules(t *testing.T) {
	set := compile(t,
		spec("all", nil, nil),
		spec("search", []string{"/search", "/search/**"}, nil),
		spec("deep", []string{"/search/images/**", "/search/images/cats"}, nil),
		spec("write", []string{"/**"}, []string{"POST", "PUT"}),
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
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := names(set.Match(method, path, nil)); got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
}

func TestMatchingAllocatesNothingForNormalPaths(t *testing.T) {
	set := compile(t, spec("all", nil, nil), spec("search", []string{"/search/**"}, nil))
	dst := make([]rule.Matched, 0, 8)
	if n := testing.AllocsPerRun(1000, func() { dst = set.Match("GET", "/search/images/cats?q=1", dst[:0]) }); n != 0 || len(dst) != 2 {
		t.Errorf("%v allocations for %d rules, want 0 for 2", n, len(dst))
	}
}

// A path that net/http routes to a protected handler must match the rule that protects it, in whatever spelling.
func FuzzNoSpellingOfAPathDodgesItsRule(f *testing.F) {
	for _, path := range []string{"/search", "//search", "/x/../search", "/%73earch", "/search/", "/search/a", "/a/..//search", "/search%2fa", "/.%2e/search", "/search?/..", "/search;x", "/%5csearch", "/s\\..\\search"} {
		f.Add(path)
	}
	set := compile(f, spec("search", []string{"/search", "/search/**"}, nil))
	mux := http.NewServeMux()
	reached := false
	handler := func(http.ResponseWriter, *http.Request) { reached = true }
	mux.HandleFunc("/search", handler)
	mux.HandleFunc("/search/", handler)
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	f.Fuzz(func(t *testing.T, path string) {
		normal := rule.NormalizePath(path)
		if !strings.HasPrefix(normal, "/") || strings.ContainsAny(normal, "\\") && !strings.Contains(path, "%") {
			t.Fatalf("%q is normalised to %q", path, normal)
		}
		if strings.ContainsAny(path, " \r\n") {
			return
		}
		request, err := http.NewRequest("GET", "http://h/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if request.URL, err = url.ParseRequestURI(path); err != nil || request.URL.Host != "" {
			return // a server refuses it, or it names another host
		}
		reached = false
		mux.ServeHTTP(httptest.NewRecorder(), request)
		if reached && len(set.Match("GET", path, nil)) == 0 {
			t.Fatalf("%q (normal form %q) reaches the handler of /search, matching no rule", path, normal)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			var specs []rule.Spec
			for i := range n {
				specs = append(specs, spec(fmt.Sprintf("r%d", i), []string{fmt.Sprintf("/service/%d/**", i)}, nil))
			}
			set := compile(b, specs...)
			dst := make([]rule.Matched, 0, 8)
			b.ReportAllocs()
			for b.Loop() {
				dst = set.Match("GET", "/service/7/items/42", dst[:0])
			}
		})
	}
}
