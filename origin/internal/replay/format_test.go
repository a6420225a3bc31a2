package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func describe(c *Call) string {
	at := time.UnixMicro(int64(c.At)).UTC().Format(time.RFC3339Nano)
	text := fmt.Sprintf("%s %s %s", at, c.Method, c.Path)
	for _, p := range []struct{ name, value string }{{"host", c.Host}, {"key", c.Caller.Key}, {"user", c.Caller.User}, {"tenant", c.Caller.Tenant}, {"tier", c.Caller.Tier}} {
		if p.value != "" {
			text += " " + p.name + "=" + p.value
		}
	}
	if c.Address.IsValid() {
		text += " from " + c.Address.String()
	}
	if c.HasCost {
		text += fmt.Sprintf(" cost %d", c.Cost)
	}
	return text
}

func TestFormatsAreReadAndWhatIsWrongIsSaid(t *testing.T) {
	const envoyRest = `"HTTP/2" 204 - 154 0 226 100`
	for _, c := range []struct {
		format     Format
		line, want string
	}{
		{JSONL, `{"t":1700000000000001,"key":"k","user":"u","tenant":"t","tier":"paid","address":"2001:db8::1","method":"POST","path":"/a?b","host":"h","cost":3}`,
			"2023-11-14T22:13:20.000001Z POST /a?b host=h key=k user=u tenant=t tier=paid from 2001:db8::1 cost 3"},
		{JSONL, `{"t":-1}`, "! is of 1969-12-31T23:59:59.999999Z, before 1970"},
		{JSONL, `{"t":"2026-01-02T03:04:05.678+01:00","extra":[1,{}]}`, "2026-01-02T02:04:05.678Z GET /"},
		{JSONL, `{"t":0,"key":null,"cost":null,"path":"http://h:80/p?q"}`, "1970-01-01T00:00:00Z GET /p?q host=h:80"},
		{JSONL, `{"t":0,"cost":9007199254740991}`, "1970-01-01T00:00:00Z GET / cost 9007199254740991"},
		{JSONL, `{"t":0,"cost":9007199254740992}`, "! cost \"9007199254740992\": want a whole number, 0 to 9007199254740991 (2^53-1)"},
		{JSONL, `{"t":0,"cost":-5}`, "! cost \"-5\": want a whole number, 0 to 9007199254740991 (2^53-1)"},
		{JSONL, `{"t":0,"cost":9223372036854775808}`, "! cost \"9223372036854775808\": want a whole number, 0 to 9007199254740991 (2^53-1)"},
		{JSONL, `{"t":0,"cost":"5"}`, `! cost "\"5\"": want a whole number, 0 to 9007199254740991 (2^53-1)`},
		{JSONL, `{"t":0,"cost":1.5}`, "! cost \"1.5\": want a whole number, 0 to 9007199254740991 (2^53-1)"},
		{JSONL, `{"key":"k"}`, "! t is missing: want microseconds since the epoch or an RFC 3339 time"},
		{JSONL, `{"t":1.5}`, `! t "1.5": want whole microseconds since the epoch or an RFC 3339 time`},
		{JSONL, `{"t":9223372036854775807}`, `! t "9223372036854775807": want whole microseconds since the epoch or an RFC 3339 time`},
		{JSONL, `{"t":"yesterday"}`, `! t "yesterday": want an RFC 3339 time, as 2026-01-02T15:04:05.678Z`},
		{JSONL, `{"t":0,"key":7}`, "! key: want a string, not a number"},
		{JSONL, `{"t":0,"headers":"x"}`, "! headers: want a list of strings, not a string"},
		{JSONL, `[]`, "! want a JSON object, not an array"},
		{JSONL, `{"t":0} {"t":1}`, "! is not JSON: invalid character '{' after top-level value"},
		{JSONL, `{"t":0,"method":"G T"}`, `! method "G T": want letters`},
		{JSONL, `{"t":0,"path":"a"}`, `! request target "a": want a path or a URL`},
		{JSONL, `{"t":0,"address":"1.2.3"}`, `! address "1.2.3": want an IP address`},

		{Combined, `127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"`,
			"2000-10-10T20:55:36Z GET /apache_pb.gif user=frank from 127.0.0.1"},
		{Combined, `2001:db8::1 - - [10/Oct/2000:13:55:36 +0000] "GET /a\"b\\c HTTP/1.1" 404 - "-" "say \"hi\" \x22"`, `2000-10-10T13:55:36Z GET /a"b\c from 2001:db8::1`},
		{Combined, `[2001:db8::1] - John Doe [10/Oct/2000:13:55:36 +0000] "POST http://h/p HTTP/1.1" 200 1 "-" "-" "203.0.113.7" 0.003`, "2000-10-10T13:55:36Z POST /p host=h user=John Doe from 2001:db8::1"},
		{Combined, `- - - [10/Oct/2000:13:55:36 +0000] "CONNECT h:443 HTTP/1.1" 200 1 "-" "-"`, "2000-10-10T13:55:36Z CONNECT / host=h:443"},
		{Combined, `1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET /a b HTTP/1.1" 200 1 "-" "-"`, "2000-10-10T13:55:36Z GET /a b from 1.2.3.4"},
		{Combined, `1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "\x16\x03\x01" 400 1 "-" "-"`, `! request line: want METHOD TARGET PROTOCOL, not "\x16\x03\x01"`},
		{Combined, `1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "-" 408 0 "-" "-"`, `! request line: want METHOD TARGET PROTOCOL, not "-"`},
		{Combined, `1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1`, "! want a referer and a user agent, each in quotes"},
		{Combined, `1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1 "-" "open \"`, "! referer or user agent: quotes are not closed"},
		{Combined, `1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 2x0 1 "-" "-"`, "! want a status and a number of bytes after the request line"},
		{Combined, `1.2.3.4 - - [10/Okt/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, `! time "10/Okt/2000:13:55:36 +0000": want it as 02/Jan/2006:15:04:05 -0700`},
		{Combined, `example.com - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, `! address "example.com": want an IP address`},
		{Combined, `1.2.3.4 - - [10/Oct/2000`, `! want host ident user [time] "request" status bytes`},
		{Combined, "\x00\x00", `! want host ident user [time] "request" status bytes`},

		{Common, `127.0.0.1 - - [10/Oct/1000:13:55:36 -0700] "HEAD / HTTP/1.0" 200 2326`, "! is of 1000-10-10T20:55:36Z, before 1970"},
		{Common, `127.0.0.1 - - [10/Oct/2000:13:55:36 +0000] "GET /\x2gh\x 1\x41 HTTP/1.0" 200 2326`, `2000-10-10T13:55:36Z GET /\x2gh\x 1A from 127.0.0.1`},
		{Common, `127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "HEAD / HTTP/1.0" 200 2326`, "2000-10-10T20:55:36Z HEAD / from 127.0.0.1"},
		{Common, `127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "HEAD / HTTP/1.0" 200`, "! want a status and a number of bytes after the request line"},

		{Envoy, `[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0" "locations" "tcp://10.0.2.1:80"`,
			"2016-04-15T20:17:00.31Z POST /api/v1/locations host=locations from 10.0.35.28"},
		{Envoy, `[2016-04-15T20:17:00.310Z] "GET /a HTTP/1.1" 429 RL 0 0 0 - "6.6.6.6,2001:db8::1" "my "quoted" agent" "id" "h" "-"`, "2016-04-15T20:17:00.31Z GET /a host=h from 2001:db8::1"},
		{Envoy, `[2016-04-15T20:17:00.310Z] "GET /a HTTP/1.1" 400 DPE 0 0 0 - "-" "-" "-" "-" "-"`, "2016-04-15T20:17:00.31Z GET /a"},
		{Envoy, `[2016-04-15T20:17:00.310Z] "- - HTTP/1.1" 400 DPE 0 0 0 - "-" "-" "-" "-" "-"`, `! request target "-": want a path or a URL`},
		{Envoy, `[2016-04-15] "GET /a HTTP/1.1" ` + envoyRest, `! t "2016-04-15": want an RFC 3339 time, as 2026-01-02T15:04:05.678Z`},
		{Envoy, `[2016-04-15T20:17:00.310Z] "GET /a HTTP/1.1" 204 -`, `! want "x-forwarded-for" "user agent" "request id" "authority" "upstream" at the end`},
		{Envoy, `{"time":"2026-11-30T08:00:00.001Z","address":"192.0.2.1","method":"GET","path":"/search","status":429,"details":"weir_rate_limited.flood","upstream":null}`,
			"2026-11-30T08:00:00.001Z GET /search from 192.0.2.1"},
		{Envoy, `{"time":"2026-11-30T08:00:00.001Z","address":"192.0.2.1","method":null,"path":null}`, "! method is missing"},
		{Envoy, `{"start_time":"2026-11-30T08:00:00.001Z","method":"GET","path":"/search","authority":"a.example","x_forwarded_for":"6.6.6.6,192.0.2.1","downstream_remote_address":"10.0.0.1:4000","response_code":200}`,
			"2026-11-30T08:00:00.001Z GET /search host=a.example from 192.0.2.1"},
		{Envoy, `{"start_time":"2026-11-30T08:00:00.001Z","method":"GET","path":"/","authority":"-","x_forwarded_for":null,"downstream_remote_address":"[2001:db8::1]:4000"}`,
			"2026-11-30T08:00:00.001Z GET / from 2001:db8::1"},
		{Envoy, `{"method":"GET"}`, "! time is missing: want time, address, method, path, host, as Weir's Envoy writes them, or Istio's start_time, x_forwarded_for, method, path, authority"},
		{Envoy, `nothing`, `! want [time] "request" …`},
	} {
		var call Call
		got := ""
		if err := parse(newParser(c.format), []byte(c.line), &call); err != nil {
			got = "! " + err.Error()
		} else {
			got = describe(&call)
		}
		if got != c.want {
			t.Errorf("%s %s\ngot  %s\nwant %s", c.format, c.line, got, c.want)
		}
	}
}

