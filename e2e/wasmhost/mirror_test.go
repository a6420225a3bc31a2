package wasmhost

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/e2e/stand"
)

// The tests of this file run one module on a real Envoy and on this host and compare what it logs, line for line.

const mirrorBootstrap = `node: {id: mirror, cluster: mirror}
static_resources:
  listeners:
  - name: l
    address: {socket_address: {address: 127.0.0.1, port_value: LISTEN}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          use_remote_address: true
          generate_request_id: false
          route_config:
            virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: weir_origin}}]}]
          http_filters:
          - name: weir
            config_discovery:
              config_source: {resource_api_version: V3, path_config_source: {path: filter.yaml, watched_directory: {path: .}}}
              type_urls: [type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm]
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - {name: weir_origin, type: STATIC, load_assignment: {cluster_name: c, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: UPSTREAM}}}}]}]}}
  - name: control
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http_protocol_options: {enable_trailers: true}}
    load_assignment: {cluster_name: c, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: UPSTREAM}}}}]}]}
  - {name: refused, type: STATIC, load_assignment: {cluster_name: c, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: CLOSED}}}}]}]}}
  - {name: empty, type: STATIC, load_assignment: {cluster_name: c}}
`

const mirrorFilter = `resources:
- "@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
  name: weir
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
    config:
      name: weir
      root_id: weir
      vm_config: {vm_id: weir, runtime: envoy.wasm.runtime.v8, code: {local: {filename: module.wasm}}}
      configuration: {"@type": type.googleapis.com/google.protobuf.StringValue, value: PLUGIN}
`

// mirrored answers everything the same way in both worlds: as a server for Envoy, as clusters for the host.
func mirrored(w http.ResponseWriter, r *http.Request) {
	w.Header()["X-B"] = []string{"b1", "b2"}
	w.Header().Set("X-Gone", "g")
	switch r.URL.Path {
	case "/mute":
		<-r.Context().Done()
	case "/closed", "/reset":
		c, b, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err) // the server has hijackable connections
		}
		if r.URL.Path == "/reset" {
			_, _ = b.WriteString("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf") // Envoy will tell
			_ = b.Flush()
		}
		_ = c.Close()
		return
	case "/trailers":
		w.Header().Set("Trailer", "X-T")
		defer w.Header().Set("X-T", "t1") // behind the body
	}
	_, _ = w.Write([]byte("answer"))
}

var mirroredAnswer = Answer{Status: 200, Body: "answer", Headers: Headers{
	{"x-b", "b1"}, {"x-b", "b2"}, {"x-gone", "g"}, {"date", "today"}, {"content-length", "6"}, {"content-type", "text/plain"},
	{"x-envoy-upstream-service-time", "1"}, // Envoy's own
}}

func mirroredControl(c Call) Outcome {
	switch c.Path() {
	case "/mute":
		return Outcome{Fault: Mute}
	case "/closed":
		return Outcome{Fault: Closed}
	case "/reset":
		return Outcome{Fault: Reset}
	case "/trailers":
		answer := mirroredAnswer
		// No length, but the way of coding and the announcement of the trailer.
		answer.Headers = append(slices.DeleteFunc(slices.Clone(answer.Headers), func(h Header) bool { return h.Name == "content-length" }),
			Header{"trailer", "X-T"}, Header{"transfer-encoding", "chunked"})
		return Outcome{Answer: answer, Trailers: Headers{{"x-t", "t1"}}}
	}
	return Outcome{Answer: mirroredAnswer}
}

// mirror is one module in both worlds.
type mirror struct {
	folder string
	envoy  *stand.Process
	url    string
	client *stand.Client
	host   *Host
}

func newMirror(t *testing.T, m *asm) *mirror {
	t.Helper()
	stand.Need(t, stand.Envoy)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(mirrored)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
	folder, listen := t.TempDir(), stand.FreePort(t)
	bootstrap := strings.NewReplacer("LISTEN", fmt.Sprint(listen), "CLOSED", fmt.Sprint(stand.FreePort(t)),
		"UPSTREAM", fmt.Sprint(l.Addr().(*net.TCPAddr).Port)).Replace(mirrorBootstrap)
	for name, content := range map[string][]byte{"envoy.yaml": []byte(bootstrap), "module.wasm": m.bytes()} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeFilter(t, folder, "plugin")
	both := &mirror{
		folder: folder,
		url:    fmt.Sprintf("http://127.0.0.1:%d", listen), client: stand.NewClient(t, "127.0.0.1"),
		host: newHost(t, m, Options{
			Upstream: func(Request) Answer { return mirroredAnswer },
			Clusters: map[string]Cluster{
				"control": mirroredControl,
				"refused": func(Call) Outcome { return Outcome{Fault: Refused} },
				"empty":   func(Call) Outcome { return Outcome{Fault: NoHosts} },
			},
		}),
		envoy: stand.Start(t, folder, "envoy", stand.Path(t, stand.Envoy), []string{"-c", "envoy.yaml", "--concurrency", "1",
			"--use-dynamic-base-id", "--log-level", "warning", "--component-log-level", "wasm:info", "--log-format", "%t %v"}, nil),
	}
	push(t, both.host, Config{Plugin: []byte("plugin")})
	return both
}

