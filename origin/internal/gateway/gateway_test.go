package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/weirproject/weir/origin/internal/gateway"
	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/telemetry"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stand is a gateway on a real port in front of a real API.
type stand struct {
	t       testing.TB
	url     string
	gateway *gateway.Gateway // behind url
	limiter *limiter.Limiter // of the gateway
	key     string           // issued
	issued  *keys.Key        // whose key it is
	metrics *telemetry.Metrics
	store   *faulty
	logged  *lockedBuilder
	client  *http.Client
	calls   chan *http.Request // what the API saw
}

// faulty is a store that fails on command.
type faulty struct {
	*memory.Store
	mu  sync.Mutex
	err error
}

func (f *faulty) Take(ctx context.Context, c *limiter.Call) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	return f.Store.Take(ctx, c)
}

func (f *faulty) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const twoPerHour = "version: 1\nrules:\n- {name: per-key, where: origin, by: [key], limit: 2/1h}\n"

type settings struct {
	rules    string
	trusted  string // networks whose word counts
	inFlight int
	tunnels  int
	held     int
	timeout  time.Duration
	stall    time.Duration
	jitter   limit.Micros
	upstream string // instead of the API
}

func start(t *testing.T, s settings, api http.HandlerFunc) *stand {
	t.Helper()
	if api == nil {
		api = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }
	}
	calls := make(chan *http.Request, 1000)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls <- r
		api(w, r)
	}))
	t.Cleanup(upstream.Close)
	if s.upstream == "" {
		s.upstream = upstream.URL
	}
	st := newStand(t, s)
	st.calls = calls
	server := httptest.NewUnstartedServer(st.gateway)
	server.Config.DisableGeneralOptionsHandler = true // as in a process
	server.Start()
	t.Cleanup(server.Close)
	st.url = server.URL
	return st
}

