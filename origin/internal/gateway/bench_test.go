package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/gateway"
)

// bare is what a gateway costs at least: the proxy that it is built on, which keeps as many connections to the API and as
// many buffers.
func bare(tb testing.TB, api string) http.Handler {
	tb.Helper()
	target, err := url.Parse(api)
	if err != nil {
		tb.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	tb.Cleanup(transport.CloseIdleConnections)
	return &httputil.ReverseProxy{Transport: transport, BufferPool: gateway.NewBuffers(), Rewrite: func(pr *httputil.ProxyRequest) {
		pr.SetURL(target)
		pr.Out.Host = pr.In.Host
		pr.SetXForwarded()
	}}
}

// ruleCounts are rule sets by how many counters of theirs a call is charged to.
var ruleCounts = map[int]string{
	1: "version: 1\nrules:\n- {name: a, where: origin, by: [key], limit: 1000000000/1h}\n",
	3: "version: 1\nrules:\n- {name: a, where: origin, by: [key], limit: 1000000000/1h}\n- {name: b, where: origin, by: [key, endpoint], match: {paths: [/search]}, limit: 1000000000/1m}\n" +
		"- {name: c, where: origin, by: [global], limit: 1000000000/1s}\n",
}

// line is one client on one connection.
type line struct {
	conn    net.Conn
	r       *bufio.Reader
	request string
}

func newLine(tb testing.TB, address, request string) *line {
	tb.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return &line{conn, bufio.NewReader(conn), request}
}

func (l *line) call(tb testing.TB) time.Duration {
	began := time.Now()
	_, _ = io.WriteString(l.conn, l.request)
	resp, err := http.ReadResponse(l.r, nil)
	if err != nil || resp.StatusCode != 200 {
		tb.Fatalf("%v, %v", resp, err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return time.Since(began)
}

// BenchmarkGateway tells how much longer a client waits than behind the bare proxy: calls through both in turn, so that
// what else the machine does slows both, and the ratio of their medians.
func BenchmarkGateway(b *testing.B) {
	for _, rules := range []int{1, 3} {
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"hello":"world"}`))
			}))
			b.Cleanup(api.Close)
			s := newStand(b, settings{rules: ruleCounts[rules], upstream: api.URL})
			front, beside := httptest.NewServer(s.gateway), httptest.NewServer(bare(b, api.URL))
			b.Cleanup(front.Close)
			b.Cleanup(beside.Close)
			request := "GET /search?q=1 HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: bench\r\nAccept: */*\r\nX-Api-Key: " + s.key + "\r\n\r\n"
			through, past := newLine(b, front.URL, request), newLine(b, beside.URL, request)
			for range 100 {
				through.call(b)
				past.call(b)
			}
			var ours, theirs []time.Duration
			for b.Loop() {
				ours = append(ours, through.call(b))
				theirs = append(theirs, past.call(b))
			}
			p50, bareP50 := median(ours), median(theirs)
			b.ReportMetric(0, "ns/op") // of both together: says nothing
			b.ReportMetric(float64(p50), "p50-ns")
			b.ReportMetric(float64(bareP50), "bare-p50-ns")
			b.ReportMetric(float64(p50)/float64(bareP50), "ratio")
		})
	}
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
