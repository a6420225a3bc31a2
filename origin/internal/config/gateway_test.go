package config_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/config"
)

func TestTheGatewaysSettingsAreReadAsTheyStand(t *testing.T) {
	file := write(t, "weir.yaml", `
upstream: http://127.0.0.1:9000
upstream-timeout: 250ms
retry-jitter: 5s
tls: {gateway: {cert: c.pem, key: /etc/weir/k.pem, client-ca: ca.pem}}
trust: {edge-names: [edge-1.example.com, "spiffe://example.com/edge"]}
`)
	c, err := config.Load(file, none)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Dir(file)
	if c.Gateway != (config.Gateway{UpstreamTimeout: 250 * time.Millisecond, RetryJitter: 5 * time.Second}) {
		t.Errorf("%+v", c.Gateway)
	}
	if want := []string{filepath.Join(folder, "c.pem"), "/etc/weir/k.pem", filepath.Join(folder, "ca.pem")}; !slices.Equal(c.TLS.Files(), want) {
		t.Errorf("%v", c.TLS.Files())
	}
	if want := []string{"edge-1.example.com", "spiffe://example.com/edge"}; !slices.Equal(c.Trust.EdgeNames, want) {
		t.Errorf("%v", c.Trust.EdgeNames)
	}
	env := map[string]string{"WEIR_TLS_GATEWAY_CLIENT_CA": "other.pem", "WEIR_UPSTREAM_TIMEOUT": "1s", "WEIR_RETRY_JITTER": "0s", "WEIR_TRUST_EDGE_NAMES": "a, b.c"}
	c, err = config.Load(file, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil || c.TLS.ClientCA != "other.pem" || c.Gateway != (config.Gateway{UpstreamTimeout: time.Second}) || !slices.Equal(c.Trust.EdgeNames, []string{"a", "b.c"}) {
		t.Errorf("overridden: %+v, %v", c, err)
	}
}

func TestAGatewayWithoutAClientAuthorityAsksForNone(t *testing.T) {
	file := write(t, "weir.yaml", "upstream: http://127.0.0.1:9000\ntls: {gateway: {cert: c.pem, key: k.pem}}\n")
	c, err := config.Load(file, none)
	if err != nil || len(c.TLS.Files()) != 2 {
		t.Errorf("%+v, %v", c.TLS, err)
	}
	if _, err := config.Load(write(t, "weir.yaml", "upstream: http://127.0.0.1:9000\ntls: {gateway: {cert: c.pem, key: k.pem}}\ntrust: {edge-names: [e]}\n"), none); err == nil || !strings.Contains(err.Error(), "client-ca") {
		t.Errorf("names without authorities: %v", err)
	}
}
