package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// script is an API that answers each connection's first request with the same bytes.
func script(t *testing.T, answer string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(conn, answer)
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return "http://" + l.Addr().String()
}

// net/http panics where a handler answers with a status below 100, which an API may well send.
func TestAnAnswerThatIsNoneIsABadGateway(t *testing.T) {
	for name, answer := range map[string]string{
		"a status of zero":            "HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n",
		"a status below 100":          "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
		"a switch that nobody wanted": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"a switch to nothing":         "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"two lengths":                 "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"no HTTP":                     "220 mail.example.com ESMTP\r\n",
		"nothing":                     "",
	} {
		s := start(t, settings{rules: manyPerHour, upstream: script(t, answer)}, nil)
		a := s.get("/")
		if a.StatusCode != 502 || a.problem["code"] != "upstream_unreachable" {
			t.Errorf("%s: %d %q", name, a.StatusCode, a.body)
		}
	}
}

// Trailers that are announced after no body: HTTP/1.1 has no room for them, HTTP/2 has.
func TestTrailersWithoutABodyAreNotBlamedOnTheAPI(t *testing.T) {
	eachWay(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Trailer.Get("X-Sum"))
	}, func(t *testing.T, s *stand, client *http.Client, url, clients, _ string) {
		for _, body := range []io.Reader{nil, strings.NewReader(""), io.MultiReader()} {
			r, err := http.NewRequest("POST", url, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Trailer = http.Header{"X-Sum": {"7"}}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			want := "7"
			if r.Body == nil || r.Body == http.NoBody {
				want = ""
			}
			if err != nil || resp.StatusCode != 200 || string(got) != want {
				t.Errorf("%T: %d %q %v", body, resp.StatusCode, got, err)
			}
		}
		s.quiet("trailers of nothing")
	})
}
