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
