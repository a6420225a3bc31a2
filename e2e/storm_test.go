package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/e2e/stand"
)

// standardRules are what most scenarios run under.
func standardRules(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("scenarios", "rules", "standard.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A storm of forged keys is held by the edge alone: no call to the API, no command to the store.
func TestForgedKeysCostNobodyBehindTheEdge(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy, stand.Valkey)
	api, valkey, keyring := stand.StartAPI(t), stand.StartValkey(t), stand.NewKeyring(t)
	alice := keyring.Issue(t, "alice")
	rules := standardRules(t)
	o := stand.StartOrigin(t, stand.OriginSettings{
		Upstream: api.URL, Rules: rules, Keys: keyring.File(), Valkey: valkey.Address, Trust: loopback,
	})
	e := stand.StartEdge(t, stand.EdgeSettings{Origin: o.Gateway, Rules: rules, Keys: keyring.File()})
	before := valkey.Commands(t)
	c := stand.NewClient(t, "127.0.0.66")
	storeCommands := func() float64 {
		return stand.Metric(t, stand.NewClient(t, ""), o.Admin+"/metrics", "weir_store_commands_total")
	}
	metric := storeCommands()

	counts := map[int]int{}
	for range 400 {
		counts[c.Get(t, e.URL+"/search", "X-Api-Key: "+keyring.Forge(t)).Status]++
	}
	if counts[401] != 20 || counts[429] != 380 {
		t.Errorf("answers %v, want 20 × 401 while the bucket of the address lasts, then 429", counts)
	}
	if api.Calls() != 0 {
		t.Errorf("%d calls reached the API", api.Calls())
	}
	for name, n := range valkey.Commands(t) {
		if n != before[name] {
			t.Errorf("the store ran %s %d times during the storm", name, n-before[name])
		}
	}
	if got := storeCommands(); got != metric {
		t.Errorf("weir_store_commands_total went from %v to %v during the storm", metric, got)
	}
	log := e.Access(t)
	if log == "" {
		e.Until(t, "writes its access log", func() error { log = e.Access(t); return unless(log != "", "empty") })
	}
	for _, want := range []string{"weir_key_unknown.flood-per-address", "weir_rate_limited.flood-per-address"} {
		if !strings.Contains(log, want) {
			t.Errorf("Envoy's access log does not say %s:\n%.2000s", want, log)
		}
	}
	if strings.Contains(log, "wk_") {
		t.Error("Envoy's access log holds a key")
	}

	// An honest key of the same address is served all the while, and costs the store something.
	if r := c.Get(t, e.URL+"/search", "X-Api-Key: "+alice); r.Status != 200 {
		t.Errorf("an issued key during the storm: %d %s", r.Status, r.Body)
	}
	if got := storeCommands(); got <= metric {
		t.Error("weir_store_commands_total does not count the honest call: it proves nothing about the storm")
	}
}
