package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

const manyPerHour = "version: 1\nrules:\n- {name: r, where: origin, by: [address], limit: 1000/1h}\n"

// quiet fails the test if anything was logged or counted against the API.
func (s *stand) quiet(after string) {
	s.t.Helper()
	if text := s.logged.String(); text != "" {
		s.t.Errorf("%s: logged %s", after, text)
	}
	if n := testutil.ToFloat64(s.metrics.Upstream.WithLabelValues("unreachable")); n != 0 {
		s.t.Errorf("%s: the API counts as unreachable %v times", after, n)
	}
}

// An API that speaks cleartext HTTP/2 would take any number of calls in the tunnel, none of them counted.
func TestNoClientTunnelsHTTPPastTheLimiter(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, nil)
	for _, protocol := range []string{"h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.0"} {
		line := s.raw("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\nHTTP2-Settings: AAMAAABkAARAAAAA\r\n\r\n")
		if !strings.HasPrefix(line, "HTTP/1.1 200") {
			t.Errorf("%s: %s", protocol, line)
		}
		r := <-s.calls
		for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
			if v := r.Header.Get(name); v != "" {
				t.Errorf("%s: the API saw %s: %s", protocol, name, v)
			}
		}
	}
}

func TestAClientsMistakesAreNotBlamedOnTheAPI(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for name, request := range map[string]string{
		"broken chunk":   "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"odd upgrade":    "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: \xc3\xa9\r\n\r\n",
		"two transfers":  "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"two lengths":    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"line in a name": "GET / HTTP/1.1\r\nHost: h\r\nX Y: z\r\n\r\n",
	} {
		if line := s.raw(request); !strings.HasPrefix(line, "HTTP/1.1 4") && !strings.HasPrefix(line, "HTTP/1.1 501") {
			t.Errorf("%s: %s", name, line)
		}
		s.quiet(name)
	}
}

// torn is a body whose sender goes away.
type torn struct{}

func (torn) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestAClientThatGoesAwayMakesNoNoise(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader("some"), torn{}))
	s.gateway.ServeHTTP(w, r)
	if w.Code != 400 {
		t.Errorf("in the middle of its body: %d", w.Code)
	}
	s.quiet("in the middle of its body")

	ctx, cancel := context.WithCancel(t.Context())
	s = start(t, settings{rules: manyPerHour}, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	w = httptest.NewRecorder()
	s.gateway.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
	if w.Code != 499 {
		t.Errorf("while the API works: %d", w.Code)
	}
	s.quiet("while the API works")
}

func TestAnAPIThatBreaksOffIsNotFinishedForIt(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	resp, err := s.client.Get(s.url + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("read %q as if it were whole", b)
	}
}

// Case 23, where a proxy passes things on by itself.
func TestNoHintOfAnAPIPassesInEarlyHintsOrTrailers(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Weir-Hint", "early")
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Weir-Announced, X-Sum")
		fmt.Fprintln(w, "body")
		w.(http.Flusher).Flush()
		w.Header().Set("X-Weir-Announced", "1")
		w.Header().Set("X-Sum", "2")
		w.Header().Set(http.TrailerPrefix+"X-Weir-Other", "3")
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	b, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if strings.Contains(strings.ToLower(text), "x-weir") {
		t.Errorf("the client sees:\n%s", text)
	}
	if !strings.Contains(text, "103 Early Hints") || !strings.Contains(text, "Link: </style.css>") || !strings.Contains(text, "X-Sum: 2") {
		t.Errorf("early hints or trailers are lost:\n%s", text)
	}
}

func TestAQueryReachesTheAPIAsWritten(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, nil)
	for _, target := range []string{"/?a=1;b=2&c=%zz&d", "/?", "/a%2Fb/%C3%A9?x=/../", "//double//", "/;p=1/x"} {
		s.raw("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")
		if r := <-s.calls; r.RequestURI != target {
			t.Errorf("%s became %s", target, r.RequestURI)
		}
	}
}