// newStand is a gateway without a port, in front of what is there already.
func newStand(t testing.TB, s settings) *stand {
	t.Helper()
	st := &stand{t: t, metrics: telemetry.New(), store: &faulty{Store: memory.New(1000, nil)}, logged: &lockedBuilder{}, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(st.client.CloseIdleConnections)
	target, err := url.Parse(s.upstream)
	if err != nil {
		t.Fatal(err)
	}
	if s.rules == "" {
		s.rules = twoPerHour
	}
	release, err := rules.Parse("rules", []byte(s.rules))
	if err != nil {
		t.Fatal(err)
	}
	file, err := keys.New(zeros{})
	if err != nil {
		t.Fatal(err)
	}
	if st.key, err = file.Issue(zeros{}, keys.Key{ID: "acme"}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	table := file.Table()
	st.issued = table.Lookup([]byte(st.key))
	log := slog.New(slog.NewTextHandler(st.logged, nil))
	st.limiter = limiter.New(limiter.Options{Store: st.store, Fallback: st.store.Store, Secret: make([]byte, 32),
		Now: func() limit.Micros { return 1000 * limit.Hour }, Metrics: st.metrics, Log: log, RetryJitter: s.jitter}, release)
	g := gateway.New(gateway.Options{
		Upstream: target,
		Resolver: &identity.Resolver{Keys: func() *keys.Table { return table }, Believes: func(p netip.Addr) bool {
			return s.trusted != "" && netip.MustParsePrefix(s.trusted).Contains(p)
		}},
		Limiter: st.limiter, Metrics: st.metrics, Log: log,
		InFlight: s.inFlight, Tunnels: s.tunnels, Held: s.held, UpstreamTimeout: s.timeout, StallTime: s.stall,
	})
	t.Cleanup(g.Close)
	st.gateway = g
	return st
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// answer is a response with its body read.
type answer struct {
	*http.Response
	body    string
	problem map[string]any
}

// get sends headers as lines, so that one name may stand twice.
func (s *stand) get(path string, headers ...string) answer {
	s.t.Helper()
	r, err := http.NewRequest("GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return s.do(r)
}

func (s *stand) do(r *http.Request) answer {
	s.t.Helper()
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	a := answer{Response: resp, body: string(body)}
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		if err := json.Unmarshal(body, &a.problem); err != nil {
			s.t.Fatalf("problem body %q: %v", body, err)
		}
	}
	return a
}

func (s *stand) reached() int { return len(s.calls) }

func TestAdmittedCallsPassWithTheFieldsOfTheirLimit(t *testing.T) {
	s := start(t, settings{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Remaining", "the API's own")
		w.Header().Set("X-Api", "1")
		fmt.Fprint(w, "hello")
	})
	a := s.get("/x?y=1", "X-Api-Key: "+s.key)
	if a.StatusCode != 200 || a.body != "hello" || a.Header.Get("X-Api") != "1" {
		t.Errorf("%d %v %q", a.StatusCode, a.Header, a.body)
	}
	for name, want := range map[string]string{"X-Ratelimit-Remaining": "1", "Ratelimit": `"per-key";r=1;t=7200`, "Ratelimit-Policy": `"per-key";q=2;w=3600`, "Retry-After": ""} {
		if got := strings.Join(a.Header.Values(name), "|"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if r := <-s.calls; r.URL.String() != "/x?y=1" || r.Header.Get("X-Api-Key") != s.key {
		t.Errorf("the API saw %s %v", r.URL, r.Header)
	}
}

func TestCallsOverTheLimitAreToldWhenToComeBack(t *testing.T) {
	s := start(t, settings{}, nil)
	for range 2 {
		s.get("/", "X-Api-Key: "+s.key)
	}
	a := s.get("/", "X-Api-Key: "+s.key)
	if a.StatusCode != 429 || a.problem["code"] != "rate_limited" || a.problem["rule"] != "per-key" || a.problem["where"] != "origin" || a.Header.Get("Retry-After") != "5400" {
		t.Errorf("%d %v %v", a.StatusCode, a.Header, a.problem)
	}
	if s.reached() != 2 {
		t.Errorf("the API was called %d times, want 2", s.reached())
	}
}

func TestRulesThatHideTellNothing(t *testing.T) {
	s := start(t, settings{rules: "version: 1\nrules:\n- {name: abuse, where: origin, by: [address], limit: 1/1h, headers: none}\n"}, nil)
	s.get("/")
	a := s.get("/")
	if a.StatusCode != 429 || a.problem["rule"] != nil || a.problem["retry_after_ms"] != nil {
		t.Errorf("%d %v", a.StatusCode, a.problem)
	}
	for name := range a.Header {
		if strings.Contains(strings.ToLower(name), "ratelimit") || name == "Retry-After" {
			t.Errorf("told %s: %s", name, a.Header.Get(name))
		}
	}
}

// Case 21, as far as it reaches the origin.
func TestEveryOddCredentialGetsOneClearAnswer(t *testing.T) {
	s := start(t, settings{rules: "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 1000/1h}\n"}, nil)
	forged, err := keyfilter.Format{}.New(ones{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		headers []string
		status  int
		code    string
	}{
		"none":                       {nil, 200, ""},
		"issued":                     {[]string{"X-Api-Key: " + s.key}, 200, ""},
		"issued, header in capitals": {[]string{"X-API-KEY: " + s.key}, 200, ""},
		"issued, as a bearer":        {[]string{"Authorization: Bearer " + s.key}, 200, ""},
		"a user's token":             {[]string{"Authorization: Bearer eyJhbGciOi.x.y"}, 200, ""},
		"forged":                     {[]string{"X-Api-Key: " + forged}, 401, "key_unknown"},
		"forged, as a bearer":        {[]string{"Authorization: bearer " + forged}, 401, "key_unknown"},
		"empty":                      {[]string{"X-Api-Key: "}, 401, "key_malformed"},
		"spaces within":              {[]string{"X-Api-Key: " + s.key[:9] + " " + s.key[9:]}, 401, "key_malformed"},
		"64 kB":                      {[]string{"X-Api-Key: " + strings.Repeat("k", 64<<10)}, 401, "key_malformed"},
		"two, one issued":            {[]string{"X-Api-Key: " + s.key, "X-Api-Key: " + forged}, 400, "key_conflict"},
		"two in one line":            {[]string{"X-Api-Key: " + s.key + ", " + forged}, 400, "key_conflict"},
		"header and bearer":          {[]string{"X-Api-Key: " + s.key, "Authorization: Bearer " + forged}, 400, "key_conflict"},
	} {
		before := s.reached()
		a := s.get("/?api_key="+forged, c.headers...)
		if a.StatusCode != c.status || c.code != "" && a.problem["code"] != c.code {
			t.Errorf("%s: %d %v, want %d %s", name, a.StatusCode, a.problem, c.status, c.code)
		}
		if reached := s.reached() - before; (reached == 1) != (c.status == 200) {
			t.Errorf("%s: the API was called %d times", name, reached)
		}
		if c.status == 401 && a.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: 401 without WWW-Authenticate", name)
		}
	}
	if n := testutil.ToFloat64(s.metrics.KeysRejected.WithLabelValues("key_conflict")); n != 3 {
		t.Errorf("%v conflicts counted, want 3", n)
	}
	if strings.Contains(s.logged.String(), s.key) {
		t.Error("a key stands in the log")
	}
}

type ones struct{}

func (ones) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 1
	}
	return len(b), nil
}

// Case 23.
func TestNobodyButWeirSaysWhatWeirSays(t *testing.T) {
	api := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Weir-Hint", "v1;rule=r")
		w.Header()["x-weir-odd"] = []string{"1"}
	}
	for _, trusted := range []string{"", "127.0.0.0/8"} {
		s := start(t, settings{trusted: trusted}, api)
		a := s.get("/", "X-Weir-Address: 198.51.100.1", "x-weir-class: valid", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https", "X-Forwarded-Host: h", "X-User-Id: root")
		for name := range a.Header {
			if strings.HasPrefix(strings.ToLower(name), "x-weir") {
				t.Errorf("the client sees %s", name)
			}
		}
		r := <-s.calls
		for name := range r.Header {
			if strings.HasPrefix(strings.ToLower(name), "x-weir") {
				t.Errorf("the API sees %s", name)
			}
		}
		want := map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http"}
		if trusted != "" {
			want = map[string]string{"X-Forwarded-For": "203.0.113.9, 127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "h"}
		}
		for name, value := range want {
			if got := strings.Join(r.Header.Values(name), "|"); got != value {
				t.Errorf("trusted %q: %s is %q, want %q", trusted, name, got, value)
			}
		}
	}
}

func TestAnAddressIsBelievedFromAnEdgeOnly(t *testing.T) {
	rules := "version: 1\nrules:\n- {name: r, where: origin, by: [address], limit: 1/1h}\n"
	for trusted, want := range map[string]int{"": 1, "127.0.0.0/8": 20} {
		s := start(t, settings{rules: rules, trusted: trusted}, nil)
		passed := 0
		for i := range 20 {
			if s.get("/", fmt.Sprintf("X-Weir-Address: 198.51.100.%d", i)).StatusCode == 200 {
				passed++
			}
		}
		if passed != want {
			t.Errorf("trusted %q: 20 addresses got %d calls, want %d", trusted, passed, want)
		}
	}
}

func TestAnUnreachableAPIIsABadGatewayToldOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s := start(t, settings{upstream: "http://" + l.Addr().String()}, nil)
	for range 5 {
		if a := s.get("/?secret=1"); a.StatusCode != 502 || a.problem["code"] != "upstream_unreachable" {
			t.Errorf("%d %v", a.StatusCode, a.problem)
		}
	}
	if n := strings.Count(s.logged.String(), "does not answer"); n != 1 || strings.Contains(s.logged.String(), "secret") {
		t.Errorf("%d lines:\n%s", n, s.logged)
	}
}

func TestWithoutAStoreEachRuleAnswersByItsFailureMode(t *testing.T) {
	s := start(t, settings{rules: "version: 1\nrules:\n- {name: a, where: origin, by: [address], limit: 5/1h, on-store-failure: closed, match: {paths: [/closed]}}\n- {name: b, where: origin, by: [address], limit: 5/1h, match: {paths: [/]}}\n" +
		"- {name: c, where: origin, by: [address], limit: 5/1h, on-store-failure: open, match: {paths: [/open]}}\n" +
		"- {name: d, where: origin, by: [address], limit: 5/1h, on-store-failure: open, headers: none, match: {paths: [/hidden]}}\n"}, nil)
	s.store.fail(&limiter.StoreError{Reason: "deadline", Err: errors.New("late")})
	if a := s.get("/closed"); a.StatusCode != 503 || a.problem["code"] != "limiter_unavailable" || a.Header.Get("Retry-After") != "1" {
		t.Errorf("closed: %d %v %v", a.StatusCode, a.Header, a.problem)
	}
	if a := s.get("/"); a.StatusCode != 200 || a.Header.Get("X-Ratelimit-Degraded") != "true" || a.Header.Get("X-Ratelimit-Remaining") != "4" {
		t.Errorf("local: %d %v", a.StatusCode, a.Header)
	}
	if a := s.get("/open"); a.StatusCode != 200 || a.Header.Get("X-Ratelimit-Degraded") != "true" || a.Header.Get("X-Ratelimit-Limit") != "" {
		t.Errorf("open: %d %v", a.StatusCode, a.Header)
	}
	if a := s.get("/hidden"); a.StatusCode != 200 || a.Header.Get("X-Ratelimit-Degraded") != "" {
		t.Errorf("open, without headers: %d %v", a.StatusCode, a.Header)
	}
	s.store.fail(nil)
	if a := s.get("/"); a.StatusCode != 200 || a.Header.Get("X-Ratelimit-Degraded") != "" {
		t.Errorf("recovered: %d %v", a.StatusCode, a.Header)
	}
}

// That a rule was answered without its counter is told by that rule's headers alone: also where it shows no numbers, since it
// let the call pass uncounted, and not where it is to tell nothing.
func TestADegradedAnswerIsMarkedAsItsRuleShowsItself(t *testing.T) {
	for _, test := range []struct {
		rules         string
		status        int
		marked, shown bool
	}{
		{"{mode: open, headers: full}", 200, true, false},
		{"{mode: open, headers: none}", 200, false, false},
		{"{mode: open, headers: retry-only}", 200, false, false},
		{"{mode: open, headers: full} {mode: local, headers: none}", 200, true, false},
		{"{mode: local, headers: none} {mode: local, headers: full}", 200, true, true},
		{"{mode: local, headers: none} {mode: local, headers: retry-only}", 200, false, false},
		{"{mode: closed, headers: none} {mode: local, headers: full}", 503, false, false},
		{"{mode: closed, headers: full} {mode: open, headers: none}", 503, true, true},
	} {
		text := "version: 1\nrules:\n"
		for i, r := range strings.SplitAfter(test.rules, "} ") {
			r = strings.NewReplacer("{mode:", fmt.Sprintf("{name: r%d, where: origin, by: [%s], limit: 5/1h, on-store-failure:", i, []string{"address", "global"}[i])).Replace(r)
			text += "- " + r + "\n"
		}
		s := start(t, settings{rules: text}, nil)
		s.store.fail(&limiter.StoreError{Reason: "deadline", Err: errors.New("late")})
		a := s.get("/")
		if a.StatusCode != test.status || (a.Header.Get("X-Ratelimit-Degraded") != "") != test.marked || (a.Header.Get("X-Ratelimit-Limit") != "") != test.shown {
			t.Errorf("%s: %d %v", test.rules, a.StatusCode, a.Header)
		}
	}
}

func TestMoreThanTheProcessCanHoldIsOverload(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s := start(t, settings{inFlight: 1}, func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	})
	done := make(chan int)
	go func() { done <- s.get("/").StatusCode }()
	<-entered
	if a := s.get("/"); a.StatusCode != 503 || a.problem["code"] != "overloaded" || a.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %v %v", a.StatusCode, a.Header, a.problem)
	}
	close(leave)
	if status := <-done; status != 200 {
		t.Errorf("the request in flight: %d", status)
	}
	if n := testutil.ToFloat64(s.metrics.Overloaded); n != 1 {
		t.Errorf("%v counted", n)
	}
}

// raw sends bytes and reads the status line, for requests that no client library would send.
func (s *stand) raw(request string) string {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, request)
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		s.t.Errorf("%q: %v", request, err)
	}
	return strings.TrimSpace(line)
}

