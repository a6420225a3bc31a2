package counters_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirproject/weir/origin/internal/config"
	"github.com/weirproject/weir/origin/internal/counters"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limits = `version: 1
tiers: {free: {limit: 40/1h}, paid: {limit: 400/1h}}
rules:
- {name: per-key, where: origin, by: [key], limit: 9/1h}
- {name: per-tenant, where: origin, by: [tenant], tier: true}
- {name: per-user, where: origin, by: [user], limit: 60/1h}
- {name: per-address, where: origin, by: [address], limit: 50/1h}
- {name: search, where: origin, match: {paths: [/search, "/search/**"], methods: [GET, POST]}, by: [key, endpoint], limit: 2/1h}
- {name: trial, where: origin, by: [key], limit: 1/1h, mode: shadow}
- {name: abuse, where: origin, match: {paths: [/login]}, by: [address], limit: 1/1h, penalty: {after: 1, ceiling: 2h, decay: 1h}}
- {name: costly, where: origin, match: {paths: [/costly]}, by: [key], limit: 10/1h, cost: 4, algorithm: sliding-log}
- {name: closed, where: origin, match: {paths: [/closed]}, by: [global], limit: 0/1h}
- {name: at-edge, where: edge, by: [address], algorithm: token-bucket, limit: 50/1s}
overrides:
- {rule: per-key, key-id: acme-prod, limit: 5/1h}
`

// origin is a whole process of which a test is the client and the operator.
type origin struct {
	t             *testing.T
	gateway, door string
	key           string // acme-prod, of tenant acme, tier paid
	client        *http.Client

	mu  sync.Mutex
	log bytes.Buffer
}

func (o *origin) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.Write(b)
}

// audit are the log lines of the audit so far.
func (o *origin) audit() (lines []map[string]any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range strings.Lines(o.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			o.t.Fatalf("%s: %v", line, err)
		}
		if fields["audit"] == true {
			lines = append(lines, fields)
		}
	}
	return lines
}

