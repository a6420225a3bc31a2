package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirproject/weir/origin/internal/certificate/certificatetest"
)

// install writes a pair where weir.yaml names it.
func install(t *testing.T, dir string, pair certificatetest.Pair) {
	t.Helper()
	replace(t, filepath.Join(dir, "cert.pem"), string(pair.Cert))
	replace(t, filepath.Join(dir, "key.pem"), string(pair.Key))
}

// secure calls the gateway over TLS, on a new connection, and returns the certificate that it met with the answer.
func (p *process) secure(config *tls.Config, headers ...string) (resp *http.Response, serial string, err error) {
	p.t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest("GET", "https://"+p.server.Address("gateway")+"/", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err = transport.RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp, resp.TLS.PeerCertificates[0].SerialNumber.String(), nil
}

const gatewayTLS = "tls: {gateway: {cert: cert.pem, key: key.pem, client-ca: ca.pem}}\ntrust: {edge-names: [edge-1.example.com, \"spiffe://example.com/edge\"]}\n"

// Whom an edge names is counted apart; from anybody else, all are the peer.
func TestAnEdgeIsBelievedByItsCertificate(t *testing.T) {
	ours, others := certificatetest.New(t), certificatetest.New(t)
	dir := settings(t, gatewayTLS)
	install(t, dir, ours.Issue(t, "localhost"))
	write(t, filepath.Join(dir, "ca.pem"), string(ours.PEM))
	p := start(t, dir)
	for i, c := range []struct {
		name     string
		show     []tls.Certificate
		believed bool
	}{
		{"an edge by DNS name", []tls.Certificate{ours.Issue(t, "other.example.com", "EDGE-1.example.com").TLS(t)}, true},
		{"an edge by URI", []tls.Certificate{ours.Issue(t, "spiffe://example.com/edge").TLS(t)}, true},
		{"no certificate", nil, false},
		{"one that is no edge's", []tls.Certificate{ours.Issue(t, "api.example.com", "spiffe://example.com/edges", "spiffe://example.org/edge").TLS(t)}, false},
		{"a wildcard", []tls.Certificate{ours.Issue(t, "*.example.com").TLS(t)}, false},
	} {
		config := &tls.Config{RootCAs: ours.Pool, Certificates: c.show}
		passed := 0
		for j := range 4 { // the peer has 3 in all
			resp, _, err := p.secure(config, "X-Weir-Address", fmt.Sprintf("198.51.%d.%d", i, j))
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if resp.ProtoMajor != 2 {
				t.Errorf("%s: answered by %s", c.name, resp.Proto)
			}
			if resp.StatusCode == 200 {
				passed++
			}
		}
		if (passed == 4) != c.believed {
			t.Errorf("%s: %d of 4 addresses passed", c.name, passed)
		}
	}
	// Sent though nobody asks for that authority's.
	foreign := others.Issue(t, "edge-1.example.com").TLS(t)
	config := &tls.Config{RootCAs: ours.Pool, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &foreign, nil }}
	if resp, _, err := p.secure(config, "X-Weir-Address", "198.51.100.9"); err == nil {
		t.Errorf("a certificate of another authority: %d", resp.StatusCode)
	}
}

func TestACertificateIsRenewedWhileServing(t *testing.T) {
	authority := certificatetest.New(t)
	dir := settings(t, gatewayTLS)
	install(t, dir, authority.Issue(t, "localhost"))
	write(t, filepath.Join(dir, "ca.pem"), string(authority.PEM))
	p := start(t, dir)
	config := &tls.Config{RootCAs: authority.Pool}
	_, first, err := p.secure(config)
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string]certificatetest.Pair{
		"garbage":       {Cert: []byte("garbage"), Key: []byte("garbage")},
		"expired":       authority.IssueUntil(t, time.Now().Add(-time.Minute), "localhost"),
		"another's key": {Cert: authority.Issue(t, "localhost").Cert, Key: authority.Issue(t, "localhost").Key},
	} {
		install(t, dir, pair)
		if line := p.logged("refused"); !strings.Contains(line, "cert.pem") || strings.Contains(line, "PRIVATE") {
			t.Errorf("%s: the log says %s", name, line)
		}
		if _, now, err := p.secure(config); err != nil || now != first {
			t.Errorf("%s: the last good is not in force: %s, %v", name, now, err)
		}
		if _, r := p.readiness(); !r.Degraded || r.TLS.Error == "" {
			t.Errorf("%s: /readyz %+v", name, r.TLS)
		}
	}
	install(t, dir, authority.Issue(t, "localhost"))
	p.logged("a changed file is in force")
	if _, now, err := p.secure(config); err != nil || now == first {
		t.Errorf("the new certificate is not in force: %v", err)
	}
	if _, r := p.readiness(); r.Degraded {
		t.Errorf("after a good one: %+v", r)
	}
}

// drained has the gateway of an API that lets go of its calls on command.
func drained(t *testing.T, within time.Duration, api http.HandlerFunc) *process {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	dir := settings(t, "")
	write(t, filepath.Join(dir, "weir.yaml"), "upstream: "+server.URL+"\nlisten: {gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\n")
	p := start(t, dir)
	p.server.DrainWithin(within)
	return p
}

func TestWebsocketsAreCutOffAtTheDrainBound(t *testing.T) {
	left := make(chan error, 1)
	p := drained(t, 300*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.CloseNow() }()
		for {
			kind, b, err := c.Read(context.Background())
			if err != nil {
				left <- err
				return
			}
			if err := c.Write(context.Background(), kind, b); err != nil {
				left <- err
				return
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://"+p.server.Address("gateway"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseNow() }()
	echo := func() error {
		if err := c.Write(ctx, websocket.MessageText, []byte("ping")); err != nil {
			return err
		}
		_, b, err := c.Read(ctx)
		if err == nil && string(b) != "ping" {
			return fmt.Errorf("echoed %q", b)
		}
		return err
	}
	if err := echo(); err != nil {
		t.Fatal(err)
	}
	p.stop()
	p.logged("draining")
	if err := echo(); err != nil {
		t.Errorf("while draining: %v", err)
	}
	if line := p.logged("websockets were cut off"); !strings.Contains(line, `"count":1`) {
		t.Error(line)
	}
	if _, _, err := c.Read(ctx); err == nil {
		t.Error("the client's side is open")
	}
	<-left
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	close(p.ended)
}

// A client that gets no GOAWAY would go on sending, and have its calls cut off.
func TestAnHTTP2ClientIsToldToGoAway(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	p := drained(t, patience, func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		fmt.Fprint(w, "late")
	})
	conn, err := net.Dial("tcp", p.server.Address("gateway"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "h"}, {":path", "/"}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	<-entered
	p.stop()
	away, status, body := false, "", ""
	for body == "" {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("told to go away: %v, status %q: %v", away, status, err)
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			if !away {
				close(leave)
			}
			away = true
		case *http2.MetaHeadersFrame:
			status = f.PseudoValue("status")
		case *http2.DataFrame:
			body = string(f.Data())
		}
	}
	if !away || status != "200" || body != "late" {
		t.Errorf("away %v, %s %q", away, status, body)
	}
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	close(p.ended)
}

// net/http would answer it itself, past every rule.
func TestARequestForTheWholeServerIsRefused(t *testing.T) {
	p := start(t, settings(t, ""))
	for _, door := range []string{"gateway", "admin"} {
		conn, err := net.Dial("tcp", p.server.Address(door))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != 400 {
			t.Errorf("%s: %d", door, resp.StatusCode)
		}
	}
}
