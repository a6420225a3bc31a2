package e2e

import (
	"strings"
	"testing"

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
		if n, _ := h.Counter("weir_edge_recovered"); n != 0 {
			t.Fatal("the filter recovered from a panic")
		}
		if got.Status == 200 && got.State["wasm.weir_verdict"] != "1" || got.Status != 200 && got.State["wasm.weir_verdict"] != "" {
			t.Errorf("status %d with the mark %q", got.Status, got.State["wasm.weir_verdict"])
		}
	})
}
