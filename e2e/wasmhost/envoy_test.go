package wasmhost

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/weirproject/weir/e2e/stand"
)

const loadOnly = `static_resources:
  listeners:
  - name: l
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config: {virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, direct_response: {status: 200}}]}]}
          http_filters:
          - name: weir
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config: {name: weir, vm_config: {vm_id: weir, runtime: envoy.wasm.runtime.v8, code: {local: {filename: module.wasm}}}}
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
`

// envoyLoads asks a real Envoy to load a module, and returns what it says about it.
func envoyLoads(t *testing.T, module []byte) (loaded bool, said string) {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string][]byte{"envoy.yaml": []byte(loadOnly), "module.wasm": module} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(stand.Path(t, stand.Envoy), "-c", "envoy.yaml", "--mode", "validate", "--concurrency", "1")
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	return err == nil, string(out)
}

// calling is a module that makes one host call with zeros from _initialize.
func calling(im Import) []byte {
	m := newAsm()
	code := []byte{}
	for _, kind := range im.Params {
		if kind == api.ValueTypeI64 {
			code = append(code, 0x42, 0)
			continue
		}
		code = append(code, i32(0)...)
	}
	body := m.call(im.Module+"."+im.Name, code)
	if len(im.Results) > 0 {
		body = append(body, drop...)
	}
	return m.export("_initialize", body).bytes()
}

// The host's table and rules are claims about Envoy; a new Envoy that changes them shows here.
func TestRealEnvoyOffersThisTable(t *testing.T) {
	stand.Need(t, stand.Envoy)
	m := newAsm()
	for _, im := range Offered() {
		m.declare(im)
	}
	if loaded, said := envoyLoads(t, m.bytes()); !loaded {
		t.Errorf("Envoy does not load a module that imports the whole table:\n%s", said)
	}
	for _, name := range []string{"env.proxy_get_log_level", "env.proxy_get_configuration", "wasi_snapshot_preview1.proc_raise"} {
		module, function, _ := strings.Cut(name, ".")
		m := newAsm()
		m.declare(Import{Module: module, Name: function})
		loaded, said := envoyLoads(t, m.bytes())
		_, err := New(m.bytes(), Options{})
		if loaded || !strings.Contains(said, "missing import: "+name) || err == nil {
			t.Errorf("%s: Envoy loaded it: %v, this host: %v; the table lacks it", name, loaded, err)
		}
	}
}

func TestRealEnvoyRestrictsInitializeAlike(t *testing.T) {
	stand.Need(t, stand.Envoy)
	sample := slices.DeleteFunc(Offered(), func(im Import) bool {
		// All of WASI, and of proxy-wasm what a filter would be tempted by.
		return im.Module == "env" && im.Name != "proxy_log" && im.Name != "proxy_define_metric" && im.Name != "proxy_get_shared_data"
	})
	for _, im := range sample {
		loaded, said := envoyLoads(t, calling(im))
		if loaded != inInitialize(im) {
			t.Errorf("%s.%s from _initialize: Envoy allows it: %v, this host: %v\n%s", im.Module, im.Name, loaded, inInitialize(im), said)
		}
	}
}
