// Package replay runs rules over a recorded trace in virtual time.
//
// The time is the trace's own, so that a day is decided in seconds and twice the same trace gives twice the same answer.
// Nothing grows with the length of a trace: states are dropped when they equal fresh ones, the most refused are counted
// by an algorithm of fixed size.
package replay

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Call is one line of a trace. Parts that the line has not are empty.
type Call struct {
	At      limit.Micros // since the Unix epoch
	Caller  rule.Caller
	Address netip.Addr
	Method  string // GET where the line has none
	Path    string // as the client sent it; / where the line has none
	Host    string
	Headers []string // names
	Cost    int64    // see HasCost
	HasCost bool     // false: each rule's own cost
}

// Format is how a trace is written.
type Format string

// The formats.
const (
	JSONL    Format = "jsonl"    // one JSON object a line: t, key, user, tenant, tier, address, method, path, host, headers, cost
	Common   Format = "common"   // the common log format of web servers
	Combined Format = "combined" // the same with referer and user agent
	Envoy    Format = "envoy"    // Envoy's default format, or the JSON that Weir's own Envoy writes
)

// Formats are all formats, in the order that messages list them.
var Formats = []Format{JSONL, Common, Combined, Envoy}

// ParseFormat reads a format's name.
func ParseFormat(text string) (Format, error) {
	var names []string
	for _, f := range Formats {
		if string(f) == text {
			return f, nil
		}
		names = append(names, string(f))
	}
	return "", fmt.Errorf("format %q: want one of %s", text, strings.Join(names, ", "))
}

// guess tells the format of a trace by its first line.
func guess(line []byte) Format {
	switch {
	case len(line) > 0 && line[0] == '{':
		if strings.Contains(string(line), `"t"`) {
			return JSONL
		}
		return Envoy
	case len(line) > 0 && line[0] == '[':
		return Envoy
	}
	if (&logParser{combined: true}).parse(line, &Call{}) == nil {
		return Combined
	}
	return Common
}

// parser reads one line into a call, which is zero.
type parser interface {
	parse(line []byte, c *Call) error
}

func newParser(f Format) parser {
	switch f {
	case Common:
		return &logParser{}
	case Combined:
		return &logParser{combined: true}
	case Envoy:
		return &envoyParser{}
	}
	return &jsonParser{}
}

// parse reads a line and fills in what rules need.
func parse(p parser, line []byte, c *Call) error {
	*c = Call{}
	if err := p.parse(line, c); err != nil {
		return err
	}
	if c.At < 0 { // a state that was never used stands for instant 0
		return fmt.Errorf("is of %s, before 1970", clock(c.At))
	}
	if c.Method == "" {
		c.Method = "GET"
	}
	if c.Path == "" {
		c.Path = "/"
	}
	return nil
}

// parseAddress reads an address with or without brackets and port. `-` is none.
func parseAddress(text string) (netip.Addr, error) {
	if text == "" || text == "-" {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		ap, portErr := netip.ParseAddrPort(text)
		if portErr != nil {
			return netip.Addr{}, fmt.Errorf("address %s: want an IP address", shown(text))
		}
		a = ap.Addr()
	}
	return a.Unmap().WithZone(""), nil
}

// parseTarget splits the target of a request line: a path, or the URL that a proxy is asked for.
func parseTarget(target string, c *Call) error {
	switch {
	case strings.HasPrefix(target, "/") || target == "*":
		c.Path = target
	case strings.Contains(target, "://"):
		_, rest, _ := strings.Cut(target, "://")
		c.Host, c.Path = rest, "/"
		if at := strings.IndexAny(rest, "/?"); at >= 0 {
			c.Host, c.Path = rest[:at], "/"+strings.TrimPrefix(rest[at:], "/")
		}
	case c.Method == "CONNECT":
		c.Host, c.Path = target, "/"
	default:
		return fmt.Errorf("request target %s: want a path or a URL", shown(target))
	}
	return nil
}

var errMethod = errors.New("request line: want METHOD TARGET PROTOCOL")

// parseRequestLine reads `GET /path HTTP/1.1`.
func parseRequestLine(text string, c *Call) error {
	method, rest, ok := strings.Cut(text, " ")
	at := strings.LastIndexByte(rest, ' ')
	if !ok || at < 0 || !validMethod(method) || !strings.HasPrefix(rest[at+1:], "HTTP/") {
		return fmt.Errorf("%w, not %s", errMethod, shown(text))
	}
	c.Method = method
	return parseTarget(rest[:at], c)
}

func validMethod(text string) bool {
	for i := range len(text) {
		if c := text[i]; !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-' || c == '_') {
			return false
		}
	}
	return text != "" && len(text) <= 32
}

// shown is hostile text as messages hold it: quoted, short.
func shown(text string) string {
	if len(text) > 60 {
		return fmt.Sprintf("%q…", text[:60])
	}
	return fmt.Sprintf("%q", text)
}
