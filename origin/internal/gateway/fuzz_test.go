package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// rawSeeds are what clients have been seen to send, and what they might.
var rawSeeds = []string{
	"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET / HTTP/1.0\r\n\r\n",
	"GET /a?b=1;c=%zz&\xff HTTP/1.1\r\nHost: h\r\nX-Api-Key: wk_1\r\nAuthorization: Bearer a.b.c\r\n\r\n",
	"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-Weir-Class, X_Y\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-Weir-Class: valid\r\nX-Api-Key: k\r\n\r\n",
	"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: a b, \xc3\xa9\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo",
	"GET / HTTP/1.1\r\nHost: h\r\nExpect: something\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, X-Weir-Address\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nX-Weir-Address: 1.2.3.4\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c, \xff\r\nHTTP2-Settings: AAMAAABkAARAAAAA\r\n\r\n",
	"GET http://%ff/ HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET http://\xc3\xa9/ HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET //h/../%2e%2e/%00/%zz HTTP/1.1\r\nHost: h:99999\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nx-weir-ADDRESS: 1.2.3.4\r\nX-WEIR-CLASS: valid\r\nX_Weir_Class: valid\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: garbage, 1.2.3.4\r\nX-Forwarded-For: ::1\r\nForwarded: for=1\r\n\r\n",
	"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",
	"M-SEARCH\x7f / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nTe: trailers\r\nCookie: a\r\nCookie: =b;;c\r\nRange: bytes=9-\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
	"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n",
}

// shouting tells a test of what a server logs, which is nothing unless a handler panics.
type shouting struct{ t testing.TB }

func (s shouting) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "panic") {
		s.t.Errorf("%s", b)
	}
	return len(b), nil
}

// Whatever bytes come, each request in them is passed on clean or refused as its sender's mistake: nothing panics, nothing
// is blamed on the API, and the API sees nothing that only Weir may say.
func FuzzRawRequests(f *testing.F) {
	for _, seed := range rawSeeds {
		f.Add([]byte(seed))
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, h := range []http.Header{r.Header, r.Trailer} {
			for name := range h {
				lower := strings.ToLower(name)
				if strings.HasPrefix(lower, "x-weir-") || strings.ContainsRune(lower, '_') || lower == "forwarded" || lower == "http2-settings" {
					f.Errorf("the API sees %s", name)
				}
			}
		}
		if got := r.Header["X-Forwarded-For"]; len(got) != 1 || got[0] != "127.0.0.1" {
			f.Errorf("the API sees X-Forwarded-For %q", got)
		}
	}))
	f.Cleanup(api.Close)
	g := newStand(f, settings{rules: "version: 1\nrules:\n- {name: r, where: origin, by: [global], limit: 1000000000000/1h}\n", upstream: api.URL})
	front := httptest.NewUnstartedServer(g.gateway)
	front.Config.ErrorLog = log.New(shouting{f}, "", 0)
	front.Config.Protocols = &http.Protocols{}
	front.Config.Protocols.SetHTTP1(true)
	front.Config.Protocols.SetUnencryptedHTTP2(true)
	front.Start()
	f.Cleanup(front.Close)
	f.Fuzz(func(t *testing.T, sent []byte) {
		if strings.HasPrefix(string(sent), "PRI ") {
			return // HTTP/2 is read by net/http's own frames, fuzzed there
		}
		for _, status := range answersTo(t, front.Listener.Addr().String(), sent) {
			if status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported {
				t.Errorf("%q is answered %d", sent, status)
			}
		}
		if text := g.logged.String(); text != "" {
			t.Fatalf("%q: logged %s", sent, text)
		}
	})
}

// answersTo are the statuses that bytes are answered with, until the server closes.
func answersTo(t *testing.T, address string, sent []byte) (statuses []int) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, _ = conn.Write(sent) // a server that refuses early need not read it all
		written <- conn.(*net.TCPConn).CloseWrite()
	}()
	defer func() { conn.Close(); <-written }()
	for r := bufio.NewReader(conn); ; {
		begin, err := r.Peek(1)
		if err != nil {
			if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
				t.Fatalf("%q: not answered within %v", sent, patience)
			}
			return statuses
		}
		if begin[0] != 'H' {
			return statuses // HTTP/2, or the rest of an answer to HEAD
		}
		method := "GET"
		if strings.HasPrefix(string(sent), "HEAD ") {
			method = "HEAD"
		}
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return statuses // cut off, as a connection that is reset
		}
		statuses = append(statuses, resp.StatusCode)
		if resp.StatusCode >= 200 {
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				return statuses
			}
		}
	}
}

// The oddest requests, each with its answer: what the fuzzing above would not say.
func TestOddRequestsAreAnsweredAsTheirSendersMistakes(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, nil)
	for i, want := range map[int]string{0: "200", 4: "400", 8: "417", 10: "400", 11: "400", 15: "400", 17: "400"} {
		if text := s.whole(rawSeeds[i]); !strings.HasPrefix(text, "HTTP/1.1 "+want) {
			t.Errorf("%q: %.40q, want %s", rawSeeds[i], text, want)
		}
	}
	s.quiet(fmt.Sprint(len(rawSeeds), " odd requests"))
}
