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

	"golang.org/x/net/http2"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/weirproject/weir/e2e/stand"
)

// outcome of a request whose head is at a limit: the status, or the error that reset the HTTP/2 stream.
func outcome(r stand.Result, err error) string {
	if err == nil {
		return fmt.Sprint(r.Status)
	}
	if reset, ok := errors.AsType[http2.StreamError](err); ok {
		return reset.Code.String()
	}
	return err.Error()
}

// TestLargeHeadsPassOrAreRefusedWhole sends heads of the largest size and number through edge and gateway, and larger.
func TestLargeHeadsPassOrAreRefusedWhole(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	api, keyring := stand.StartAPI(t), stand.NewKeyring(t)
	alice := keyring.Issue(t, "alice")
	const rules = "version: 1\nrules:\n- {name: wide, where: edge, by: [address], algorithm: token-bucket, limit: 1000/1d}\n" +
		"- {name: r, where: origin, by: [key], algorithm: sliding-window, limit: 1000/1d}\n"
	o := stand.StartOrigin(t, stand.OriginSettings{Upstream: api.URL, Rules: rules, Keys: keyring.File(), Trust: loopback})
	e := stand.StartEdge(t, stand.EdgeSettings{Origin: o.Gateway, Rules: rules, Keys: keyring.File(), Workers: 1})
	many := func(n int) []string {
		lines := []string{"X-Api-Key: " + alice}
		for i := range n {
			lines = append(lines, fmt.Sprintf("X-A%d: 1", i))
		}
		return lines
	}
	large := func(lines, bytes int) []string {
		out := []string{"X-Api-Key: " + alice}
		for i := range lines {
			out = append(out, fmt.Sprintf("X-A%d: %s", i, strings.Repeat("a", bytes)))
		}
		return out
	}
	for i, c := range []struct {
		name     string
		lines    []string
		one, two string // outcomes in HTTP/1.1 and 2
		reaches  bool   // the API
	}{
		{"90 fields", many(90), "200", "200", true},
		{"500 fields", many(500), "431", "INTERNAL_ERROR", false},
		{"59 KiB in one field", large(1, 59<<10), "200", "200", true},
		{"59 KiB in 59 fields", large(59, 1000), "200", "200", true},
		{"61 KiB in one field", large(1, 61<<10), "431", "INTERNAL_ERROR", false},
		{"120 KiB in 60 fields", large(60, 2<<10), "431", "INTERNAL_ERROR", false},
		{"a key of 59 KiB", []string{"X-Api-Key: " + strings.Repeat("k", 59<<10)}, "401", "401", false},
		{"a key of 61 KiB", []string{"X-Api-Key: " + strings.Repeat("k", 61<<10)}, "431", "INTERNAL_ERROR", false},
	} {
		for protocol, client := range map[string]*stand.Client{
			"HTTP/1.1": stand.NewClient(t, fmt.Sprintf("127.66.%d.1", i)), "HTTP/2": stand.NewClientHTTP2(t, fmt.Sprintf("127.66.%d.2", i), nil),
		} {
			want := c.one
			if protocol == "HTTP/2" {
				want = c.two
			}
			before := api.Calls()
			if got := outcome(client.Try(e.URL+"/", c.lines...)); got != want {
				t.Errorf("%s, %s: %s, want %s", c.name, protocol, got, want)
			}
			if reached := api.Calls() > before; reached != c.reaches {
				t.Errorf("%s, %s: reached the API: %v", c.name, protocol, reached)
			}
		}
	}
	for name, c := range map[string]struct{ line, want string }{
		"500 fields": {strings.Repeat("x-a 1 ", 500), "Internal"}, "61 KiB": {"x-a " + strings.Repeat("a", 61<<10), "Internal"},
		"a name with _": {"x_a 1", "Internal"}, "90 fields": {strings.Repeat("x-a 1 ", 90), "ok"},
	} {
		got := callGRPC(t, caller{url: e.URL, from: "127.66.98.1"}, func(ctx context.Context, client testgrpc.TestServiceClient) error {
			_, err := client.UnaryCall(metadata.AppendToOutgoingContext(ctx, strings.Fields(c.line)...), &testgrpc.SimpleRequest{})
			return err
		})
		if got != c.want {
			t.Errorf("gRPC with %s: %s, want %s", name, got, c.want)
		}
	}
	if r := stand.NewClient(t, "127.66.99.1").Get(t, e.URL+"/", "X-Api-Key: "+alice); r.Status != http.StatusOK {
		t.Errorf("after all that: %d", r.Status)
	}
}

// A renewed certificate is served without a restart, and without one that fits its key the old one stays.
func TestARenewedCertificateIsServed(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	certificate := stand.MakeCertificate(t)
	e, _ := behind(t, stand.EdgeSettings{Certificate: certificate, Workers: 1, Bootstrap: withoutFilter})
	_, address, _ := strings.Cut(e.URL, "://")
	serial := func(own *tls.Config) (int64, string, error) {
		conn, err := tls.DialWithDialer(&net.Dialer{}, "tcp", address, own)
		if err != nil {
			return 0, "", err
		}
		defer conn.Close()
		state := conn.ConnectionState()
		return state.PeerCertificates[0].SerialNumber.Int64(), state.NegotiatedProtocol, nil
	}
	for offer, want := range map[string]string{"": "", "http/1.1": "http/1.1", "h2 http/1.1": "h2", "http/1.1 h2": "h2"} {
		own := certificate.Trust()
		own.NextProtos = strings.Fields(offer)
		if _, got, err := serial(own); err != nil || got != want {
			t.Errorf("offered %q: agreed on %q, %v; want %q", offer, got, err, want)
		}
	}
	old := certificate.Trust()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, _, err := serial(old); err == nil {
		t.Error("TLS 1.1 was served")
	}
	admin := stand.NewClient(t, "")
	for range 3 {
		const failed = "sds.weir-certificate.key_rotation_failed"
		last, _, err := serial(certificate.Trust())
		if err != nil {
			t.Fatal(err)
		}
		before := e.Stat(t, admin, failed)
		finish := certificate.RenewKey(t)
		e.Until(t, "notices that the new key does not fit", func() error {
			return unless(e.Stat(t, admin, failed) > before, "%s is %d", failed, before)
		})
		if got, _, err := serial(certificate.Trust()); err != nil || got != last {
			t.Errorf("with half a renewal: certificate %d, %v; want the old %d", got, err, last)
		}
		want := finish()
		e.Until(t, fmt.Sprint("serves certificate ", want), func() error {
			got, _, err := serial(certificate.Trust())
			if err != nil {
				return err
			}
			return unless(got == want, "certificate %d", got)
		})
	}
}
