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

// jsonLine is a call as JSON.
type jsonLine struct {
	T       json.RawMessage `json:"t"`
	Key     string          `json:"key"`
	User    string          `json:"user"`
	Tenant  string          `json:"tenant"`
	Tier    string          `json:"tier"`
	Address string          `json:"address"`
	Method  string          `json:"method"`
	Path    string          `json:"path"`
	Host    string          `json:"host"`
	Headers []string        `json:"headers"`
	Cost    json.RawMessage `json:"cost"`
}

type jsonParser struct{ line jsonLine }

func (p *jsonParser) parse(line []byte, c *Call) (err error) {
	p.line = jsonLine{}
	l := &p.line
	if err := json.Unmarshal(line, l); err != nil {
		return readable(err)
	}
	if c.At, err = instant(l.T); err != nil {
		return err
	}
	c.Caller.Key, c.Caller.User, c.Caller.Tenant, c.Caller.Tier = l.Key, l.User, l.Tenant, l.Tier
	c.Host, c.Headers = l.Host, l.Headers
	if c.Address, err = parseAddress(l.Address); err != nil {
		return err
	}
	if l.Method != "" && !validMethod(l.Method) {
		return fmt.Errorf("method %s: want letters", shown(l.Method))
	}
	c.Method = l.Method
	if l.Path != "" {
		if err := parseTarget(l.Path, c); err != nil {
			return err
		}
	}
	if text := string(l.Cost); text != "" && text != "null" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || limit.CheckCost(n) != nil {
			return fmt.Errorf("cost %s: want a whole number, 0 to %d (2^53-1)", shown(text), limit.MaxCount)
		}
		c.Cost, c.HasCost = n, true
	}
	return nil
}

// maxInstant bounds t to 36,000 years, where no sum of instants wraps.
const maxInstant = 1 << 60

// instant reads t: whole microseconds since the epoch, or RFC 3339.
func instant(t json.RawMessage) (limit.Micros, error) {
	if len(t) == 0 || string(t) == "null" {
		return 0, errors.New("t is missing: want microseconds since the epoch or an RFC 3339 time")
	}
	if t[0] == '"' {
		var text string
		if err := json.Unmarshal(t, &text); err != nil {
			return 0, err
		}
		return rfc3339(text)
	}
	n, err := strconv.ParseInt(string(t), 10, 64)
	if err != nil || n > maxInstant {
		return 0, fmt.Errorf("t %s: want whole microseconds since the epoch or an RFC 3339 time", shown(string(t)))
	}
	return limit.Micros(n), nil
}

func rfc3339(text string) (limit.Micros, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, fmt.Errorf("t %s: want an RFC 3339 time, as 2026-01-02T15:04:05.678Z", shown(text))
	}
	return limit.Micros(at.UnixMicro()), nil
}

// readable is what encoding/json says, in the words of a trace.
func readable(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := kind.Type.String()
		switch kind.Type.Kind().String() {
		case "string":
			want = "a string"
		case "slice":
			want = "a list of strings"
		case "struct":
			return fmt.Errorf("want a JSON object, not %s", article(kind.Value))
		}
		return fmt.Errorf("%s: want %s, not %s", kind.Field, want, article(kind.Value))
	}
	return fmt.Errorf("is not JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// article puts a or an before a kind of JSON value.
func article(kind string) string {
	if strings.HasPrefix(kind, "array") || strings.HasPrefix(kind, "object") {
		return "an " + kind
	}
	return "a " + kind
}
