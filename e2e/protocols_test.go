package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir/e2e/stand"
)

// protocol is a way to call the API through the edge. It calls once and tells what came of it: "ok" if the API itself
// has answered whole, else the status, 429 or ResourceExhausted.
type protocol struct {
	name string
	call func(t *testing.T, c caller) (outcome string)
}

// caller is who calls where.
type caller struct {
	url  string // of the edge
	from string // address
	key  string // empty for none
	tls  *tls.Config
}

func (c caller) headers() []string {
	if c.key == "" {
		return nil
	}
	return []string{"X-Api-Key: " + c.key}
}

// callTime bounds one call.
const callTime = 20 * time.Second

var protocols = []protocol{
	{"HTTP 1.1", func(t *testing.T, c caller) string {
		if c.tls != nil {
			return get(t, stand.NewClientTLS(t, c.from, c.tls), c, "HTTP/1.1")
		}
		return get(t, stand.NewClient(t, c.from), c, "HTTP/1.1")
	}},
	{"HTTP 2", func(t *testing.T, c caller) string {
		return get(t, stand.NewClientHTTP2(t, c.from, c.tls), c, "HTTP/2.0")
	}},
	{"websocket", echoes},
	{"gRPC unary", func(t *testing.T, c caller) string { return callGRPC(t, c, unary) }},
	{"gRPC stream", func(t *testing.T, c caller) string { return callGRPC(t, c, duplex) }},
}

// outcomes of a refusal by protocol: plain HTTP, websockets included, and gRPC.
var (
	limited   = map[bool]string{false: "429", true: "ResourceExhausted"}
	unknown   = map[bool]string{false: "401", true: "Unauthenticated"}
	noLimiter = map[bool]string{false: "503", true: "Unavailable"}
)

func (p protocol) isGRPC() bool { return strings.HasPrefix(p.name, "gRPC") }

func get(t *testing.T, client *stand.Client, c caller, proto string) string {
	t.Helper()
	r := client.Get(t, c.url+"/", c.headers()...)
	noInternals(t, r.Header)
	switch {
	case r.Proto != proto:
		return "answered by " + r.Proto
	case r.Status != http.StatusOK:
		return fmt.Sprint(r.Status)
	case r.Body != "hello\n" || r.Header.Get("X-Api") == "":
		return fmt.Sprintf("200 %q", r.Body)
	}
	return "ok"
}

// noInternals checks that nothing of what edge and origin say to each other gets out.
func noInternals(t *testing.T, h http.Header) {
	t.Helper()
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), "x-weir-") {
			t.Errorf("the client sees %s: %q", name, h[name])
		}
	}
}

// echoes opens a websocket, sends three messages, and has them back.
func echoes(t *testing.T, c caller) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	defer cancel()
	conn, resp, err := c.dialWebsocket(ctx, t)
	if resp != nil {
		noInternals(t, resp.Header)
	}
	if err != nil {
		if resp == nil {
			return err.Error()
		}
		return fmt.Sprint(resp.StatusCode)
	}
	defer conn.CloseNow()
	for _, message := range []string{"one", strings.Repeat("large", 10_000), ""} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
			return err.Error()
		}
		_, back, err := conn.Read(ctx)
		if err != nil || string(back) != message {
			return fmt.Sprintf("%d bytes came back as %d: %v", len(message), len(back), err)
		}
	}
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		return err.Error()
	}
	return "ok"
}

func (c caller) dialWebsocket(ctx context.Context, t *testing.T) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	client := stand.NewClient(t, c.from)
	if c.tls != nil {
		client = stand.NewClientTLS(t, c.from, c.tls)
	}
	header := http.Header{}
	if c.key != "" {
		header.Set("X-Api-Key", c.key)
	}
	own := *client.HTTP()
	own.Timeout = 0 // the context bounds it: a timeout would end the websocket too
	conn, resp, err := websocket.Dial(ctx, c.url+"/socket", &websocket.DialOptions{HTTPClient: &own, HTTPHeader: header})
	if conn != nil {
		conn.SetReadLimit(1 << 20)
	}
	return conn, resp, err
}

// callGRPC calls the TestService on a connection of its own.
func callGRPC(t *testing.T, c caller, call func(context.Context, testgrpc.TestServiceClient) error) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	defer cancel()
	if c.key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-api-key", c.key)
	}
	err := call(ctx, testgrpc.NewTestServiceClient(c.dialGRPC(t)))
	if err == nil {
		return "ok"
	}
	if s, ok := status.FromError(err); ok {
		if s.Code() == codes.Unknown || s.Code() == codes.DeadlineExceeded {
			t.Log(err)
		}
		return s.Code().String()
	}
	return err.Error()
}

func (c caller) dialGRPC(t *testing.T) *grpc.ClientConn {
	t.Helper()
	dialer := stand.Dialer(t, c.from)
	secure := insecure.NewCredentials()
	if c.tls != nil {
		secure = credentials.NewTLS(c.tls)
	}
	_, address, _ := strings.Cut(c.url, "://")
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(secure), grpc.WithDisableRetry(),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", to) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// said is metadata that comes back as a trailer.
const said = "said back"

func heard(md metadata.MD) error {
	for name := range md {
		if strings.HasPrefix(name, "x-weir-") {
			return fmt.Errorf("the client sees %s", name)
		}
	}
	if got := md.Get(stand.EchoTrailer); len(got) != 1 || got[0] != said {
		return fmt.Errorf("trailers %v", md)
	}
	return nil
}

func unary(ctx context.Context, client testgrpc.TestServiceClient) error {
	ctx = metadata.AppendToOutgoingContext(ctx, stand.EchoTrailer, said)
	var header, trailer metadata.MD
	body := []byte(strings.Repeat("payload", 30_000)) // more than any window at first
	r, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: body}}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		return err
	}
	if string(r.GetPayload().GetBody()) != string(body) {
		return errors.New("another payload came back")
	}
	if len(header.Get("x-weir-hint")) > 0 {
		return errors.New("the client sees a hint")
	}
	if err := heard(trailer); err != nil {
		return err
	}
	// A failure of the API's own arrives as that.
	_, err = client.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseStatus: &testgrpc.EchoStatus{Code: int32(codes.DataLoss), Message: "own"}}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.DataLoss || status.Convert(err).Message() != "own" {
		return fmt.Errorf("the API's own failure arrived as: %w", err)
	}
	return heard(trailer)
}

