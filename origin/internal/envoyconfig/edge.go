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
	"time"
	"unicode/utf8"

	"github.com/weirproject/weir/envoy"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// What an Edge's zero fields stand for.
const (
	// DefaultMaxConnections is at some 50 KiB each with buffers 2.5 GB at worst.
	DefaultMaxConnections = 50_000
	// DefaultRequestTimeout is what Envoy's own guide to edge proxies advises.
	DefaultRequestTimeout = 5 * time.Minute
	DefaultStreamIdle     = time.Minute
)

const (
	maxConnections = 1_000_000
	minTimeout     = time.Second
	maxTimeout     = 24 * time.Hour
	// minHeap is more than an idle Envoy holds, so that the smallest heap still serves.
	minHeap = 128 << 20
	maxHeap = 1 << 40
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
	Control   string // where the control plane answers for key deltas: an IP address or a name, and a port; empty for none
	Health    string // where GET /healthz is answered: an IP address and a port; empty for nowhere
	// Certificate is the file that `weir envoy certificate` writes; empty for clear text.
	Certificate    string
	MaxConnections int           // clients' connections, 1 to 1,000,000; 0 for [DefaultMaxConnections]
	MaxHeap        int64         // bytes of Envoy's heap, at the approach of which it sheds load: 128 MiB to 1 TiB; 0 for no bound
	RequestTimeout time.Duration // until a request is whole or its answer begins, 1 s to 24 h; 0 for [DefaultRequestTimeout]
	StreamIdle     time.Duration // until a silent request, stream or websocket ends, 1 s to 24 h; 0 for [DefaultStreamIdle]
}

// Render is the bootstrap as YAML. The error joins one error for each field that is wrong.
func (e Edge) Render() ([]byte, error) {
	listen, listenErr := parseIP("edge", e.Listen)
	origin, originErr := parseAddress("origin", e.Origin)
	admin, adminErr := parseIP("admin", e.Admin)
	if ip, err := netip.ParseAddr(admin.Host); err == nil && !ip.IsLoopback() {
		adminErr = wrong("admin", e.Admin, "a loopback address, since whoever reaches the admin port can stop Envoy")
	}
	filter, filterErr := parseDiscoveryPath("filter", e.Filter)
	var control, health *address
	var controlErr, healthErr, certificateErr error
	if e.Control != "" {
		control, controlErr = optional(parseAddress("control", e.Control))
	}
	if e.Health != "" {
		health, healthErr = optional(parseIP("health", e.Health))
	}
	var certificate string
	if e.Certificate != "" {
		certificate, certificateErr = parseDiscoveryPath("certificate", e.Certificate)
	}
	var hopsErr error
	if e.Hops < 0 || e.Hops > maxHops {
		hopsErr = wrong("hops", strconv.Itoa(e.Hops), fmt.Sprintf("0 to %d", maxHops))
	}
	connections, connectionsErr := within("max-connections", or(e.MaxConnections, DefaultMaxConnections), 1, maxConnections)
	requestTimeout, requestErr := within("request-timeout", or(e.RequestTimeout, DefaultRequestTimeout), minTimeout, maxTimeout)
	streamIdle, idleErr := within("stream-idle", or(e.StreamIdle, DefaultStreamIdle), minTimeout, maxTimeout)
	var heapErr error
	if e.MaxHeap != 0 && (e.MaxHeap < minHeap || e.MaxHeap > maxHeap) {
		heapErr = wrong("max-heap", strconv.FormatInt(e.MaxHeap>>20, 10)+"MiB", "128MiB to 1024GiB")
	}
	if err := errors.Join(listenErr, originErr, adminErr, filterErr, controlErr, healthErr, certificateErr, hopsErr,
		connectionsErr, heapErr, requestErr, idleErr); err != nil {
		return nil, err
	}
	if err := apart(listen, admin, health); err != nil {
		return nil, err
	}
	controlType := ""
	if control != nil {
		controlType = clusterType(control.Host)
	}
	unavailable := header.Problem{Code: header.LimiterUnavailable, Mode: rule.RetryOnly, RetryAfter: unavailableFor}
	overloaded := header.Problem{Code: header.Overloaded, Mode: rule.RetryOnly, RetryAfter: unavailableFor}
	badRequest := header.Problem{Code: header.BadRequest, Mode: rule.None}
	return execute(bootstrapTemplate, map[string]any{
		"Listen": listen, "Origin": origin, "Admin": admin,
		"Control": control, "Health": health,
		"OriginType":   clusterType(origin.Host),
		"Filter":       filter,
		"FilterFolder": filepath.Dir(filter),
		"Hops":         e.Hops,
		"AccessLog":    or(e.AccessLog, "/dev/stdout"),
		"Node":         or(e.Node, "weir-edge"),
		"RetryAfter":   strconv.FormatInt(header.RetryAfterSeconds(unavailableFor), 10),
		"ProblemType":  header.ProblemType,
		"Unavailable":  string(unavailable.Append(nil)),
		"Overloaded":   string(overloaded.Append(nil)),
		"BadRequest":   string(badRequest.Append(nil)),
		"ControlType":  controlType,
		"Certificate":  certificate, "CertificateFolder": filepath.Dir(certificate),
		"MaxConnections": connections, "MaxHeap": e.MaxHeap,
		"RequestTimeout": seconds(requestTimeout), "StreamIdle": seconds(streamIdle),
	})
}