// whole sends bytes and reads all that comes back, until the gateway closes.
func (s *stand) whole(request string) string {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	fmt.Fprint(conn, strings.Replace(request, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
	b, err := io.ReadAll(conn)
	if err != nil {
		s.t.Errorf("%q: %v after %q", request, err, b)
	}
	return string(b)
}

func TestRequestsThatMakeNoSenseAreBadRequests(t *testing.T) {
	s := start(t, settings{rules: "version: 1\nrules:\n- {name: r, where: origin, by: [address], limit: 1000/1h}\n"}, nil)
	for request, status := range map[string]string{
		"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n":      "400",
		"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n":                                  "400",
		"GET mailto:x HTTP/1.1\r\nHost: h\r\n\r\n":                               "400",
		"GET / HTTP/1.1\r\n\r\n":                                                 "400",
		"GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n":                                   "400",
		"GET http://other/x HTTP/1.1\r\nHost: h\r\n\r\n":                         "200",
		"GET / HTTP/1.1\r\nHost: h\r\nX_Weir_Address: 192.0.2.1\r\n\r\n":         "400",
		"G\x00T / HTTP/1.1\r\nHost: h\r\n\r\n":                                   "400",
		"GET /" + strings.Repeat("a/../", 2000) + " HTTP/1.1\r\nHost: h\r\n\r\n": "200",
	} {
		if line := s.raw(request); !strings.HasPrefix(line, "HTTP/1.1 "+status) {
			t.Errorf("%.60q: %s, want %s", request, line, status)
		}
	}
}

func TestNoSpellingOfAPathDodgesItsRule(t *testing.T) {
	s := start(t, settings{rules: "version: 1\nrules:\n- {name: r, where: origin, by: [endpoint], match: {paths: [/search]}, limit: 1/1h}\n"}, nil)
	s.get("/search")
	for _, path := range []string{"/search", "//search", "/x/../search", "/%73earch", "/search/", "/search?a=b", "/./search", "/search;x=1", "/x%2f..%2fsearch"} {
		if line := s.raw("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n"); !strings.HasPrefix(line, "HTTP/1.1 429") {
			t.Errorf("%s: %s", path, line)
		}
	}
}

func TestAnUpgradedConnectionPasses(t *testing.T) {
	s := start(t, settings{}, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		fmt.Fprint(conn, "echo "+line)
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v %v", resp, err)
	}
	fmt.Fprint(conn, "ping\n")
	if line, err := r.ReadString('\n'); line != "echo ping\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestAStreamIsPassedOnAsItComes(t *testing.T) {
	more := make(chan struct{})
	s := start(t, settings{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprintln(w, "first")
		w.(http.Flusher).Flush()
		<-more
		fmt.Fprintln(w, "second")
		w.Header().Set("X-Sum", "2")
	})
	resp, err := s.client.Get(s.url + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	if line, err := r.ReadString('\n'); line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	close(more)
	if line, err := r.ReadString('\n'); line != "second\n" {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil || resp.Trailer.Get("X-Sum") != "2" {
		t.Errorf("trailer %v, %v", resp.Trailer, err)
	}
}
