package explain_test

import (
	"flag"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/explain"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/rule"
)

var update = flag.Bool("update", false, "rewrite the explanations that are expected")

func TestEveryRuleIsExplained(t *testing.T) {
	release, err := rules.LoadModel("testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		q    explain.Question
		want string
	}{
		"a key": {explain.Question{Method: "GET", Path: "/search/..%2Freports/7?x", Host: "API.example.com:443", Headers: []string{"X-App: 1"},
			Caller: rule.Caller{Key: "acme-test", Tenant: "acme", Tier: "paid"}, Address: netip.MustParseAddr("2001:db8::1")}, "key"},
		"nobody": {explain.Question{Method: "POST", Path: "/"}, "nobody"},
		"an address": {explain.Question{Method: "GET", Path: "/search", Host: "api.example.com", Headers: []string{"x-app"},
			Address: netip.MustParseAddr("::ffff:192.0.2.7")}, "address"},
		"a tier that nobody knows": {explain.Question{Method: "GET", Path: "/search\tx\x1b[31m", Host: "api.example.com", Headers: []string{"x-app"},
			Caller: rule.Caller{User: "joe", Tier: "gold"}}, "tier"},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := explain.Write(&b, release.Set, c.q); err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile("testdata/"+c.want+".txt", []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile("testdata/" + c.want + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
			}
		})
	}
}

// An address has no tier, whatever tier its caller's key has.
func TestATierIsNotTheAddresss(t *testing.T) {
	release, err := rules.LoadModel("testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	err = explain.Write(&b, release.Set, explain.Question{Method: "GET", Path: "/", Host: "api.example.com", Headers: []string{"x-app"},
		Caller: rule.Caller{Tier: "paid"}, Address: netip.MustParseAddr("192.0.2.7")})
	if want := "the strictest tier, as the principal has none\n"; err != nil || !strings.Contains(b.String(), want) {
		t.Errorf("%v, want %q in:\n%s", err, want, b.String())
	}
}

// The longest network decides, whichever list it is in.
func TestExemptAndDeniedAddressesAreTold(t *testing.T) {
	release, err := rules.ParseModel("rules.yaml", []byte(`version: 1
rules:
- {name: flood, where: edge, by: [address], limit: 50/1s}
- {name: all, where: origin, by: [global], limit: 9/1s}
edge: {exempt: [10.0.0.0/8, 192.0.2.7, "2001:db8:1::/48"], deny: [10.1.0.0/16, 192.0.2.0/24, "2001:db8::/32"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for address, c := range map[string]struct {
		want  string
		rules int // that apply
	}{
		"10.0.0.1":         {"is exempt, as one of 10.0.0.0/8\n", 1},
		"::ffff:10.0.0.1":  {"is exempt, as one of 10.0.0.0/8\n", 1},
		"10.1.0.1":         {"with 403, since 10.1.0.0/16 is denied.\n", 0},
		"192.0.2.7":        {"is exempt, as one of 192.0.2.7/32\n", 1},
		"192.0.2.8":        {"refuses all requests from 192.0.2.0/24\n", 0},
		"2001:db8::1%eth0": {"with 403, since 2001:db8::/32 is denied.\n", 0},
		"2001:db8:1::1":    {"is exempt, as one of 2001:db8:1::/48\n", 1},
		"2001:db9::1":      {"address=2001:db9::/64 and 2001:db9::/48", 2},
		"11.0.0.1":         {"address=11.0.0.1/32", 2},
	} {
		var b strings.Builder
		err := explain.Write(&b, release.Set, explain.Question{Method: "GET", Path: "/", Address: netip.MustParseAddr(address)})
		out := b.String()
		met := strings.Count(out, "50/1s") + strings.Count(out, "9/1s")
		if err != nil || !strings.Contains(out, c.want) || met != c.rules {
			t.Errorf("%s: %v, want %q and %d rules that apply in:\n%s", address, err, c.want, c.rules, out)
		}
	}
	var b strings.Builder
	if err := explain.Write(&b, release.Set, explain.Question{Method: "GET", Path: "/"}); err != nil || strings.Contains(b.String(), "exempt") || strings.Contains(b.String(), "403") {
		t.Errorf("no address: %v\n%s", err, b.String())
	}
}

func TestMethodsAreHTTPs(t *testing.T) {
	for text, want := range map[string]string{"get": "GET", "GET": "GET", "Patch": "PATCH", "purge": "purge", "M-SEARCH": "M-SEARCH", "": "refused", "G E": "refused", "/search": "refused", "GÉT": "refused"} {
		got, err := explain.ParseMethod(text)
		if err != nil {
			got = "refused"
		}
		if got != want {
			t.Errorf("%q: %q (%v), want %q", text, got, err, want)
		}
	}
}

func TestTargetsArePathsOrURLs(t *testing.T) {
	for target, want := range map[string]string{
		"/search?u=http://h/":          " /search?u=http://h/",
		"http://h":                     "h /",
		"https://h:8443/a%2Fb/../c?x#": "h:8443 /a%2Fb/../c?x#",
		"http://h?x":                   "h /",
		"ftp://h/":                     "refused",
		"search":                       "refused",
		"http:///x":                    "refused",
		"http://h\x00/":                "refused",
	} {
		host, path, err := explain.ParseTarget(target)
		got := host + " " + path
		if err != nil {
			got = "refused"
		}
		if got != want {
			t.Errorf("%q: %q (%v), want %q", target, got, err, want)
		}
	}
}