var (
	bootstrapTemplate   = parse("edge.yaml", envoy.Bootstrap)
	filterTemplate      = parse("filter.json", envoy.Filter)
	certificateTemplate = parse("certificate.json", envoy.Certificate)
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

// quote writes text as a JSON string, which is a YAML string as well. Bytes that are no UTF-8 would come out as others: a
// path as that of another file, which Envoy then watches in vain.
func quote(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", fmt.Errorf("%q: want UTF-8", text)
	}
	b, err := json.Marshal(text)
	return string(b), err
}

// address is a host without brackets, with a port.
type address struct {
	Host string
	Port uint16
}

// Any6 tells whether a listener here is for every address of the host. Such a one takes IPv4 clients as well, under their
// IPv4 addresses, so that one listener serves both; Envoy left alone would take IPv6 only.
func (a address) Any6() bool {
	ip, err := netip.ParseAddr(a.Host)
	return err == nil && ip == netip.IPv6Unspecified()
}

// clashes tells whether two listeners cannot be at both addresses: the same port, of one host or of every host.
func (a address) clashes(b address) bool {
	first, errA := netip.ParseAddr(a.Host)
	second, errB := netip.ParseAddr(b.Host)
	if errA != nil || errB != nil || a.Port != b.Port {
		return false
	}
	return first == second || a.Any6() || b.Any6() || (first.IsUnspecified() || second.IsUnspecified()) && first.Is4() == second.Is4()
}

// apart checks that Envoy's listeners, of which health may be nil, are not in each other's way: Envoy would say so only
// when it starts.
func apart(listen, admin address, health *address) error {
	var errs []error
	clash := func(field string, a address, other string, b address) {
		if a.clashes(b) {
			errs = append(errs, wrong(field, a.String(), "another port than that of "+other+", "+b.String()))
		}
	}
	clash("admin", admin, "edge", listen)
	if health != nil {
		clash("health", *health, "edge", listen)
		clash("health", *health, "admin", admin)
	}
	return errors.Join(errs...)
}

// String is host:port.
func (a address) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port))) }

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

// optional is for a field that may be absent, which nil stands for in a template.
func optional(a address, err error) (*address, error) { return &a, err }

// parseDiscoveryPath makes the path of a file that Envoy discovers absolute. Envoy tells the format from its name.
func parseDiscoveryPath(field, path string) (string, error) {
	if filepath.Ext(path) != ".json" {
		return "", wrong(field, path, "a path that ends in .json")
	}
	return filepath.Abs(path)
}

// within checks low ≤ v ≤ high.
func within[T int | time.Duration](field string, v, low, high T) (T, error) {
	if v < low || v > high {
		return 0, wrong(field, spell(v), spell(low)+" to "+spell(high))
	}
	return v, nil
}

// spell writes a value as people do: 24h, where a duration of its own accord is 24h0m0s.
func spell(v any) string {
	text := fmt.Sprint(v)
	if _, ok := v.(time.Duration); ok {
		for _, zero := range []string{"m0s", "h0m"} {
			if strings.HasSuffix(text, zero) {
				text = text[:len(text)-2]
			}
		}
	}
	return text
}

// seconds writes a duration as Envoy reads it.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%d.%09ds", d/time.Second, d%time.Second)
}

// clusterType is how Envoy finds the origin: names are looked up, again and again.
func clusterType(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return "STATIC"
	}
	return "STRICT_DNS"
}

// or is v, or what its zero value stands for.
func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
