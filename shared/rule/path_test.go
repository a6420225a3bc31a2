package rule_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/rule"
)

// envoyPath models what Envoy makes of a path before any filter or route sees it, with the settings of our bootstrap:
// normalize_path, merge_slashes, path_with_escaped_slashes_action UNESCAPE_AND_REDIRECT. Envoy answers itself (ok false)
// where it redirects or refuses. In its order: a fragment is refused; encoded slashes and backslashes are decoded, which
// ends in a redirect; then Chromium's canonicalizer turns `\` into `/`, resolves dot segments (written as %2e too) while
// empty segments count, keeps or encodes the rest; then slashes are merged. Canonicalizers before 2024 also decode
// encoded letters, digits, `-._~` (unreserved).
func envoyPath(raw string, unreserved bool) (path string, ok bool) {
	raw, query, hasQuery := strings.Cut(raw, "?")
	if raw == "" || raw[0] != '/' || strings.ContainsAny(raw, "#\x00") {
		return "", false
	}
	for _, escaped := range []string{"%2f", "%2F", "%5c", "%5C"} {
		if strings.Contains(raw, escaped) {
			return "", false
		}
	}
	var out []string
	segments := strings.Split(strings.ReplaceAll(raw, `\`, "/")[1:], "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		switch strings.NewReplacer("%2e", ".", "%2E", ".").Replace(segment) {
		case ".":
			if last {
				out = append(out, "")
			}
		case "..":
			out = out[:max(0, len(out)-1)]
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, canonical(segment, unreserved))
		}
	}
	path = "/" + strings.Join(out, "/")
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	if hasQuery {
		path += "?" + query
	}
	return path, true
}

func canonical(segment string, unreserved bool) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		if c == '%' && i+2 < len(segment) && unreserved {
			if text, err := url.PathUnescape(segment[i : i+3]); err == nil && isUnreserved(text[0]) {
				b.WriteString(text)
				i += 2
				continue
			}
		}
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>`{}^|", c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// spellings are tricks that have led round other gateways' rules.
var spellings = []string{
	"/search", "//search", "/x/../search", "/%73earch", "/search/", "/search/a", "/a/..//search", "/search%2fa", "/.%2e/search",
	"/search?/..", "/search;x", "/%5csearch", "/s\\..\\search", "/search/%2e%2e/x", "/search/..;/x", "/search/#", "/search#/x",
	"/search//..", "//../search", "/search/a%2F..%2F..", "/%2573earch", "/search/%252e%252e/x", "/search/..%5c..%5cx", "/./search",
	"/files/a%2Fb", "/files/..", "/files/%2e%2e", "/files/a;b", "/files/a/", "/x/y/b", "/x/../a/y/b", "/files/%00", "/files/%", "/files/.",
	"/SEARCH", "/search/..;a=b/..", "/files/..%2fsearch", "/a//b", "/a/%2F/b", "/files//x", "/a/x/b?", "?", "", "*", "/search%3fx", "/search%23x",
	"/files/\x01", "/search/.../x", "/search/.%2e;/x", "http://h/search", "/search/%c0%ae%c0%ae/x", "/x%2f..%2fsearch/y", "/search/..%00/x",
	"//./sub/.", "/x//../sub/.", "/sub/x/..",
}

// protected are handlers with the rules that protect them.
var protected = []struct {
	handlers []string
	rule     string
	patterns []string
}{
	{[]string{"/search", "/search/"}, "search", []string{"/search", "/search/**"}},
	{[]string{"/files/{name}"}, "files", []string{"/files/*"}},
	{[]string{"/a/{x}/b"}, "inner", []string{"/a/*/b"}},
	{[]string{"GET /only/get"}, "get", []string{"/only/get"}},
	{[]string{"/sub/"}, "sub", []string{"/sub/**"}},
	{[]string{"/exact/{$}"}, "exact", []string{"/exact"}},
}

// A path that reaches a protected handler must match the rule that protects it, in whatever spelling: at net/http
// alone, and behind Envoy, where both tiers see the path that Envoy passes on.
func FuzzNoSpellingOfAPathDodgesItsRule(f *testing.F) {
	for _, path := range spellings {
		f.Add(path)
	}
	var specs []rule.Spec
	mux := http.NewServeMux()
	reached := ""
	for _, p := range protected {
		var methods []string
		for _, pattern := range p.handlers {
			if strings.HasPrefix(pattern, "GET ") {
				methods = []string{"GET"}
			}
			mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) { reached = p.rule })
		}
		specs = append(specs, spec(p.rule, p.patterns, methods))
	}
	set := compile(f, specs...)
	check := func(t *testing.T, method, path, origin string) {
		request, err := http.NewRequest(method, "http://h/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if request.URL, err = url.ParseRequestURI(path); err != nil || request.URL.Host != "" || request.URL.Opaque != "" {
			return // a server refuses it, or it names another host
		}
		if request.URL.Scheme != "" {
			origin = request.URL.EscapedPath() // in absolute form the path is what follows the scheme, for a door too
		}
		reached = ""
		mux.ServeHTTP(httptest.NewRecorder(), request)
		if reached == "" {
			return
		}
		if got := match(set, method, origin); !strings.Contains(" "+got, " "+reached+"=") {
			t.Fatalf("%s %q (normal form %q) reaches the handler of %s, matching %q", method, path, rule.NormalizePath(origin), reached, got)
		}
	}
	f.Fuzz(func(t *testing.T, path string) {
		normal := rule.NormalizePath(path)
		if !strings.HasPrefix(normal, "/") || strings.Contains(normal, "//") || len(normal) > 1 && strings.HasSuffix(normal, "/") {
			t.Fatalf("%q is normalised to %q", path, normal)
		}
		if strings.ContainsAny(path, " \r\n") {
			return
		}
		for _, method := range []string{"GET", "HEAD", "POST"} {
			check(t, method, path, path)
			for _, unreserved := range []bool{false, true} {
				if passed, ok := envoyPath(path, unreserved); ok {
					check(t, method, passed, passed)
					check(t, method, passed, path) // as the edge of another Envoy version might see it
				}
			}
		}
	})
}

// What servlet containers make of a path: they take parameters off as they are written, then decode, merge slashes, resolve
// dots; frameworks on them take a trailing slash for none.
func TestServletSpellingsDodgeNoRule(t *testing.T) {
	set := compile(t, spec("search", []string{"/search"}, nil), spec("sub", []string{"/sub/**"}, nil))
	for path, want := range map[string]string{
		"/search;a%2fb":           "search",
		"/search;a%5Cb;c=d":       "search",
		"/x/..;a%2f/search":       "search",
		"/a;x//../search;y":       "search",
		"/a//../%73earch/":        "search",
		"/;a%2Fb/search/":         "search",
		"/x;y//..;z/sub;a%2fb/.;": "sub",
	} {
		if got := match(set, "GET", path); !strings.Contains(" "+got, " "+want+"=") {
			t.Errorf("%s is below %s, matches %q, read as %q", path, want, got, rule.Readings(path))
		}
	}
}

func TestEnvoysModelDoesWhatEnvoyIsKnownToDo(t *testing.T) {
	for raw, want := range map[string]string{
		"/a/../b": "/b", "/a/%2e%2E/b": "/b", "/a//..": "/a/", "//a": "/a", `/a\b`: "/a/b", "/a/./b/.": "/a/b/", "/%61": "/%61", "/a;b/..;/c": "/a;b/..;/c",
		"/a?/../b": "/a?/../b", "/é": "/%C3%A9", "/..": "/", "/a/b/../../..": "/",
	} {
		if got, ok := envoyPath(raw, false); got != want || !ok {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
	if got, _ := envoyPath("/%61%2d%20", true); got != "/a-%20" {
		t.Errorf("got %q", got)
	}
	for _, raw := range []string{"/a%2Fb", "/a%5cb", "/a#b", "a", "", "/a%2f?x"} {
		if got, ok := envoyPath(raw, false); ok {
			t.Errorf("%s passes as %s, want Envoy's own answer", raw, got)
		}
	}
}

func TestNormalFormsAreFixedPoints(t *testing.T) {
	for _, path := range spellings {
		if normal := rule.NormalizePath(path); !strings.ContainsAny(normal, "%?#;\\") && rule.NormalizePath(normal) != normal {
			t.Errorf("%q becomes %q, which becomes %q", path, normal, rule.NormalizePath(normal))
		}
	}
}
