package e2e

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/stand"
	"github.com/weirproject/weir/e2e/wasmhost"
)

// What a request costs is asserted as what it asks of Envoy: 1.6 µs for an address, 0.4 µs for a mark, and a mutex of
// the whole process for shared data, which is why that is touched once a lease and never for a refusal that is known.
func TestHotPathAsksEnvoyForLittle(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir)
	keyring := stand.NewKeyring(t)
	alice := keyring.Issue(t, "alice")
	rules := `version: 1
rules:
- {name: hot, where: edge, by: [address], algorithm: token-bucket, limit: 200/1s, burst: 400}
`
	h := newHost(t, stand.Wasm, 1, wasmhost.Config{Plugin: bundleOf(t, rules, keyring.File(), 1)})
	type calls map[string]int
	// The header is the answer's hint, of which most have none.
	allowed := calls{"proxy_get_property": 3, "clock_time_get": 1, "proxy_increment_metric": 1, "proxy_set_property": 1, "proxy_get_header_map_value": 1}
	leased := maps.Clone(allowed)
	leased["proxy_get_shared_data"], leased["proxy_set_shared_data"] = 1, 1
	first := maps.Clone(leased)
	first["proxy_increment_metric"] = 2 // a bucket that was not there
	keyed := maps.Clone(first)
	keyed["proxy_get_property"] = 2 // no look at Authorization
	refused := calls{"proxy_get_property": 3, "clock_time_get": 1, "proxy_increment_metric": 1, "proxy_send_local_response": 1, "proxy_get_header_map_value": 1}
	read := maps.Clone(refused)
	read["proxy_get_shared_data"] = 1

	expect := func(what string, r wasmhost.Response, status int, want calls) {
		t.Helper()
		if r.Status != status || !maps.Equal(calls(r.Calls), want) {
			t.Errorf("%s: status %d, host calls %v, want %d and %v", what, r.Status, r.Calls, status, want)
		}
		// Contexts come and go without us: Envoy would call 4 more for every stream.
		delete(r.Callbacks, "proxy_on_memory_allocate")
		if want := map[string]int{"proxy_on_request_headers": 1, "proxy_on_response_headers": 1}; !maps.Equal(r.Callbacks, want) {
			t.Errorf("%s: callbacks %v, want %v", what, r.Callbacks, want)
		}
	}
	send := func(headers ...string) wasmhost.Response { return h.Send(0, from("192.0.2.1", headers...)) }

	expect("the first call takes a lease of 1", send(), 200, first)
	expect("the second takes a lease of 2", send(), 200, leased)
	expect("the third spends it", send(), 200, allowed)
	expect("a key pays from a bucket of its own", send("x-api-key: "+alice), 200, keyed)
	refills := 0
	for range 397 {
		if r := send(); r.Status != 200 {
			t.Fatalf("status %d within the burst", r.Status)
		} else if r.Calls["proxy_set_shared_data"] > 0 {
			refills++
		}
	}
	// Leases of 4, 8, 16, then 20 at most, and smaller ones where less is left: a tenth of the calls.
	if refills > 40 {
		t.Errorf("%d of 397 calls went to shared data", refills)
	}
	expect("the first refusal reads the bucket", send(), 429, read)
	expect("the next is remembered", send(), 429, refused)
	_, before := h.Shared().Operations()
	for i := range 1000 {
		expect(fmt.Sprintf("refusal %d", i), send(), 429, refused)
		h.Advance(4 * time.Microsecond) // 4 ms in all, less than the 5 until a token
	}
	if _, after := h.Shared().Operations(); after != before {
		t.Errorf("refusals wrote shared data %d times", after-before)
	}
}
