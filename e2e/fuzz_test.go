package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/stand"
	"github.com/weirproject/weir/e2e/wasmhost"
)

// One trap answers 503 to every request of its worker, so that whatever a client can write must neither trap the
// filter nor make it recover, and must get one of its answers.
func FuzzFilterInput(f *testing.F) {
	for _, address := range []string{"192.0.2.1:80", "[2001:db8::1]:443", "[::ffff:192.0.2.1]:1", "", "@/run/x", "1.2.3.4.5:6", "[::1", "999.1.1.1:2", "%"} {
		f.Add(address, "wk_0000000000000000000000000000", "Bearer wk_x", true)
		f.Add(address, "", "bearer", true)
		f.Add(address, "a,b", "\xff\xfe", false)
		f.Add(address, strings.Repeat("k", 20_000), "Bearer "+strings.Repeat("wk_", 10_000), false)
	}
	stand.Need(f, stand.Wasm, stand.Weir)
	bundle := bundleOf(f, `version: 1
rules:
- {name: wide, where: edge, by: [address], algorithm: token-bucket, limit: 1000000/1s}
`, stand.NewKeyring(f).File(), 1)
	h := newHost(f, stand.Wasm, 1, wasmhost.Config{Plugin: bundle})
	f.Fuzz(func(t *testing.T, address, key, authorization string, hasKey bool) {
		r := wasmhost.Request{From: address}
		if hasKey {
			r.Headers.Add("x-api-key", key)
		}
		r.Headers.Add("authorization", authorization)
		got := h.Send(0, r)
		switch got.Status {
		case 200, 400, 401, 429:
		case 431:
			if len(key)+len(authorization) < 50_000 {
				t.Errorf("status 431 for %d bytes", len(key)+len(authorization))
			}
		default:
			t.Fatalf("status %d from %s, details %s\n%s", got.Status, got.From, got.Details, h.LogText())
		}
		answeredByARule(t, h, got)
	})
}

// answeredByARule checks that the filter lives, and that what it let on, and nothing else, is marked.
func answeredByARule(t *testing.T, h *wasmhost.Host, got wasmhost.Response) {
	t.Helper()
	if n, _ := h.Counter("weir_edge_recovered"); n != 0 {
		t.Fatal("the filter recovered from a panic")
	}
	mark := got.State["wasm.weir_verdict"]
	if letOn := got.From == wasmhost.Upstream; letOn != (mark == "1") || !letOn && mark != "" {
		t.Errorf("status %d from %s with the mark %q", got.Status, got.From, mark)
	}
}

// What comes of a request is more than a key and an address: every header line in raw bytes, pseudo headers, values
// that Envoy itself computes, the origin's answer with its hint, and what the control plane says to a call-out.
func FuzzWhateverEnvoyHands(f *testing.F) {
	const hint = "v1;rule=wide;scope=key;ms=1500;release=1"
	f.Add([]byte("x-api-key: a\nx-api-key: b\nauthorization: Bearer wk_x"), "/a?b", "GET", "h", "source.address", []byte("192.0.2.1:80"), 200, []byte(hint), []byte("WD1"))
	f.Add([]byte("\xff\x00: \x00\n:\n: x\nx-api-key"), "", "\x00", "", "request.headers.x-api-key", []byte("\x00,\xff"), 429, []byte("v1;ms=-1;;=;rule="), []byte{})
	f.Add([]byte("x-weir-hint: "+hint+"\ncontent-type: application/grpc"), "//%2e%2e/%zz", "PRI", "[::1", "xds.cluster_name", []byte("other"), 401, []byte(strings.Repeat(";", 5000)), []byte(strings.Repeat("\xff", 4096)))
	f.Add([]byte(strings.Repeat("cookie: a;b\n", 1000)), strings.Repeat("/x", 9000), "get", "h:99999", "source.address", []byte("[fe80::1%eth0]:1"), 599, []byte("v2;scope=address"), []byte("WD1\x00\x00"))
	f.Add([]byte("x-api-key: wk_0000000000000000000000000000"), "/", "GET", "h", "request.headers.authorization", []byte("bearer"), 0, []byte("v1;rule=wide;scope=unknown-key;ms=99999999999999999999;release=18446744073709551616"), []byte(nil))
	stand.Need(f, stand.Wasm, stand.Weir)
	bundle := bundleOf(f, `version: 1
rules:
- {name: wide, where: edge, by: [address], algorithm: token-bucket, limit: 1000/1s}
`, stand.NewKeyring(f).File(), 1)
	var control []byte
	h := newHostWith(f, stand.Wasm, wasmhost.Options{Clusters: map[string]wasmhost.Cluster{
		"weir_control": func(wasmhost.Call) wasmhost.Outcome {
			return wasmhost.Outcome{Answer: wasmhost.Answer{Status: 200, Body: string(control)}}
		},
	}}, wasmhost.Config{Plugin: bundle})
	f.Fuzz(func(t *testing.T, lines []byte, path, method, authority, property string, value []byte, status int, hint, body []byte) {
		control = body
		r := wasmhost.Request{
			From: "192.0.2.1:80", Path: path, Method: method, Authority: authority,
			Properties: map[string]string{property: string(value)},
		}
		for line := range strings.SplitSeq(string(lines), "\n") {
			name, value, _ := strings.Cut(line, ":")
			r.Headers.Add(name, value)
		}
		s := h.Begin(0, r)
		if _, forwarded := s.Forwarded(); forwarded {
			answer := wasmhost.Answer{Status: status}
			answer.Headers.Add("x-weir-hint", string(hint))
			s.Answer(answer)
		}
		h.Advance(50 * time.Millisecond) // ticks, answers to call-outs, tokens
		got := s.End()
		switch {
		case got.From == wasmhost.Upstream && got.Status == status:
		case got.From == wasmhost.Filter && (got.Status == 400 || got.Status == 401 || got.Status == 403 || got.Status == 429):
		case got.From == wasmhost.Envoy && got.Status == 431:
		default:
			t.Fatalf("status %d from %s, details %s\n%s", got.Status, got.From, got.Details, h.LogText())
		}
		answeredByARule(t, h, got)
	})
}
