package gateway_test

import (
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
