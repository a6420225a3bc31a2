package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// An API that takes too long is not one that is not there: clients may ask again elsewhere, operators look elsewhere.
func TestAnAPIThatIsTooSlowIsAGatewayTimeout(t *testing.T) {
	for _, apis := range []string{"HTTP/1.1", "HTTP/2.0"} {
		release := make(chan struct{})
		api := func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-release
			}
		}
		c := settings{rules: manyPerHour, timeout: 50 * time.Millisecond}
		var s *stand
		if apis == "HTTP/1.1" {
			s = start(t, c, api)
		} else {
			url, _, authority := secure(t, http.HandlerFunc(api))
			c.upstream = url
			s = start(t, c, nil)
			s.gateway.TrustAPI(authority.Pool)
		}
		a := s.get("/slow")
		close(release)
		if a.StatusCode != 504 || a.problem["code"] != "upstream_timeout" || a.Header.Get("X-Ratelimit-Remaining") != "999" {
			t.Errorf("%s: %d %v %v", apis, a.StatusCode, a.Header, a.problem)
		}
		if n := testutil.ToFloat64(s.metrics.Upstream.WithLabelValues("timeout")); n != 1 {
			t.Errorf("%s: %v counted", apis, n)
		}
		s.quiet(apis)
	}
}

func TestABadRequestNamesItsField(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, nil)
	for field, headers := range map[string][]string{
		"x_odd":   {"X_Odd: 1"},
		"upgrade": {"Connection: Upgrade", "Upgrade: é"},
	} {
		if a := s.get("/", headers...); a.StatusCode != 400 || a.problem["field"] != field {
			t.Errorf("%s: %d %v", field, a.StatusCode, a.problem)
		}
	}
	for field, request := range map[string]string{
		"method": "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n",
		"target": "GET mailto:x HTTP/1.1\r\nHost: h\r\n\r\n",
		"host":   "GET http://%ff/ HTTP/1.1\r\nHost: h\r\n\r\n",
		"body":   "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
	} {
		if text := s.whole(request); !strings.HasPrefix(text, "HTTP/1.1 400") || !strings.Contains(text, `"field":"`+field+`"`) {
			t.Errorf("%s: %s", field, text)
		}
	}
}

// A client that begins a body and sends no more of it would keep its place among the requests in flight for ever.
func TestABodyThatStallsIsGivenUp(t *testing.T) {
	s := start(t, settings{rules: manyPerHour, stall: 20 * time.Millisecond, inFlight: 1}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})
	for name, client := range map[string]*http.Client{"HTTP/1.1": s.client, "HTTP/2": h2cClient(t)} {
		url := s.url
		if name == "HTTP/2" {
			url = h2c(t, s.gateway)
		}
		begun, rest := io.Pipe()
		go func() { _, _ = rest.Write([]byte("some")) }()
		resp, err := client.Post(url, "text/plain", begun)
		if err != nil {
			t.Fatal(name, err)
		}
		if resp.Body.Close(); resp.StatusCode != 400 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
		rest.Close()
		s.quiet(name)
		// A connection that goes on after a body is not cut off by what was left of its deadline.
		for range 3 {
			resp, err := client.Post(url, "text/plain", strings.NewReader("whole"))
			if err != nil {
				t.Fatal(name, err)
			}
			if resp.Body.Close(); resp.StatusCode != 200 {
				t.Errorf("%s, afterwards: %d", name, resp.StatusCode)
			}
		}
	}
}

// A body is given up for its pauses, not for its length; and once it is whole, the API may take its time.
func TestABodyThatGoesOnIsNotGivenUp(t *testing.T) {
	const stall = 200 * time.Millisecond
	s := start(t, settings{rules: manyPerHour, stall: stall}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		<-time.After(2 * stall)
		_, _ = w.Write(b)
	})
	begun, rest := io.Pipe()
	go func() {
		for range 6 {
			_, _ = rest.Write([]byte("x"))
			<-time.After(stall / 3)
		}
		rest.Close()
	}()
	resp, err := s.client.Post(s.url, "text/plain", begun)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(b) != "xxxxxx" {
		t.Errorf("%d %q %v", resp.StatusCode, b, err)
	}
}