func TestOnlyAnEdgeSaysWhatItForwards(t *testing.T) {
	for _, trusted := range []string{"", "127.0.0.0/8"} {
		s := start(t, settings{rules: manyPerHour, trusted: trusted}, nil)
		s.get("/", "X-Forwarded-User: root", "x-forwarded-port: 1", "Forwarded: for=1.2.3.4")
		r := <-s.calls
		if r.Header.Get("Forwarded") != "" {
			t.Errorf("trusted %q: Forwarded passed", trusted)
		}
		for _, name := range []string{"X-Forwarded-User", "X-Forwarded-Port"} {
			if passed := r.Header.Get(name) != ""; passed != (trusted != "") {
				t.Errorf("trusted %q: %s passed: %v", trusted, name, passed)
			}
		}
	}
}

func TestACallThatTheAPIDidNotAnswerWasChargedAllTheSame(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s := start(t, settings{rules: manyPerHour, upstream: "http://" + l.Addr().String()}, nil)
	if a := s.get("/"); a.StatusCode != 502 || a.Header.Get("X-Ratelimit-Remaining") != "999" {
		t.Errorf("%d %v", a.StatusCode, a.Header)
	}
}

// h2c is a server for cleartext HTTP/2, and http.
func h2c(t *testing.T, handler http.Handler) (url string) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = &http.Protocols{}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// h2cClient speaks cleartext HTTP/2 only.
func h2cClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestAStreamOfGRPCPassesBothWaysAtOnce(t *testing.T) {
	api := h2c(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("X-Proto", r.Proto+" "+r.Header.Get("Te"))
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		for lines := bufio.NewScanner(r.Body); lines.Scan(); {
			fmt.Fprintln(w, "echo "+lines.Text())
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	}))
	s := start(t, settings{rules: manyPerHour, upstream: api}, nil)
	client, url := h2cClient(t), h2c(t, s.gateway)

	sent, send := io.Pipe()
	r, err := http.NewRequest("POST", url+"/pkg.Service/Method", sent)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc+proto")
	r.Header.Set("Te", "trailers")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("X-Proto") != "HTTP/2.0 trailers" || resp.Header.Get("X-Ratelimit-Remaining") != "999" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	answers := bufio.NewReader(resp.Body)
	for _, word := range []string{"one", "two"} {
		fmt.Fprintln(send, word)
		if line, err := answers.ReadString('\n'); line != "echo "+word+"\n" {
			t.Errorf("%q, %v", line, err)
		}
	}
	send.Close()
	if _, err := answers.ReadByte(); !errors.Is(err, io.EOF) || resp.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%v, trailers %v", err, resp.Trailer)
	}
}

// Any client can send such a call, so that it must neither hide that the API is well nor fill the log.
func TestAnAPIWithoutGRPCIsToldOnce(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, nil)
	client, url := h2cClient(t), h2c(t, s.gateway)
	for range 3 {
		for contentType, want := range map[string]string{
			"application/grpc": "200 14", "application/grpc-web": "200 ", "text/plain": "200 ",
		} {
			resp, err := client.Post(url+"/", contentType, strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Grpc-Status")); got != want {
				t.Errorf("%s: %s, want %s", contentType, got, want)
			}
		}
	}
	if text := s.logged.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "protocol=grpc") {
		t.Errorf("logged:\n%s", text)
	}
}

// A client that half-closes after its request still reads the answer.
func TestARefusalIsToldToAClientThatClosedItsSide(t *testing.T) {
	s := start(t, settings{rules: "version: 1\nrules:\n- {name: r, where: origin, by: [address], limit: 1/1h}\n"}, nil)
	s.get("/")
	for range 50 { // whether the server sees the end before or after it has decided is a race
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		c.Close()
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 429") {
			t.Fatalf("%q, %v: want 429", line, err)
		}
	}
}
