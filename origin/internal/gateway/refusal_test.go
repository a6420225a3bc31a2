package gateway_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
)

// An edge answers the next such call by itself; nobody else learns anything from a hint, nor is told one.
func TestOnlyAnEdgeIsToldHints(t *testing.T) {
	rules := "version: 1\nrules:\n- {name: per-key, where: origin, by: [key], match: {paths: [/k]}, limit: 1/1h, headers: none}\n" +
		"- {name: per-address, where: origin, by: [address], match: {paths: [/a]}, algorithm: gcra, limit: 1/10s, burst: 1}\n" +
		"- {name: all, where: origin, by: [global], match: {paths: [/g]}, limit: 1/1h}\n"
	forged, err := keyfilter.Format{}.New(ones{})
	if err != nil {
		t.Fatal(err)
	}
	for _, trusted := range []string{"", "127.0.0.0/8"} {
		s := start(t, settings{rules: rules, trusted: trusted}, nil)
		for _, c := range []struct{ name, path, key, want string }{
			{"of a key", "/k", s.key, "v1;rule=per-key;scope=key;ms=30000;release=0"}, // 30 s at most
			{"of an address", "/a", "", "v1;rule=per-address;scope=address;ms=10000;release=0"},
			{"of everybody", "/g", "", ""},
			{"of a key that was never issued", "/", forged, "v1;rule=;scope=unknown-key;ms=30000;release=0"},
			{"of a key that is none", "/", "wk_none", ""},
		} {
			var headers []string
			if c.key != "" {
				headers = []string{"X-Api-Key: " + c.key}
			}
			if a := s.get(c.path, headers...); a.StatusCode == 200 && a.Header.Get("X-Weir-Hint") != "" {
				t.Errorf("%s: an admission carries a hint", c.name)
			}
			a := s.get(c.path, headers...)
			if a.StatusCode == 200 {
				t.Errorf("%s: %d", c.name, a.StatusCode)
			}
			want := c.want
			if trusted == "" {
				want = ""
			}
			if got := strings.Join(a.Header.Values("X-Weir-Hint"), "|"); got != want {
				t.Errorf("trusted %q, a refusal %s: hint %q, want %q", trusted, c.name, got, want)
			}
		}
	}
}

func TestOfSeveralRulesTheTightestIsShown(t *testing.T) {
	s := start(t, settings{rules: "version: 1\nrules:\n- {name: wide, where: origin, by: [address], limit: 10/1h}\n" +
		"- {name: tight, where: origin, by: [global], limit: 4/1h}\n- {name: hidden, where: origin, by: [key], limit: 2/1s, headers: none}\n"}, nil)
	key := "X-Api-Key: " + s.key
	if a := s.get("/", key); a.Header.Get("Ratelimit-Policy") != `"tight";q=4;w=3600` || a.Header.Get("X-Ratelimit-Remaining") != "3" {
		t.Errorf("admitted beside a tighter rule that hides: %v", a.Header)
	}
	s.get("/", key)
	if a := s.get("/", key); a.StatusCode != 429 || a.problem["rule"] != nil || a.Header.Get("Retry-After") != "" || a.Header.Get("Ratelimit") != "" {
		t.Errorf("refused by the rule that hides: %d %v %v", a.StatusCode, a.Header, a.problem)
	}
	s.get("/")
	s.get("/")
	if a := s.get("/"); a.StatusCode != 429 || a.problem["rule"] != "tight" || len(a.Header.Values("Retry-After")) != 1 || len(a.Header.Values("Ratelimit")) != 1 {
		t.Errorf("refused: %d %v %v", a.StatusCode, a.Header, a.problem)
	}
}

// A herd that is refused in one moment is told to come back over a while, each caller always at the same.
func TestWaitsAreSpreadByCaller(t *testing.T) {
	s := start(t, settings{
		rules:   "version: 1\nrules:\n- {name: r, where: origin, by: [address], algorithm: gcra, limit: 1/100s, burst: 1}\n",
		trusted: "127.0.0.0/8", jitter: 100 * limit.Second,
	}, nil)
	waits, quarters := map[string]bool{}, [4]int{}
	for i := range 100 {
		address := fmt.Sprintf("X-Weir-Address: 198.51.100.%d", i)
		s.get("/", address)
		a := s.get("/", address)
		wait, err := strconv.Atoi(a.Header.Get("Retry-After"))
		if err != nil || wait < 100 || wait > 200 {
			t.Fatalf("Retry-After %q, want 100 to 200", a.Header.Get("Retry-After"))
		}
		if ms := a.problem["retry_after_ms"].(float64); ms > float64(wait)*1000 || ms <= float64(wait-1)*1000 {
			t.Errorf("the body says %v ms, the header %d s", ms, wait)
		}
		if again := s.get("/", address).Header.Get("Retry-After"); again != a.Header.Get("Retry-After") {
			t.Errorf("asked again: %s, then %d", again, wait)
		}
		waits[a.Header.Get("Retry-After")] = true
		quarters[min(3, (wait-100)/25)]++
	}
	for _, n := range quarters {
		if n < 10 {
			t.Errorf("by quarters of the spread: %v", quarters)
		}
	}
	if len(waits) < 40 {
		t.Errorf("%d different waits of 100 callers", len(waits))
	}
}

var challenge = regexp.MustCompile(`^Bearer`)

func TestEvery401SaysWhatItWants(t *testing.T) {
	s := start(t, settings{}, nil)
	if a := s.get("/", "X-Api-Key: wk_none"); a.StatusCode != http.StatusUnauthorized || !challenge.MatchString(a.Header.Get("WWW-Authenticate")) {
		t.Errorf("%d %v", a.StatusCode, a.Header)
	}
}
