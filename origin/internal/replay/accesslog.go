package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/shared/limit"
)

// logParser reads the common log format, `host ident user [time] "request" status bytes`, with ` "referer" "agent"`
// behind it if combined. What follows is not looked at: many servers add to it.
type logParser struct {
	combined bool
	stamp    string // the last time read, with what it means: many lines share a second
	at       limit.Micros
}

var errShort = errors.New(`want host ident user [time] "request" status bytes`)

func (p *logParser) parse(line []byte, c *Call) (err error) {
	text := string(line)
	host, text, ok := strings.Cut(text, " ")
	if !ok {
		return errShort
	}
	if c.Address, err = parseAddress(host); err != nil {
		return err
	}
	// A user may hold spaces, so the time is looked for by its bracket.
	open := strings.Index(text, " [")
	if open < 0 {
		return errShort
	}
	if _, user, ok := strings.Cut(text[:open], " "); ok && user != "-" && user != `""` {
		c.Caller.User = user
	}
	stamp, text, ok := strings.Cut(text[open+2:], "] ")
	if !ok {
		return errShort
	}
	if c.At, err = p.time(stamp); err != nil {
		return err
	}
	request, text, err := quoted(text)
	if err != nil {
		return fmt.Errorf("request line: %w", err)
	}
	if err := parseRequestLine(request, c); err != nil {
		return err
	}
	fields := strings.SplitN(strings.TrimPrefix(text, " "), " ", 3)
	if len(fields) < 2 || len(fields[0]) != 3 || !number(fields[0]) || fields[1] != "-" && !number(fields[1]) {
		return errors.New("want a status and a number of bytes after the request line")
	}
	if !p.combined {
		return nil
	}
	if len(fields) < 3 {
		return errors.New("want a referer and a user agent, each in quotes")
	}
	_, text, err = quoted(fields[2])
	if err == nil {
		_, _, err = quoted(strings.TrimPrefix(text, " "))
	}
	if err != nil {
		return fmt.Errorf("referer or user agent: %w", err)
	}
	return nil
}

func (p *logParser) time(stamp string) (limit.Micros, error) {
	if stamp == p.stamp && stamp != "" {
		return p.at, nil
	}
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", stamp)
	if err != nil {
		return 0, fmt.Errorf("time %s: want it as 02/Jan/2006:15:04:05 -0700", shown(stamp))
	}
	p.stamp, p.at = strings.Clone(stamp), limit.Micros(at.UnixMicro())
	return p.at, nil
}

func number(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

// quoted takes a quoted field off text. Apache writes \" and \\ in it, nginx \x22.
func quoted(text string) (field, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		return "", "", errors.New("want a field in quotes")
	}
	text = text[1:]
	end := strings.IndexAny(text, `"\`)
	if end >= 0 && text[end] == '"' {
		return text[:end], text[end+1:], nil
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			return b.String(), text[i+1:], nil
		case '\\':
			i++
			if i == len(text) {
				return "", "", errors.New("quotes are not closed")
			}
			n := unescape(&b, text[i:])
			i += n
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errors.New("quotes are not closed")
}

// unescape writes what follows a backslash, telling how many bytes beyond the first it took.
func unescape(b *strings.Builder, text string) (more int) {
	switch text[0] {
	case 'n':
		b.WriteByte('\n')
	case 'r':
		b.WriteByte('\r')
	case 't':
		b.WriteByte('\t')
	case 'x':
		if len(text) >= 3 {
			if octet, err := strconv.ParseUint(text[1:3], 16, 8); err == nil {
				b.WriteByte(byte(octet))
				return 2
			}
		}
		b.WriteString(`\x`)
	default:
		b.WriteByte(text[0])
	}
	return 0
}

// envoyParser reads Envoy's default access log, or JSON lines with the fields of Weir's own Envoy or of Istio's.
type envoyParser struct{}

// envoyLine is what Weir's Envoy writes, or Istio's. An absent value is null or "-".
type envoyLine struct {
	Time    string `json:"time"`
	Address string `json:"address"`
	Method  string `json:"method"`
	Path    string `json:"path"`
	Host    string `json:"host"`

	StartTime    string `json:"start_time"`
	ForwardedFor string `json:"x_forwarded_for"`
	Downstream   string `json:"downstream_remote_address"` // with a port
	Authority    string `json:"authority"`
}

// either is the first of two values that is there.
func either(a, b string) string {
	if a == "" || a == "-" {
		return b
	}
	return a
}

// lastHop is the entry of X-Forwarded-For that this Envoy wrote; those before it are the client's to choose.
func lastHop(forwarded string) string {
	return strings.TrimSpace(forwarded[strings.LastIndexByte(forwarded, ',')+1:])
}

func (envoyParser) parse(line []byte, c *Call) (err error) {
	if len(line) > 0 && line[0] == '{' {
		return parseEnvoyJSON(line, c)
	}
	stamp, text, ok := strings.Cut(strings.TrimPrefix(string(line), "["), `] "`)
	if !ok || line[0] != '[' {
		return errors.New(`want [time] "request" …`)
	}
	if c.At, err = rfc3339(stamp); err != nil {
		return err
	}
	request, text, ok := strings.Cut(text, `" `)
	if !ok {
		return errors.New("request line: quotes are not closed")
	}
	if err := parseRequestLine(request, c); err != nil {
		return err
	}
	// Values are written without escapes, so that a user agent may hold quotes: fields are found from both ends.
	_, text, ok = strings.Cut(text, ` "`)
	forwarded, text, ok2 := strings.Cut(text, `" "`)
	if !ok || !ok2 {
		return errors.New(`want "x-forwarded-for" "user agent" "request id" "authority" "upstream" at the end`)
	}
	fields := strings.Split(text, `" "`)
	if len(fields) < 4 {
		return errors.New(`want "x-forwarded-for" "user agent" "request id" "authority" "upstream" at the end`)
	}
	if host := fields[len(fields)-2]; host != "-" {
		c.Host = host
	}
	c.Address, err = parseAddress(lastHop(forwarded))
	return err
}

func parseEnvoyJSON(line []byte, c *Call) (err error) {
	var l envoyLine
	if err := json.Unmarshal(line, &l); err != nil {
		return readable(err)
	}
	stamp := either(l.Time, l.StartTime)
	if stamp == "" {
		return errors.New("time is missing: want time, address, method, path, host, as Weir's Envoy writes them, or Istio's start_time, x_forwarded_for, method, path, authority")
	}
	if c.At, err = rfc3339(stamp); err != nil {
		return err
	}
	if c.Address, err = parseAddress(either(l.Address, either(lastHop(l.ForwardedFor), l.Downstream))); err != nil {
		return err
	}
	if l.Method == "" || l.Method == "-" { // no request was read on this connection
		return errors.New("method is missing")
	}
	if !validMethod(l.Method) {
		return fmt.Errorf("method %s: want letters", shown(l.Method))
	}
	c.Method = l.Method
	if host := either(l.Host, l.Authority); host != "-" {
		c.Host = host
	}
	if l.Path != "" && l.Path != "-" {
		return parseTarget(l.Path, c)
	}
	return nil
}