// files are what an origin is started from; store is more of weir.yaml.
func files(t *testing.T, store string) (dir, key string) {
	t.Helper()
	dir = t.TempDir()
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(api.Close)
	for name, content := range map[string]string{
		"weir.rules.yaml": limits, "secret": strings.Repeat("s", 32),
		"weir.yaml": "upstream: " + api.URL + "\nlisten: {gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\nkeys: weir.keys.yaml\nsecrets: {counter: [secret]}\n" + store,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := keys.Update(filepath.Join(dir, "weir.keys.yaml"), rand.Reader, func(f *keys.File) (err error) {
		key, err = f.Issue(rand.Reader, keys.Key{ID: "acme-prod", Tenant: "acme", Tier: "paid"}, time.Unix(0, 0))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, key
}

func start(t *testing.T, dir, key string) *origin {
	t.Helper()
	c, err := config.Load(filepath.Join(dir, "weir.yaml"), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{t: t, key: key, client: &http.Client{Transport: &http.Transport{}}}
	s, err := server.Open(c, slog.New(slog.NewJSONHandler(o, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		o.client.CloseIdleConnections()
	})
	o.gateway, o.door = "http://"+s.Address("gateway"), "http://"+s.Address("admin")
	return o
}

// call sends n calls with the key and tells how many passed.
func (o *origin) call(n int, method, path string) (passed int) {
	o.t.Helper()
	for range n {
		r, err := http.NewRequest(method, o.gateway+path, nil)
		if err != nil {
			o.t.Fatal(err)
		}
		r.Header.Set("x-api-key", o.key)
		resp, err := o.client.Do(r)
		if err != nil {
			o.t.Fatal(err)
		}
		resp.Body.Close()
		switch resp.StatusCode {
		case 200:
			passed++
		case 429:
		default:
			o.t.Fatalf("%s %s: %d", method, path, resp.StatusCode)
		}
	}
	return passed
}

// ask sends a request to the door. header are lines as "Name: value"; body is sent as JSON.
func (o *origin) ask(method, path string, body any, header ...string) (status int, text string) {
	o.t.Helper()
	sent, _ := json.Marshal(body)
	r, err := http.NewRequest(method, o.door+path, bytes.NewReader(sent))
	if err != nil {
		o.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	resp, err := o.client.Do(r)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.Header.Get("Content-Type") != "application/json" && resp.StatusCode != 405 {
		o.t.Fatalf("%s %s: %v, content-type %q: %s", method, path, err, resp.Header.Get("Content-Type"), b)
	}
	return resp.StatusCode, string(b)
}

func (o *origin) show(query string) (r counters.Report) {
	o.t.Helper()
	status, text := o.ask("GET", "/counters?"+query, nil)
	if status != 200 {
		o.t.Fatalf("show %s: %d %s", query, status, text)
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		o.t.Fatal(err)
	}
	return r
}

func named(r counters.Report, rule string) (found []counters.Counter) {
	for _, c := range r.Counters {
		if c.Rule == rule {
			found = append(found, c)
		}
	}
	return found
}

var acme = counters.Caller{KeyID: "acme-prod"}

func TestShowTellsEveryCounterOfACaller(t *testing.T) {
	dir, key := files(t, "")
	o := start(t, dir, key)
	if n := o.call(4, "GET", "/search"); n != 2 {
		t.Fatalf("%d of 4 calls passed at 2/1h", n)
	}
	o.call(3, "GET", "/")
	r := o.show("key-id=acme-prod&address=127.0.0.1")
	if r.Caller != (counters.Caller{KeyID: "acme-prod", Tenant: "acme", Tier: "paid", Address: "127.0.0.1"}) || r.Release.Content == "" {
		t.Errorf("%+v, %+v", r.Caller, r.Release)
	}
	hour := time.Hour.Milliseconds()
	for _, want := range []counters.Counter{
		{Rule: "search", Principal: "key=acme-prod endpoint", Method: "GET", Pattern: "/search", Limit: "2/1h", Basis: "rule", Status: counters.Refused, Quota: 2, Used: 2, DenyCached: true},
		{Rule: "per-key", Principal: "key=acme-prod", Limit: "5/1h", Basis: "override for key", Status: counters.Refused, Quota: 5, Used: 5, DenyCached: true},
		{Rule: "per-tenant", Principal: "tenant=acme", Limit: "400/1h", Basis: "tier", Status: counters.OK, Quota: 400, Used: 5, Remaining: 395},
		{Rule: "per-address", Principal: "address=127.0.0.1/32", Limit: "50/1h", Basis: "rule", Status: counters.OK, Quota: 50, Used: 5, Remaining: 45},
		{Rule: "abuse", Principal: "address=127.0.0.1/32", Limit: "1/1h", Basis: "rule", Status: counters.OK, Quota: 1, Remaining: 1},
		{Rule: "trial", Principal: "key=acme-prod", Limit: "1/1h", Basis: "rule", Status: counters.Refused, Quota: 1, Used: 1, DenyCached: true},
	} {
		found := named(r, want.Rule)
		if len(found) != 1 {
			t.Errorf("%s: %d counters, want 1", want.Rule, len(found))
			continue
		}
		got := found[0]
		if held := got.Status == counters.Refused; held != (got.FreesIn > 0 && got.FreesIn <= 2*hour) || got.ResetsIn < 0 || got.ResetsIn > 2*hour {
			t.Errorf("%s frees in %d ms, resets in %d ms", want.Rule, got.FreesIn, got.ResetsIn)
		}
		want.Mode, want.Algorithm, want.FreesIn, want.ResetsIn = "enforce", "sliding-window", got.FreesIn, got.ResetsIn
		if want.Rule == "trial" {
			want.Mode = "shadow"
		}
		if got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", want.Rule, got, want)
		}
	}
	// Sorted by what holds longest; never longest of all.
	if c := r.Counters[0]; c.Rule != "closed" || !c.Never || c.Status != counters.Refused {
		t.Errorf("first: %+v, want the one that never frees", c)
	}
	for i := 2; i < len(r.Counters); i++ {
		if r.Counters[i].FreesIn > r.Counters[i-1].FreesIn {
			t.Errorf("%s stands behind %s, which holds less long", r.Counters[i].Rule, r.Counters[i-1].Rule)
		}
	}
	// Of the search rule's endpoints GET /search alone was called.
	if r.Unused != 5 || len(named(o.show("key-id=acme-prod&all=true"), "search")) != 6 {
		t.Errorf("%d endpoints were never called, want 5 of 6", r.Unused)
	}
	if want := []counters.Other{{Rule: "per-user", By: "user"}}; !slices.Equal(r.Others, want) {
		t.Errorf("others: %v, want %v", r.Others, want)
	}
	if r = o.show("key-id=acme-prod&path=/search&method=POST"); len(named(r, "search")) != 0 || r.Unused != 1 || len(named(r, "closed")) != 0 {
		t.Errorf("a request for POST /search: %+v", r)
	}
}

// What is left may be too little for a call, whose cost the rule says.
func TestShowTellsOfACallThatCostsMore(t *testing.T) {
	dir, key := files(t, "")
	o := start(t, dir, key)
	if n := o.call(3, "GET", "/costly"); n != 2 {
		t.Fatalf("%d of 3 calls of cost 4 passed at 10/1h", n)
	}
	c := named(o.show("key-id=acme-prod"), "costly")[0]
	if hour := time.Hour.Milliseconds(); c.Status != counters.Refused || c.Remaining != 2 || c.FreesIn <= 0 || c.FreesIn > hour || !c.DenyCached {
		t.Errorf("a call of cost 4, refused with 2 left: %+v", c)
	}
}

func TestShowTellsCallersApart(t *testing.T) {
	dir, key := files(t, "")
	o := start(t, dir, key)
	o.call(2, "GET", "/")
	for query, want := range map[string]string{
		"": "closed",
		"tenant=acme&tier=free&address=::ffff:127.0.0.1": "abuse closed per-address(2) per-tenant(2)",
		"tenant=other":                      "closed per-tenant",
		"user=https://issuer||auth0|7":      "closed per-user",
		"user=https://issuer|acme|7":        "closed per-tenant(2) per-user",
		"address=[2001:db8::1]":             "abuse closed per-address",
		"address=127.0.0.1&path=/login":     "abuse per-address(2)",
		"key-id=acme-prod&path=/x&host=a.b": "per-key(2) per-tenant(2) trial(1)",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range o.show(values.Encode()).Counters {
			if c.Used > 0 {
				got = append(got, fmt.Sprintf("%s(%d)", c.Rule, c.Used))
			} else {
				got = append(got, c.Rule)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
	}
}

func TestAResetLetsACallerInAgainAndIsAudited(t *testing.T) {
	dir, key := files(t, "")
	o := start(t, dir, key)
	o.call(7, "GET", "/")
	status, text := o.ask("POST", "/counters/reset", counters.Reset{Rule: "per-key", Caller: acme, Reason: "ticket 4711", By: "alice"})
	var done counters.Done
	if err := json.Unmarshal([]byte(text), &done); err != nil || status != 200 || done.Before.Rule != "per-key" || done.Before.Used != 5 || done.Before.Status != counters.Refused {
		t.Fatalf("%d %s, %v", status, text, err)
	}
	if c := named(o.show("key-id=acme-prod"), "per-key")[0]; c.Used != 0 || c.Status != counters.OK || c.DenyCached {
		t.Errorf("after the reset: %+v", c)
	}
	if c := named(o.show("key-id=acme-prod"), "per-tenant")[0]; c.Used != 5 {
		t.Errorf("another counter of the caller: %+v", c)
	}
	if n := o.call(7, "GET", "/"); n != 5 {
		t.Errorf("%d calls passed after the reset, want 5", n)
	}
	lines := o.audit()
	if len(lines) != 1 {
		t.Fatalf("%d lines for the audit, want 1", len(lines))
	}
	for field, want := range map[string]any{"action": "counters.reset", "rule": "per-key", "reason": "ticket 4711", "author": "alice"} {
		if lines[0][field] != want {
			t.Errorf("audit: %s is %v, want %v", field, lines[0][field], want)
		}
	}
	if hash, _ := lines[0]["principal_hash"].(string); len(hash) != 22 {
		t.Errorf("audit: principal_hash is %v", lines[0]["principal_hash"])
	}
	for _, value := range lines[0] {
		if text := fmt.Sprint(value); strings.Contains(text, "acme") || strings.Contains(text, o.key) {
			t.Errorf("audit: %q names the principal", text)
		}
	}
}

func TestAResetOfOneEndpointLeavesTheOthers(t *testing.T) {
	dir, key := files(t, "")
	o := start(t, dir, key)
	o.call(2, "GET", "/search")
	o.call(2, "POST", "/search/x")
	status, text := o.ask("POST", "/counters/reset", counters.Reset{Rule: "search", Caller: acme, Method: "POST", Pattern: "/search/**", Reason: "r", By: "b"})
	if status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	if found := named(o.show("key-id=acme-prod"), "search"); len(found) != 1 || found[0].Method != "GET" || found[0].Used != 2 {
		t.Errorf("%+v", found)
	}
}

func TestAPenaltyIsShownAndReset(t *testing.T) {
	dir, key := files(t, "")
	o := start(t, dir, key)
	o.call(4, "GET", "/login")
	c := named(o.show("address=127.0.0.1"), "abuse")[0]
	// The third call was refused for the ceiling.
	if hour := time.Hour.Milliseconds(); !c.Penalised || c.Status != counters.Refused || c.FreesIn <= 2*hour-time.Minute.Milliseconds() || c.FreesIn > 2*hour {
		t.Fatalf("%+v", c)
	}
	status, text := o.ask("POST", "/counters/reset", counters.Reset{Rule: "abuse", Caller: counters.Caller{Address: "127.0.0.1"}, Reason: "r", By: "b"})
	if status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	if c := named(o.show("address=127.0.0.1"), "abuse")[0]; c.Penalised || c.Status != counters.OK {
		t.Errorf("after the reset: %+v", c)
	}
	if n := o.call(2, "GET", "/login"); n != 1 {
		t.Errorf("%d of 2 passed after the reset, want 1", n)
	}
}

func TestBadQuestionsAreAnsweredByWhatIsAllowed(t *testing.T) {
	dir, key := files(t, "")
	o := start(t, dir, key)
	for query, want := range map[string]struct {
		status int
		text   string
	}{
		"key-id=nobody":              {404, "key-id nobody: no key of this id is in force"},
		"key-id=" + key:              {400, "key-id is a key itself: want its id"},
		"key-id=acme-prod&user=a||b": {400, "are several principals: want one of them"},
		"key-id=acme-prod&tenant=a":  {400, "are several principals"},
		"key-id=":                    {400, "key-id is empty"},
		"key-id=a&key-id=b":          {400, "key-id is given 2 times"},
		"user=alice":                 {400, "want issuer|tenant|subject"},
		"tier=paid":                  {400, "tier is for a user or a tenant"},
		"address=localhost":          {400, `address is \"localhost\": want an IP address`},
		"method=GET":                 {400, "path is missing"},
		"path=search":                {400, "want one that begins with /"},
		"all=yes":                    {400, "want true or false"},
		"keyid=x":                    {400, `query has \"keyid\": want some of key-id, user, tenant, tier, address, method, path, host, all`},
		"%zz":                        {400, "query cannot be read"},
	} {
		status, text := o.ask("GET", "/counters?"+query, nil)
		if status != want.status || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %s, want %d %s", query, status, text, want.status, want.text)
		}
		if strings.Contains(text, key) {
			t.Errorf("%s: the answer tells the key", query)
		}
	}
	good := counters.Reset{Rule: "per-key", Caller: acme, Reason: "r", By: "b"}
	for name, c := range map[string]struct {
		spoil  func(*counters.Reset)
		status int
		text   string
	}{
		"unknown rule":    {func(r *counters.Reset) { r.Rule = "per-kay" }, 404, `"rules": [` + "\n    \"per-key\",\n    \"per-tenant\",\n    \"per-user\""},
		"edge rule":       {func(r *counters.Reset) { r.Rule = "at-edge" }, 404, "no such rule at this origin"},
		"no rule":         {func(r *counters.Reset) { r.Rule = "" }, 400, "rule is missing"},
		"no reason":       {func(r *counters.Reset) { r.Reason = " " }, 400, "reason is missing: want why it is reset"},
		"no author":       {func(r *counters.Reset) { r.By = "" }, 400, "by is missing: want who resets it"},
		"two lines":       {func(r *counters.Reset) { r.Reason = "a\nb" }, 400, "reason is not one line"},
		"a long reason":   {func(r *counters.Reset) { r.Reason = strings.Repeat("x", 501) }, 400, "at most 500 bytes"},
		"a huge reason":   {func(r *counters.Reset) { r.Reason = strings.Repeat("x", 70_000) }, 400, "body cannot be read"},
		"two principals":  {func(r *counters.Reset) { r.Tenant = "acme" }, 400, "are several principals"},
		"not its caller":  {func(r *counters.Reset) { r.Rule = "per-user" }, 409, "rule per-user counts by user: want the caller told by that"},
		"no endpoint":     {func(r *counters.Reset) { r.Rule = "search" }, 409, "counts each endpoint apart: want the method and the pattern of one, as GET /search"},
		"no such":         {func(r *counters.Reset) { r.Rule, r.Method, r.Pattern = "search", "PUT", "/search" }, 409, `"POST /search/**"`},
		"endpoint of key": {func(r *counters.Reset) { r.Method = "GET" }, 400, "are for rules by endpoint"},
	} {
		r := good
		c.spoil(&r)
		if status, text := o.ask("POST", "/counters/reset", r); status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %s, want %d %s", name, status, text, c.status, c.text)
		}
	}
	for name, body := range map[string]any{"no object": "x", "unknown field": map[string]string{"rule": "per-key", "key": "x"}} {
		if status, text := o.ask("POST", "/counters/reset", body); status != 400 || !strings.Contains(text, "body cannot be read") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if lines := o.audit(); len(lines) != 0 {
		t.Errorf("an audit of what was not done: %v", lines)
	}
}

// A browser that is on the operator's machine, or reaches it by a tunnel, shows pages of others.
func TestAPageOfAnotherSiteCannotReset(t *testing.T) {
	dir, key := files(t, "")
	o := start(t, dir, key)
	o.call(5, "GET", "/")
	want := counters.Reset{Rule: "per-key", Caller: acme, Reason: "r", By: "b"}
	for name, c := range map[string]struct {
		status int
		header string
	}{
		"another origin":       {403, "Origin: https://example.com"},
		"no origin to tell":    {403, "Origin: null"},
		"another site":         {403, "Sec-Fetch-Site: cross-site"},
		"a neighbour":          {403, "Sec-Fetch-Site: same-site"},
		"a form":               {415, "Content-Type: text/plain"},
		"a form's own":         {415, "Content-Type: application/x-www-form-urlencoded"},
		"no type":              {415, "Content-Type: "},
		"a name for loopback":  {403, "Host: weir.example.com"},
		"a name with its port": {403, "Host: weir.example.com:8084"},
	} {
		if status, text := o.ask("POST", "/counters/reset", want, c.header); status != c.status || !strings.Contains(text, "error") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if status, _ := o.ask("GET", "/counters?key-id=acme-prod", nil, "Host: weir.example.com"); status != 403 {
		t.Errorf("counters told to a page by another name: %d", status)
	}
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		if status, _ := o.ask(method, "/counters/reset", want); status != 405 {
			t.Errorf("%s: %d, want 405", method, status)
		}
	}
	if c := named(o.show("key-id=acme-prod"), "per-key")[0]; c.Used != 5 {
		t.Errorf("it was reset: %+v", c)
	}
	for _, header := range []string{"Host: localhost", "Host: [::1]:8084", "Content-Type: application/json; charset=utf-8"} {
		if status, text := o.ask("POST", "/counters/reset", want, header); status != 200 {
			t.Errorf("%s: %d %s", header, status, text)
		}
	}
}

// A caller may have more counters than are told at once: one that is named is found all the same.
func TestAResetFindsOneOfVeryManyCounters(t *testing.T) {
	dir, key := files(t, "")
	var rules strings.Builder
	rules.WriteString(limits[:strings.Index(limits, "overrides")])
	for i := range 1001 {
		fmt.Fprintf(&rules, "- {name: r%d, where: origin, by: [key, endpoint], limit: 3/1h, match: {paths: [/a%d]}}\n", i, i)
	}
	if err := os.WriteFile(filepath.Join(dir, "weir.rules.yaml"), []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	o := start(t, dir, key)
	if status, text := o.ask("GET", "/counters?key-id=acme-prod", nil); status != 400 || !strings.Contains(text, "want a method and a path") {
		t.Fatalf("%d %s", status, text)
	}
	o.call(4, "GET", "/a7")
	for _, one := range []counters.Reset{{Rule: "per-key"}, {Rule: "r7", Method: "GET", Pattern: "/a7"}} {
		one.Caller, one.Reason, one.By = acme, "r", "b"
		if status, text := o.ask("POST", "/counters/reset", one); status != 200 || !strings.Contains(text, `"used": 3`) {
			t.Errorf("%s: %d %.300s", one.Rule, status, text)
		}
	}
	status, text := o.ask("POST", "/counters/reset", counters.Reset{Rule: "r7", Caller: acme, Method: "GET", Pattern: "/a8", Reason: "r", By: "b"})
	if status != 409 || !strings.Contains(text, "GET /a7") {
		t.Errorf("%d %s", status, text)
	}
	if n := o.call(4, "GET", "/a7"); n != 3 {
		t.Errorf("%d of 4 calls after the reset", n)
	}
}