// duplex sends a message only once the one before has come back, which a proxy that buffers would never let happen.
func duplex(ctx context.Context, client testgrpc.TestServiceClient) error {
	stream, err := client.FullDuplexCall(metadata.AppendToOutgoingContext(ctx, stand.EchoTrailer, said))
	if err != nil {
		return err
	}
	for _, message := range []string{"one", strings.Repeat("large", 30_000), ""} {
		// What Send says about a stream that the server has ended, Recv says better.
		_ = stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: []byte(message)}})
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if string(r.GetPayload().GetBody()) != message {
			return errors.New("another payload came back")
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if r, err := stream.Recv(); err == nil {
		return fmt.Errorf("one more message: %v", r)
	}
	return heard(stream.Trailer())
}

// protocolRules: an address has 4 calls at the edge, 1,000 with a known key; a key has 6 at the origin.
const protocolRules = `version: 1
rules:
- {name: flood, where: edge, by: [address], algorithm: token-bucket, limit: 4/1d, valid-key: {limit: 1000/1d}}
- {name: per-key, where: origin, by: [key], algorithm: sliding-window, limit: 6/1d}
`

// speakAll plays every protocol against one edge and origin: what may pass arrives whole, what may not is refused in
// the protocol's own way, and does not reach the API.
func speakAll(t *testing.T, url string, network int, api *stand.API, keyring *stand.Keyring, keys []string, secure *tls.Config) {
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			from := func(client int) string { return fmt.Sprintf("127.%d.%d.%d", network, i, client) }
			expect := func(what, want string, c caller) {
				t.Helper()
				c.url, c.tls = url, secure
				before := api.Calls()
				if got := p.call(t, c); got != want {
					t.Errorf("%s: %s, want %s", what, got, want)
				}
				if reached := api.Calls() > before; reached != (want == "ok") {
					t.Errorf("%s: reached the API: %v", what, reached)
				}
			}
			each := 1 // calls that the protocol's function makes
			if p.name == "gRPC unary" {
				each = 2
			}
			for n := range 4 / each {
				expect(fmt.Sprint("an address's call ", n+1), "ok", caller{from: from(1)})
			}
			expect("an address over its limit", limited[p.isGRPC()], caller{from: from(1)})
			expect("another address", "ok", caller{from: from(2)})
			for range 4 {
				expect("a forged key", unknown[p.isGRPC()], caller{from: from(3), key: keyring.Forge(t)})
			}
			expect("a forger over its limit", limited[p.isGRPC()], caller{from: from(3), key: keyring.Forge(t)})
			for n := range 6 / each {
				expect(fmt.Sprint("a key's call ", n+1), "ok", caller{from: from(3), key: keys[i]})
			}
			expect("a key over its limit at the origin", limited[p.isGRPC()], caller{from: from(3), key: keys[i]})
		})
	}
}

func TestEveryProtocolIsPassedWholeAndRefusedInItsOwnWay(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	for _, secure := range []bool{false, true} {
		name, network := "clear text", 60
		if secure {
			name, network = "TLS", 61
		}
		t.Run(name, func(t *testing.T) {
			keyring := stand.NewKeyring(t)
			var keys []string
			for i := range protocols {
				keys = append(keys, keyring.Issue(t, fmt.Sprint("key-", i)))
			}
			api := stand.StartAPI(t)
			o := stand.StartOrigin(t, stand.OriginSettings{Upstream: api.URL, Rules: protocolRules, Keys: keyring.File(), Trust: loopback})
			settings := stand.EdgeSettings{Origin: o.Gateway, Rules: protocolRules, Keys: keyring.File()}
			var trust *tls.Config
			if secure {
				certificate := stand.MakeCertificate(t)
				settings.Certificate, trust = certificate, certificate.Trust()
			}
			e := stand.StartEdge(t, settings)
			speakAll(t, e.URL, network, api, keyring, keys, trust)
			page := stand.NewClient(t, "")
			for _, labels := range [][]string{{`code="rate_limited"`, `rule="flood"`}, {`code="key_unknown"`, `rule="flood"`}} {
				if stand.Metric(t, page, e.Admin+"/stats/prometheus", "weir_edge_denied", labels...) == 0 {
					t.Errorf("nothing is counted under %v", labels)
				}
			}
		})
	}
}

// An upgrade, a stream, a gRPC call have no chain of their own that could do without the filter or the guard.
func TestNoProtocolPassesWithoutTheFilter(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	e, api := behind(t, stand.EdgeSettings{Bootstrap: withoutFilter})
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			c := caller{url: e.URL, from: fmt.Sprintf("127.62.%d.1", i)}
			if got := p.call(t, c); got != noLimiter[p.isGRPC()] {
				t.Errorf("%s, want %s", got, noLimiter[p.isGRPC()])
			}
		})
	}
	if api.Calls() != 0 {
		t.Errorf("%d calls reached the API without a filter", api.Calls())
	}
}
