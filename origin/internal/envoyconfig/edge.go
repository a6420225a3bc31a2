// Package envoyconfig renders the configuration of an Envoy that carries Weir's filter.
package envoyconfig

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"github.com/weirproject/weir/envoy"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// maxHops bounds the proxies of one's own in front of an edge; more is a typing error.
const maxHops = 16

// unavailableFor is the Retry-After of the guard's 503: a filter that died is back after Envoy's first reload, which
// waits 1 s.
const unavailableFor = limit.Second

// Edge is the bootstrap of one Envoy. Addresses are host:port; all of them are required, the other fields have useful
// zero values.
type Edge struct {
	Listen    string // where clients connect: an IP address and a port
	Origin    string // where `weir serve` listens: an IP address or a name, and a port
	Admin     string // Envoy's admin: a loopback address and a port
	Filter    string // the file that `weir envoy filter` writes; it has to be there when Envoy starts
	Hops      int    // own proxies in front of this Envoy that append to X-Forwarded-For: 0 to 16
	AccessLog string // file of the access log; empty for standard output
	Node      string // Envoy's node id; empty for "weir-edge"
}

// Render is the bootstrap as YAML. The error joins one error for each field that is wrong.
func (e Edge) Render() ([]byte, error) {
	listen, listenErr := parseIP("edge", e.Listen)
	origin, originErr := parseAddress("origin", e.Origin)
	admin, adminErr := parseIP("admin", e.Admin)
	if ip, err := netip.ParseAddr(admin.Host); err == nil && !ip.IsLoopback() {
		adminErr = wrong("admin", e.Admin, "a loopback address, since whoever reaches the admin port can stop Envoy")
	}
	filter, filterErr := parseFilterPath(e.Filter)
	var hopsErr error
	if e.Hops < 0 || e.Hops > maxHops {
		hopsErr = wrong("hops", strconv.Itoa(e.Hops), fmt.Sprintf("0 to %d", maxHops))
	}
	if err := errors.Join(listenErr, originErr, adminErr, filterErr, hopsErr); err != nil {
		return nil, err
	}
	unavailable := header.Problem{Code: header.LimiterUnavailable, Mode: rule.RetryOnly, RetryAfter: unavailableFor}
	badRequest := header.Problem{Code: header.BadRequest, Mode: rule.None}
	return execute(bootstrapTemplate, map[string]any{
		"Listen": listen, "Origin": origin, "Admin": admin,
		"OriginType":   clusterType(origin.Host),
		"Filter":       filter,
		"FilterFolder": filepath.Dir(filter),
		"Hops":         e.Hops,
		"AccessLog":    or(e.AccessLog, "/dev/stdout"),
		"Node":         or(e.Node, "weir-edge"),
		"RetryAfter":   strconv.FormatInt(header.RetryAfterSeconds(unavailableFor), 10),
		"ProblemType":  header.ProblemType,
		"Unavailable":  string(unavailable.Append(nil)),
		"BadRequest":   string(badRequest.Append(nil)),
	})
}

var (
	bootstrapTemplate = parse("edge.yaml", envoy.Bootstrap)
	filterTemplate    = parse("filter.json", envoy.Filter)
)

func parse(name, text string) *template.Template {
	functions := template.FuncMap{"quote": quote, "base64": base64.StdEncoding.EncodeToString}
	return template.Must(template.New(name).Funcs(functions).Option("missingkey=error").Parse(text))
}

func execute(t *template.Template, values map[string]any) ([]byte, error) {
	var b bytes.Buffer
	if err := t.Execute(&b, values); err != nil {
		return nil, fmt.Errorf("render %s: %w", t.Name(), err)
	}
	return b.Bytes(), nil
}

// quote writes text as a JSON string, which is a YAML string as well.
func quote(text string) (string, error) {
	b, err := json.Marshal(text)
	return string(b), err
}

// address is a host without brackets, with a port.
type address struct {
	Host string
	Port uint16
}

func wrong(field, value, want string) error {
	return fmt.Errorf("%s: %q: want %s", field, value, want)
}

// parseAddress reads host:port, the host being an IP address or a name.
func parseAddress(field, text string) (address, error) {
	host, portText, err := net.SplitHostPort(text)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	if err != nil || portErr != nil || port == 0 || host == "" || strings.ContainsAny(host, " \t\n/%") {
		return address{}, wrong(field, text, "host:port, as 127.0.0.1:8080, with a port from 1 to 65535")
	}
	return address{host, uint16(port)}, nil
}

// parseIP reads ip:port.
func parseIP(field, text string) (address, error) {
	a, err := parseAddress(field, text)
	if err != nil {
		return address{}, err
	}
	if _, err := netip.ParseAddr(a.Host); err != nil {
		return address{}, wrong(field, text, "an IP address and a port, as 127.0.0.1:8080 or [::1]:8080")
	}
	return a, nil
}

// parseFilterPath makes the filter file's path absolute. Envoy tells the format of a file from its name.
func parseFilterPath(path string) (string, error) {
	if filepath.Ext(path) != ".json" {
		return "", wrong("filter", path, "a path that ends in .json")
	}
	return filepath.Abs(path)
}

// clusterType is how Envoy finds the origin: names are looked up, again and again.
func clusterType(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return "STATIC"
	}
	return "STRICT_DNS"
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
