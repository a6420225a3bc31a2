package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckConfigTellsOfIssuers(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"weir.rules.yaml": "version: 1\nrules:\n- {name: r, where: origin, by: [tenant], limit: 3/1h}\n",
		"weir.yaml":       "upstream: http://127.0.0.1:9000\nidentity: {oidc: [{issuer: \"https://a.example\", audience: [a], claims: {tenant: org}}, {issuer: \"https://b.example\", audience: [a]}]}\n",
		"bare.yaml":       "upstream: http://127.0.0.1:9000\nidentity: {oidc: [{issuer: \"https://b.example\", audience: [a]}]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, note, err := invoke(t, newCheckConfigCommand(), filepath.Join(dir, "weir.yaml"))
	if err != nil || !strings.Contains(out, "0 keys, 2 issuers of users, store memory") || strings.Contains(note, "limits nobody") {
		t.Errorf("%s%s%v", out, note, err)
	}
	// Users without tenants do not help a rule by tenant.
	if _, note, err = invoke(t, newCheckConfigCommand(), filepath.Join(dir, "bare.yaml")); err != nil || !strings.Contains(note, "rules[0].by: \"tenant\": needs keys, of which "+filepath.Join(dir, "bare.yaml")+" names no file") {
		t.Errorf("%s%v", note, err)
	}
}

// What is legal may still surprise: these are warnings, and the exit code is 0.
func TestCheckConfigWarnsOfWhatSurprises(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, content := range map[string]string{
		"weir.rules.yaml": `version: 1
tiers: {free: {limit: 1/1m}, paid: {limit: 9/1m}}
rules:
- {name: by-tier, where: origin, by: ["key|address"], tier: true}
- {name: short, where: origin, by: [address], algorithm: leaky-queue, limit: 2/1s, burst: 61}
- {name: long, where: origin, by: [key], algorithm: leaky-queue, limit: 2/1s, burst: 62}
`,
		"weir.yaml": "upstream: http://127.0.0.1:9000\nkeys: keys.yaml\n",
	} {
		if err := os.WriteFile(at(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for id, tier := range map[string]string{"a": "gold", "b": "paid", "c": ""} {
		if _, _, err := invoke(t, newKeyCommand(), "new", "--id", id, "--tier", tier, "--keys", at("keys.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	_, note, err := invoke(t, newCheckConfigCommand(), at("weir.yaml"))
	want := "warning: " + at("weir.rules.yaml") + `:6: rules[2].burst: "62": a call at its end would wait for longer than the 30 s that the gateway holds one, and is answered 503 instead
warning: ` + at("keys.yaml") + `: tier: "gold": is no tier of the rules, so that key a and others of it get the strictest
`
	if err != nil || note != want {
		t.Errorf("%v\ngot:\n%s\nwant:\n%s", err, note, want)
	}
}