// writeFilter puts the filter's resource in place by rename, which is a push.
func writeFilter(t *testing.T, folder, plugin string) {
	t.Helper()
	part := filepath.Join(t.TempDir(), "part")
	if err := os.WriteFile(part, []byte(strings.Replace(mirrorFilter, "PLUGIN", plugin, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(part, filepath.Join(folder, "filter.yaml")); err != nil {
		t.Fatal(err)
	}
}

// push pushes a plugin configuration in both worlds.
func (m *mirror) push(t *testing.T, plugin string) {
	t.Helper()
	writeFilter(t, m.folder, plugin)
	push(t, m.host, Config{Plugin: []byte(plugin)})
}

// send sends one request to Envoy, once it listens, and to the host, where the clock then runs for a second.
func (m *mirror) send(t *testing.T, headers ...string) (envoy stand.Result, host Response) {
	t.Helper()
	m.envoy.Until(t, "answers", func() (err error) {
		envoy, err = m.client.Try(m.url+"/p?q=1", headers...)
		return err
	})
	r := Request{From: "127.0.0.1:1", Path: "/p?q=1", Authority: strings.TrimPrefix(m.url, "http://")}
	r.Headers.Add("user-agent", "Go-http-client/1.1")
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Headers.Add(name, value)
	}
	host = m.host.Send(0, r)
	m.host.Advance(time.Second)
	return envoy, host
}

var (
	wasmLine = regexp.MustCompile(`(?m)^(\d+) wasm log weir weir(?: weir)?: (.*)$`)
	port     = regexp.MustCompile(`127\.0\.0\.1:\d+$`)
)

// items joins lines to what belongs together: a line that begins with ? or # begins an item.
func items(lines []string) []string {
	var all []string
	for _, line := range lines {
		line = port.ReplaceAllString(strings.ReplaceAll(line, "\x00", "|"), "127.0.0.1:PORT")
		if len(all) == 0 || strings.HasPrefix(line, "?") || strings.HasPrefix(line, "#") {
			all = append(all, line)
			continue
		}
		all[len(all)-1] += " " + line
	}
	return all
}

// envoyItems are the items of Envoy's threads whose module logged a mark, by thread.
func (m *mirror) envoyItems(mark string) map[string][]string {
	lines := map[string][]string{}
	for _, l := range wasmLine.FindAllStringSubmatch(m.envoy.Log(), -1) {
		lines[l[1]] = append(lines[l[1]], l[2])
	}
	found := map[string][]string{}
	for thread, l := range lines {
		if all := items(l); slices.Contains(all, mark) {
			found[thread] = all
		}
	}
	return found
}

// await waits until Envoy's module has logged an item n times in all, and returns the items of the threads that did.
func (m *mirror) await(t *testing.T, mark string, n int) map[string][]string {
	t.Helper()
	var found map[string][]string
	m.envoy.Until(t, fmt.Sprintf("%d × %s", n, mark), func() error {
		found = m.envoyItems(mark)
		got := 0
		for _, all := range found {
			got += len(blocks(all, mark))
		}
		if got < n {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	})
	return found
}

// hostItems are the items that the module logged on the host, all threads in one.
func (m *mirror) hostItems() []string { return items(infoTexts(m.host)) }

func infoTexts(h *Host) []string {
	var lines []string
	for _, l := range h.Logs() {
		if l.Level == 2 {
			lines = append(lines, l.Text)
		}
	}
	return lines
}

// blocks are the runs of items from a mark to the next # item.
func blocks(all []string, mark string) [][]string {
	var found [][]string
	for i, item := range all {
		if item != mark {
			continue
		}
		end := i + 1
		for end < len(all) && !strings.HasPrefix(all[end], "#") {
			end++
		}
		found = append(found, all[i:end])
	}
	return found
}

// block marks the begin of a callback's items.
func (a *asm) block(mark string) []byte { return append(a.call("env.proxy_log", 2, mark), drop...) }

// look tells what the module can read and change in a callback.
func (a *asm) look() []byte {
	var code []byte
	add := func(c []byte) { code = append(code, c...) }
	for _, path := range []string{
		"source.address", "request.path", "request.url_path", "request.method", "request.host", "request.scheme",
		"request.useragent", "request.protocol", "request.headers.x-a", "request.headers.x-none", "response.headers.x-b",
		"response.headers.x-none", "response.code", "response.code_details", "xds.cluster_name", "cluster_name",
		"plugin_name", "plugin_root_id", "plugin_vm_id", "weir_verdict", "wasm.weir_verdict", "nonsense", "request.nonsense",
	} {
		add(a.tell("property "+path, "env.proxy_get_property", strings.ReplaceAll(path, ".", "\x00"), scratch, scratch+4))
	}
	for kind, name := range []string{":path", "t", "x-b", "t", "t", "t", ":status", "x-t"} {
		add(a.tell(fmt.Sprint("get ", kind), "env.proxy_get_header_map_value", kind, name, scratch, scratch+4))
		add(a.tell(fmt.Sprint("add ", kind), "env.proxy_add_header_map_value", kind, "x-add", "1"))
		add(a.tell(fmt.Sprint("replace ", kind), "env.proxy_replace_header_map_value", kind, "x-replaced", "1"))
		add(a.tell(fmt.Sprint("remove ", kind), "env.proxy_remove_header_map_value", kind, "x-gone"))
		add(a.tell(fmt.Sprint("remove missing ", kind), "env.proxy_remove_header_map_value", kind, "x-none"))
		add(a.logNumber(a.call("env.proxy_get_header_map_size", kind, scratch+16))) // its status alone
	}
	for kind := range 10 {
		add(a.tell(fmt.Sprint("buffer ", kind), "env.proxy_get_buffer_bytes", kind, 0, 100, scratch, scratch+4))
	}
	return code
}

// compare reports the first difference of two runs of items.
func compare(t *testing.T, what string, envoy, host []string) {
	t.Helper()
	for i := range max(len(envoy), len(host)) {
		at := func(all []string) string {
			if i < len(all) {
				return all[i]
			}
			return "nothing"
		}
		if at(envoy) != at(host) {
			t.Errorf("%s, item %d: Envoy %q, this host %q", what, i, at(envoy), at(host))
		}
	}
}

func TestRealEnvoyShowsAStreamAlike(t *testing.T) {
	m := newAsm()
	m.export("proxy_on_request_headers", m.block("#request"), m.call("env.proxy_set_property", "weir_verdict", "1"), drop, m.look(),
		m.call("env.proxy_get_header_map_value", requestHeaders, "local", scratch, scratch+4), eqz,
		when(m.call("env.proxy_send_local_response", 429, "weir_x y", "{}", encodePairs(Headers{{"x-b", "local"}}), 8), drop),
		i32(0))
	m.export("proxy_on_response_headers", m.block("#response"), m.look(), i32(0))
	m.export("proxy_on_log", m.block("#log"), m.look(), m.block("#done"))
	both := newMirror(t, m)
	for _, c := range []struct {
		what    string
		headers []string
		status  int
	}{
		{"from the upstream", []string{"x-a: 1", "x-a: 2"}, 200},
		{"a local reply", []string{"x-a: 1", "local: 1"}, 429},
	} {
		envoy, host := both.send(t, c.headers...)
		if envoy.Status != c.status || host.Status != c.status {
			t.Errorf("%s: Envoy answers %d, this host %d", c.what, envoy.Status, host.Status)
		}
		for _, name := range []string{"X-B", "X-Add", "X-Replaced", "X-Gone"} {
			value, _ := host.Headers.Joined(name)
			if got := strings.Join(envoy.Header.Values(name), ","); got != value {
				t.Errorf("%s: the client sees %s %q behind Envoy, %q behind this host", c.what, name, got, value)
			}
		}
	}
	for _, mark := range []string{"#request", "#response", "#log"} {
		host := blocks(both.hostItems(), mark)
		for _, all := range both.await(t, "#done", 2) {
			for i, block := range blocks(all, mark) {
				compare(t, fmt.Sprintf("%s %d", mark, i), block, host[i])
			}
		}
	}
}

// callOutModule calls what a request's headers ask for and tells of each outcome.
func callOutModule() *asm {
	m := newAsm()
	to := func(path string) string {
		return encodePairs(Headers{{":method", "GET"}, {":path", path}, {":authority", "c"}})
	}
	call := func(mark, cluster, headers, body, trailers string, timeout int) []byte {
		return slices.Concat(m.tell("call "+mark, "env.proxy_http_call", cluster, headers, body, trailers, timeout, scratch+16),
			m.logNumber(load(scratch+16)))
	}
	asked := func(header string, code ...[]byte) []byte {
		return slices.Concat(m.call("env.proxy_get_header_map_value", requestHeaders, header, scratch, scratch+4), eqz, when(code...))
	}
	m.export("proxy_on_request_headers", m.block("#request"),
		asked("all",
			call("good", "control", to("/good"), "body", encodePairs(Headers{{"x-t", "1"}}), 1000),
			call("unknown cluster", "nowhere", to("/"), "", "", 1000),
			call("no path", "control", encodePairs(Headers{{":method", "GET"}, {":authority", "c"}}), "", "", 1000),
			call("no method", "control", encodePairs(Headers{{":path", "/"}, {":authority", "c"}}), "", "", 1000),
			call("no authority", "control", encodePairs(Headers{{":path", "/"}, {":method", "GET"}}), "", "", 1000),
			call("negative timeout", "control", to("/"), "", "", -1),
			call("damaged headers", "control", to("/")[:9], "", "", 1000),
			call("no headers", "control", "", "", "", 1000),
			call("no hosts", "empty", to("/"), "", "", 1000),
			call("refused", "refused", to("/"), "", "", 1000),
			call("mute", "control", to("/mute"), "", "", 50),
			call("closed", "control", to("/closed"), "", "", 1000),
			call("trailers", "control", to("/trailers"), "", "", 1000)),
		asked("reset", call("reset", "control", to("/reset"), "", "", 1000)),
		asked("plain", call("plain", "control", to("/good"), "", "", 0)),
		i32(0))
	m.export("proxy_on_http_call_response", m.block("#called"),
		m.logNumber(arg(0)), m.logNumber(arg(1)), m.logNumber(arg(2)), m.logNumber(arg(3)), m.logNumber(arg(4)),
		m.tell("status", "env.proxy_get_status", scratch+16, scratch, scratch+4), m.logNumber(load(scratch+16)),
		m.tell("one value", "env.proxy_get_header_map_value", callHeaders, "x-b", scratch, scratch+4),
		m.look(),
		m.tell("a piece", "env.proxy_get_buffer_bytes", bufferCallBody, 2, 3, scratch, scratch+4),
		m.tell("the rest", "env.proxy_get_buffer_bytes", bufferCallBody, 4, 1000, scratch, scratch+4),
		m.tell("beyond", "env.proxy_get_buffer_bytes", bufferCallBody, 900, 5, scratch, scratch+4),
		m.block("#done"))
	return m
}

func TestRealEnvoyCallsOutAlike(t *testing.T) {
	both := newMirror(t, callOutModule())
	said := regexp.MustCompile(`^#called (\d+) (\d+) .*$`)
	// What each call's outcome says, by token: calls of one moment end in any order.
	outcomes := func(all []string) map[string][]string {
		found := map[string][]string{}
		token := ""
		for _, item := range all {
			if m := said.FindStringSubmatch(item); m != nil {
				token = m[2]
			} else if strings.HasPrefix(item, "#") {
				token = ""
			}
			if token != "" {
				found[token] = append(found[token], item)
			}
		}
		return found
	}
	ended := 0
	for _, step := range []struct {
		header string
		ends   int
	}{{"all", 5}, {"reset", 1}, {"plain", 1}} {
		both.send(t, step.header+": 1")
		ended += step.ends
		both.await(t, "#done", ended)
	}
	for _, all := range both.await(t, "#done", ended) {
		host := both.hostItems()
		compare(t, "the calls", slices.Concat(blocks(all, "#request")...), slices.Concat(blocks(host, "#request")...))
		envoy, here := outcomes(all), outcomes(host)
		if len(envoy) != ended || len(here) != ended {
			t.Errorf("%d calls ended in Envoy, %d here, want %d", len(envoy), len(here), ended)
		}
		for token, said := range envoy {
			compare(t, "token "+token, said, here[token])
		}
	}
}
