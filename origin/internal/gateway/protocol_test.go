package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/certificate/certificatetest"
)

// secure is a server for HTTP/2 within TLS, and its client.
func secure(t *testing.T, handler http.Handler) (url string, client *http.Client, authority *certificatetest.Authority) {
	t.Helper()
	authority = certificatetest.New(t)
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, "localhost").TLS(t)}, NextProtos: []string{"h2", "http/1.1"}}
	s.StartTLS()
	t.Cleanup(s.Close)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return s.URL, &http.Client{Transport: transport}, authority
}

// eachWay runs a test for each protocol of clients and each of APIs.
func eachWay(t *testing.T, api http.HandlerFunc, test func(t *testing.T, s *stand, client *http.Client, url, clients, apis string)) {
	for _, apis := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, clients := range []string{"HTTP/1.1", "HTTP/2.0 in clear text", "HTTP/2.0"} {
			t.Run(clients+" to "+apis, func(t *testing.T) {
				settings := settings{rules: manyPerHour}
				var authority *certificatetest.Authority
				if apis == "HTTP/2.0" {
					settings.upstream, _, authority = secure(t, api)
				}
				s := start(t, settings, api)
				if authority != nil {
					s.gateway.TrustAPI(authority.Pool)
				}
				switch clients {
				case "HTTP/1.1":
					test(t, s, s.client, s.url, clients, apis)
				case "HTTP/2.0":
					url, client, _ := secure(t, s.gateway)
					test(t, s, client, url, clients, apis)
				default:
					test(t, s, h2cClient(t), h2c(t, s.gateway), "HTTP/2.0", apis)
				}
			})
		}
	}
}

func TestBodiesAndTrailersPassWithTheirValues(t *testing.T) {
	api := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("X-Api-Proto", r.Proto)
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(b)
		var seen []string
		for name, values := range r.Trailer {
			seen = append(seen, name+"="+strings.Join(values, "|"))
		}
		w.Header().Set("X-Sum", strings.Join(seen, ","))
		w.Header().Set("X-Weir-Hint", "1")
		w.Header().Set(http.TrailerPrefix+"X-Unannounced", "yes")
	}
	eachWay(t, api, func(t *testing.T, s *stand, client *http.Client, url, clients, apis string) {
		for _, length := range []int64{-1, 100_000} {
			r, err := http.NewRequest("POST", url+"/", bytes.NewReader(bytes.Repeat([]byte("x"), 100_000)))
			if err != nil {
				t.Fatal(err)
			}
			if clients == "HTTP/1.1" {
				length = -1 // has no trailers otherwise
			}
			r.ContentLength = length
			r.Trailer = http.Header{}
			for _, name := range []string{"X-Checksum", "X-Weir-Class", "X-Forwarded-For", "X-Api-Key", "Cookie"} {
				r.Trailer[name] = []string{"9"}
			}
			if clients == "HTTP/1.1" { // HTTP/2 refuses these itself
				r.Trailer["Authorization"], r.Trailer["Keep-Alive"] = []string{"9"}, []string{"9"}
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || len(b) != 100_000 || resp.StatusCode != 200 || resp.Proto != clients || resp.Header.Get("X-Api-Proto") != apis {
				t.Errorf("%d by %s, API by %s, %d bytes, %v", resp.StatusCode, resp.Proto, resp.Header.Get("X-Api-Proto"), len(b), err)
			}
			if got := resp.Trailer.Get("X-Sum"); got != "X-Checksum=9" {
				t.Errorf("the API saw the trailers %s", got)
			}
			if resp.Trailer.Get("X-Unannounced") != "yes" {
				t.Errorf("trailers that were not announced are lost: %v", resp.Trailer)
			}
			for name := range resp.Trailer {
				if strings.HasPrefix(name, "X-Weir") {
					t.Errorf("the client sees the trailer %s", name)
				}
			}
		}
		s.quiet("trailers")
	})
}

func TestAnEventStreamPassesEventByEvent(t *testing.T) {
	next := make(chan struct{})
	api := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	}
	eachWay(t, api, func(t *testing.T, _ *stand, client *http.Client, url, _, _ string) {
		resp, err := client.Get(url + "/events")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewReader(resp.Body)
		for i := range 3 {
			line, err := lines.ReadString('\n')
			if err != nil || line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("event %d: %q, %v", i, line, err)
			}
			_, _ = lines.ReadString('\n')
			next <- struct{}{} // only now does the API go on
		}
	})
}