func TestTheFirstLineTellsTheFormat(t *testing.T) {
	for line, want := range map[string]Format{
		`{"t":0}`:                    JSONL,
		`{"time":"2026-11-30T08Z"}`:  Envoy,
		`[2016-04-15T20:17:00.310Z]`: Envoy,
		`1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1`:         Common,
		`1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`: Combined,
	} {
		if got := guess([]byte(line)); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// Whatever a line holds, it is a call within bounds or one line of reason.
func FuzzLinesAreCallsOrOneLineOfReason(f *testing.F) {
	for i, line := range []string{
		`{"t":0,"key":"k","cost":1}`, `1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1 "-" "a\x22\"`,
		`[2016-04-15T20:17:00.310Z] "GET /a HTTP/1.1" 429 RL 0 0 0 - "1.1.1.1" "-" "-" "h" "-"`, `{"time":"2026-11-30T08:00:00Z","method":"GET"}`, `"\`, `[`, ``,
	} {
		f.Add(uint8(i), []byte(line))
	}
	f.Fuzz(func(t *testing.T, kind uint8, line []byte) {
		var c Call
		err := parse(newParser(Formats[int(kind)%len(Formats)]), line, &c)
		switch {
		case err != nil && (strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 400):
			t.Fatalf("reason %q", err)
		case err == nil && (c.Method == "" || c.Path == "" || c.At < 0 || c.At > maxInstant*4 || c.Cost < 0):
			t.Fatalf("%q is read as %+v", line, c)
		}
		if again := guess(line); again == "" {
			t.Fatalf("%q has no format", line)
		}
	})
}

func FuzzPrincipalsAreSpelledWithoutControlCharacters(f *testing.F) {
	f.Add("k", "GET", "/a")
	f.Add(strings.Repeat("x", 10_000), "\x1b[31m", "\xff")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		principal := appendPart(appendPart(appendPart(nil, 0, a), 5, b), 3, c)
		if text := spell(string(principal)); strings.ContainsAny(text, "\n\x1b\x00") || len(principal) > 3*(maxValue+4) {
			t.Fatalf("%q, %d bytes", text, len(principal))
		}
	})
}

// The space-saving promise: a count is too high by at most its error, who is counted often enough is in.
func TestARankingNeverMissesTheFrequent(t *testing.T) {
	r := newRanking(10)
	exact := map[string]int64{}
	add := func(name string) { r.add([]byte(name)); exact[name]++ }
	for i := range 10_000 {
		add(fmt.Sprint("rare", i))
		if i%4 == 0 {
			add("often")
		}
		if i%8 == 0 {
			add("sometimes")
		}
	}
	top := r.top(2)
	if len(r.names) != 10 || len(r.least) != 10 || top[0].name != "often" || top[1].name != "sometimes" {
		t.Errorf("%d names, top %+v", len(r.names), top)
	}
	for _, e := range r.top(10) {
		if n := exact[e.name]; n > e.count || n < e.count-e.error {
			t.Errorf("%s was counted %d times, the ranking says %d to %d", e.name, n, e.count-e.error, e.count)
		}
	}
}
