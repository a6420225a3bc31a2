package benchedge

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/weirproject/weir/e2e/stand"
)

// object is a part of Envoy's configuration.
type object = map[string]any

// chain makes one listener's connection manager out of the production one, hcm, without its access log.
type chain func(hcm object)

// whole is what `weir envoy config` renders.
func whole(object) {}

// bare has nothing of Weir's on a request's way but what filters are given.
func bare(filters ...object) chain {
	return func(hcm object) {
		delete(hcm, "early_header_mutation_extensions")
		delete(hcm["route_config"].(object), "request_headers_to_add")
		own := hcm["http_filters"].([]any)
		list := []any{}
		for _, f := range filters {
			list = append(list, f)
		}
		hcm["http_filters"] = append(list, own[len(own)-1]) // the router
	}
}

// without is the production chain less the filters of the given names.
func without(names ...string) chain {
	return func(hcm object) {
		var list []any
		for _, f := range hcm["http_filters"].([]any) {
			drop := false
			for _, name := range names {
				drop = drop || f.(object)["name"] == name
			}
			if !drop {
				list = append(list, f)
			}
		}
		hcm["http_filters"] = list
	}
}

// plainReplies leaves out what the production chain does to Envoy's own answers.
func plainReplies(hcm object) { delete(hcm, "local_reply_config") }

// nativeLimit is Envoy's own limiter with a bucket for each client address, the 20 used last of them.
func nativeLimit(tokens int) object {
	bucket := func(n int) object {
		return object{"max_tokens": n, "tokens_per_fill": n, "fill_interval": "3600s"}
	}
	percent := object{"default_value": object{"numerator": 100, "denominator": "HUNDRED"}}
	return object{"name": "envoy.filters.http.local_ratelimit", "typed_config": object{
		"@type":       "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
		"stat_prefix": "native",
		// Of a request that matches no descriptor, which none does.
		"token_bucket":                               bucket(1),
		"always_consume_default_token_bucket":        false,
		"filter_enabled":                             percent,
		"filter_enforced":                            percent,
		"rate_limits":                                []any{object{"actions": []any{object{"remote_address": object{}}}}},
		"max_dynamic_descriptors":                    20,
		"local_rate_limit_per_downstream_connection": false,
		"descriptors": []any{object{
			"entries": []any{object{"key": "remote_address"}}, "token_bucket": bucket(tokens),
		}},
	}}
}

// emptyWasm is a filter that does nothing, configured as Weir's is.
func emptyWasm(module string) object {
	return object{"name": "empty", "typed_config": object{
		"@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
		"config": object{"name": "empty", "root_id": "empty", "failure_policy": "FAIL_RELOAD", "vm_config": object{
			"vm_id": "empty", "runtime": "envoy.wasm.runtime.v8", "code": object{"local": object{"filename": module}},
			"environment_variables": object{"key_values": object{"GOTRACEBACK": "none"}},
		}},
	}}
}

// envoy is one Envoy process with one worker and a listener for each chain.
type envoy struct {
	name   string
	module string // how the filter was built
	bundle []byte // what it runs; nil where no chain has the filter
	chains map[string]chain

	*stand.Process // nil until it is started
	folder         string
	admin          string
	listeners      map[string]string // address by chain
	worker         worker
}

func (e *envoy) start(b *testing.B, upstream string) {
	b.Helper()
	e.folder, e.listeners = b.TempDir(), map[string]string{}
	if e.bundle != nil {
		e.push(b, e.bundle)
	} else if err := os.WriteFile(e.file("filter.json"), []byte("{}"), 0o644); err != nil {
		b.Fatal(err)
	}
	admin := stand.Loopback(b)
	e.admin = "http://" + admin
	rendered := e.file("rendered.yaml")
	weir(b, "envoy", "config", "--edge", stand.Loopback(b), "--origin", upstream, "--admin", admin, "--filter", e.file("filter.json"), "-o", rendered)
	bootstrap := e.file("envoy.json")
	if err := os.WriteFile(bootstrap, e.bootstrap(b, rendered), 0o644); err != nil {
		b.Fatal(err)
	}
	e.Process = stand.Start(b, e.folder, "envoy-"+e.name, stand.Path(b, stand.Envoy), []string{
		"-c", bootstrap, "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning",
	}, nil)
	client := stand.NewClient(b, "")
	e.Until(b, "is ready", func() error {
		r, err := client.Try(e.admin + "/ready")
		if err == nil && r.Status != http.StatusOK {
			err = fmt.Errorf("/ready: status %d", r.Status)
		}
		return err
	})
	e.worker = findWorker(b, e.PID())
}

func (e *envoy) file(name string) string { return filepath.Join(e.folder, name) }

// bootstrap is the rendered bootstrap with one listener for each chain in its listener's place.
func (e *envoy) bootstrap(b *testing.B, rendered string) []byte {
	b.Helper()
	text, err := os.ReadFile(rendered)
	if err != nil {
		b.Fatal(err)
	}
	read := func() object {
		var whole object
		if err := yaml.Unmarshal(text, &whole); err != nil {
			b.Fatal(err)
		}
		return whole
	}
	out := read()
	var listeners []any
	for name, change := range e.chains {
		listener := read()["static_resources"].(object)["listeners"].([]any)[0].(object) // a copy of its own
		listener["name"] = name
		address := stand.Loopback(b)
		host, port, _ := net.SplitHostPort(address)
		number, _ := strconv.Atoi(port)
		listener["address"] = object{"socket_address": object{"address": host, "port_value": number}}
		e.listeners[name] = address
		hcm := listener["filter_chains"].([]any)[0].(object)["filters"].([]any)[0].(object)["typed_config"].(object)
		hcm["stat_prefix"] = name
		delete(hcm, "access_log") // the same for all, and as much as a filter: it would hide what differs
		route := hcm["route_config"].(object)["virtual_hosts"].([]any)[0].(object)
		direct := object{"match": object{"path": directPath}, "direct_response": object{"status": 200, "body": object{"inline_string": "ok\n"}}}
		route["routes"] = append([]any{direct}, route["routes"].([]any)...)
		change(hcm)
		listeners = append(listeners, listener)
	}
	out["static_resources"].(object)["listeners"] = listeners
	encoded, err := json.Marshal(out)
	if err != nil {
		b.Fatal(err)
	}
	return encoded
}

// push renames a new filter resource into place.
func (e *envoy) push(b *testing.B, bundle []byte) {
	b.Helper()
	path := e.file("bundle")
	if err := os.WriteFile(path, bundle, 0o644); err != nil {
		b.Fatal(err)
	}
	weir(b, "envoy", "filter", "--bundle", path, "--wasm", e.module, "-o", e.file("filter.json"))
}

// stat is one of Envoy's gauges or counters; 0 where there is none of that name.
func (e *envoy) stat(b *testing.B, name string) int {
	b.Helper()
	edge := stand.Edge{Admin: e.admin}
	return edge.Stat(b, stand.NewClient(b, ""), name)
}

func weir(b *testing.B, args ...string) {
	b.Helper()
	if out, err := exec.Command(stand.Path(b, stand.Weir), args...).CombinedOutput(); err != nil {
		b.Fatalf("weir %s: %v\n%s", strings.Join(args[:2], " "), err, out)
	}
}