// A slow body of known length is passed on as it comes, too.
func TestABodyOfKnownLengthIsNotHeldBack(t *testing.T) {
	more := make(chan struct{})
	s := start(t, settings{rules: manyPerHour}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		fmt.Fprint(w, "first")
		w.(http.Flusher).Flush()
		<-more
		fmt.Fprint(w, "other")
	})
	resp, err := s.client.Get(s.url + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "first" {
		t.Errorf("%q, %v", b, err)
	}
	close(more)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "other" {
		t.Errorf("%q, %v", rest, err)
	}
}

// A client that waits to be asked for its body sends none that is not wanted: neither by the limiter nor by the API.
func TestABodyIsSentOnlyOnceItIsAskedFor(t *testing.T) {
	s := start(t, settings{rules: "version: 1\nrules:\n- {name: r, where: origin, by: [address], limit: 2/1h}\n"}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})
	for i, c := range []struct{ path, first string }{
		{"/yes", "HTTP/1.1 100 Continue"}, {"/no", "HTTP/1.1 413"}, {"/yes", "HTTP/1.1 429"},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n", c.path)
		lines := bufio.NewReader(conn)
		line, err := lines.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, c.first) {
			t.Errorf("call %d: %q, %v, want %s", i, line, err, c.first)
		}
		if c.first == "HTTP/1.1 100 Continue" {
			_, _ = lines.ReadString('\n')
			fmt.Fprint(conn, "body")
			resp, err := http.ReadResponse(lines, nil)
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(b) != "body" {
				t.Errorf("%d %q", resp.StatusCode, b)
			}
		}
		conn.Close()
	}
}

// An API's 100 Continue is said once, whoever is faster: its way through the proxy or the body's reading. Early hints behind
// it would be written by two at a time; they are not passed on.
func TestABodyIsAskedForOnce(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, func(w http.ResponseWriter, r *http.Request) {
		conn, wire, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(wire, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
		wire.Flush()
		b := make([]byte, 4)
		_, _ = io.ReadFull(wire, b)
		fmt.Fprintf(wire, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n%s", b)
		wire.Flush()
	})
	for range 200 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
		lines := bufio.NewReader(conn)
		asked, _ := lines.ReadString('\n')
		empty, _ := lines.ReadString('\n')
		fmt.Fprint(conn, "body")
		rest, err := io.ReadAll(lines)
		if asked != "HTTP/1.1 100 Continue\r\n" || empty != "\r\n" || err != nil ||
			!strings.HasPrefix(string(rest), "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(string(rest), "\r\n\r\nbody") {
			t.Fatalf("%q, %q, then %q, %v", asked, empty, rest, err)
		}
		conn.Close()
	}
}

// What is said between two hops does not go further, either way; nor does it help to name what the gateway says.
func TestWhatIsSaidToTheGatewayStaysThere(t *testing.T) {
	s := start(t, settings{rules: manyPerHour}, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if r.URL.Path == "/early" {
			h.Set("Connection", "X-Early")
			h.Set("X-Early", "1")
			h.Set("Keep-Alive", "1")
			h.Set("Link", "</a>")
			w.WriteHeader(http.StatusEarlyHints)
			clear(h)
		}
		h.Set("Connection", "X-Named, x-other")
		h.Set("X-Named", "1")
		h.Set("X-Other", "1")
		h.Set("Keep-Alive", "timeout=1")
		h.Set("Proxy-Authenticate", "Basic")
		h.Set("X-End", "1")
	})
	a := s.get("/", "Connection: x-named, X-Forwarded-For, X-Forwarded-Proto", "Connection: Host", "X-Named: 1", "Keep-Alive: timeout=9",
		"Proxy-Authorization: Basic eA==", "Proxy-Connection: keep-alive", "Te: trailers, deflate", "X-End: 1")
	r := <-s.calls
	for _, name := range []string{"X-Named", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Connection"} {
		if v := r.Header.Get(name); v != "" {
			t.Errorf("the API saw %s: %s", name, v)
		}
	}
	if r.Header.Get("X-End") != "1" || r.Header.Get("Te") != "trailers" || r.Header.Get("X-Forwarded-For") != "127.0.0.1" || r.Header.Get("X-Forwarded-Proto") != "http" || r.Host == "" {
		t.Errorf("the API saw %s %v", r.Host, r.Header)
	}
	for _, name := range []string{"X-Named", "X-Other", "Keep-Alive", "Proxy-Authenticate"} {
		if v := a.Header.Get(name); v != "" {
			t.Errorf("the client saw %s: %s", name, v)
		}
	}
	if a.Header.Get("X-End") != "1" {
		t.Errorf("the client saw %v", a.Header)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /early HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	b, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	early, _, _ := strings.Cut(string(b), "\r\n\r\n")
	if !strings.Contains(early, "103") || !strings.Contains(early, "Link") || strings.Contains(early, "X-Early") || strings.Contains(early, "Keep-Alive") {
		t.Errorf("early hints:\n%s", early)
	}
}
