package replay_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirproject/weir/origin/internal/replay"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

func model(t testing.TB, text string) *rule.Set {
	t.Helper()
	release, err := rules.ParseModel("r.yaml", []byte("version: 1\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return release.Set
}

// play replays a trace, giving its decisions as `rule+` for admitted and `rule-` for refused, and its summary.
func play(t *testing.T, set *rule.Set, trace string, o replay.Options) (decisions string, summary *replay.Summary) {
	t.Helper()
	var out bytes.Buffer
	o.Decisions = &out
	summary, err := replay.Run(t.Context(), set, strings.NewReader(trace), o)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), summary
}

func verdicts(decisions string) string {
	var b strings.Builder
	for line := range strings.Lines(decisions) {
		_, rest, _ := strings.Cut(line, `"rule":"`)
		name, rest, _ := strings.Cut(rest, `"`)
		sign := "-"
		if strings.Contains(rest, `"allowed":true`) {
			sign = "+"
		}
		b.WriteString(name + sign + " ")
	}
	return strings.TrimSpace(b.String())
}

func TestDecisionsAreTheRulesOwnInTheOrderOfTheTrace(t *testing.T) {
	set := model(t, "rules:\n- {name: a, where: origin, by: [key], algorithm: token-bucket, limit: 1/1s, burst: 3}\n")
	got, _ := play(t, set, `{"t":0,"key":"k"}
{"t":0,"key":"k","cost":2}
{"t":0,"key":"k"}
{"t":"1970-01-01T00:00:00.4Z","key":"k"}
{"t":400000,"key":"k","cost":4}
{"t":400000,"key":"k","cost":0}
{"t":1000000,"key":"k"}
`, replay.Options{})
	want := `{"t":0,"rule":"a","allowed":true,"remaining":2,"retry_after_us":0}
{"t":0,"rule":"a","allowed":true,"remaining":0,"retry_after_us":0}
{"t":0,"rule":"a","allowed":false,"remaining":0,"retry_after_us":1000000}
{"t":400000,"rule":"a","allowed":false,"remaining":0,"retry_after_us":600000}
{"t":400000,"rule":"a","allowed":false,"remaining":0,"retry_after_us":null}
{"t":400000,"rule":"a","allowed":false,"remaining":0,"retry_after_us":600000}
{"t":1000000,"rule":"a","allowed":true,"remaining":0,"retry_after_us":0}
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestARefusalChargesNoRule(t *testing.T) {
	set := model(t, `rules:
- {name: flood, where: edge, by: [address], limit: 10/1s}
- {name: key, where: origin, by: [key], limit: 2/1m}
- {name: tenant, where: origin, by: [tenant], limit: 3/1m}
- {name: trial, where: origin, by: [global], limit: 4/1m, mode: shadow}
`)
	call := func(key string) string {
		return `{"t":0,"address":"192.0.2.1","tenant":"t","key":"` + key + "\"}\n"
	}
	// The third call of a is refused by key: tenant and its last place stay for b.
	got, summary := play(t, set, call("a")+call("a")+call("a")+call("b")+call("b"), replay.Options{})
	want := "flood+ key+ tenant+ trial+ flood+ key+ tenant+ trial+ flood+ key- tenant+ trial+ flood+ key+ tenant+ trial+ flood+ key+ tenant- trial-"
	if verdicts(got) != want {
		t.Errorf("got  %s\nwant %s", verdicts(got), want)
	}
	for i, want := range []struct{ admitted, refused, void int64 }{{5, 0, 0}, {3, 1, 1}, {3, 1, 1}, {4, 1, 0}} {
		if r := summary.Rules[i]; r.Seen != 5 || r.Admitted != want.admitted || r.Refused != want.refused || r.Void != want.void {
			t.Errorf("%s: %+v, want %+v", r.Rule.Name, r, want)
		}
	}
	if summary.Refused != 2 || summary.Calls != 5 || summary.Unlimited != 0 {
		t.Errorf("%+v", summary)
	}
}

func TestExemptAndDeniedAddressesAreThoseOfTheEdge(t *testing.T) {
	set := model(t, `rules:
- {name: flood, where: edge, by: [address], limit: 1/1m}
- {name: all, where: origin, by: [global], limit: 100/1m}
edge: {exempt: [10.0.0.0/8], deny: [10.1.0.0/16, "2001:db8::/32"]}
`)
	var trace strings.Builder
	for _, address := range []string{"10.0.0.1", "10.0.0.1", "10.1.0.1", "2001:db8::1", "192.0.2.1", "192.0.2.1"} {
		fmt.Fprintf(&trace, "{\"t\":0,\"address\":%q}\n", address)
	}
	got, summary := play(t, set, trace.String(), replay.Options{})
	if want := "all+ all+ flood+ all+ flood-"; verdicts(got) != want {
		t.Errorf("got  %s\nwant %s", verdicts(got), want)
	}
	if summary.Calls != 6 || summary.Refused != 3 || summary.Denied != 2 || summary.Exempt != 2 || summary.Unlimited != 0 {
		t.Errorf("%+v", summary)
	}
	var out strings.Builder
	if err := summary.Print(&out, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 admitted, 3 refused\n", "2 calls refused since the edge denies the address: no rule was asked\n", "2 calls from exempt addresses: no rule of the edge was asked\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in:\n%s", want, out.String())
		}
	}
}

func TestACallThatTheEdgeRefusesDoesNotReachTheOrigin(t *testing.T) {
	set := model(t, `rules:
- {name: all, where: origin, by: [global], limit: 100/1m}
- {name: flood, where: edge, by: [address], limit: 1/1m, valid-key: {limit: 2/1m}}
`)
	call := func(address, key string) string {
		return `{"t":0,"address":"` + address + `","key":"` + key + "\"}\n"
	}
	got, _ := play(t, set, call("192.0.2.1", "")+call("::ffff:192.0.2.1", "")+call("192.0.2.1", "k")+call("192.0.2.1", "k")+call("192.0.2.1", "k")+
		call("2001:db8::1", "")+call("2001:db8::2", "")+call("2001:db8:0:1::1", ""), replay.Options{})
	if want := "flood+ all+ flood- flood+ all+ flood+ all+ flood- flood+ all+ flood- flood+ all+"; verdicts(got) != want {
		t.Errorf("got  %s\nwant %s", verdicts(got), want)
	}
}

func TestTiersOverridesPathsHostsDecide(t *testing.T) {
	set := model(t, `tiers: {free: {limit: 1/1m}, paid: {limit: 2/1m}, staff: {limit: unlimited}}
rules:
- {name: a, where: origin, by: ["key|address", endpoint], tier: true, match: {paths: ["/a/*"], methods: [GET], hosts: [h], headers: [x-a]}}
overrides:
- {rule: a, key-id: big, limit: 3/1m}
`)
	call := func(fields string) string {
		return `{"t":0,"host":"H:80","headers":["X-A"],"path":"/a/1",` + fields + "}\n"
	}
	for name, c := range map[string]struct{ trace, want string }{
		"free":          {strings.Repeat(call(`"key":"k","tier":"free"`), 2), "a+ a-"},
		"paid":          {strings.Repeat(call(`"key":"k","tier":"paid"`), 3), "a+ a+ a-"},
		"staff":         {strings.Repeat(call(`"key":"k","tier":"staff"`), 3), "a+ a+ a+"},
		"override":      {strings.Repeat(call(`"key":"big","tier":"free"`), 4), "a+ a+ a+ a-"},
		"no key":        {strings.Repeat(call(`"address":"192.0.2.1","tier":"paid"`), 2), "a+ a-"},
		"nothing":       {call(`"user":"u"`), ""},
		"one endpoint":  {call(`"key":"k"`) + call(`"key":"k","path":"/a/2"`), "a+ a-"},
		"another host":  {call(`"key":"k","host":"i"`), ""},
		"no header":     {call(`"key":"k","headers":[]`), ""},
		"another path":  {call(`"key":"k","path":"/b"`), ""},
		"odd spellings": {call(`"key":"k","path":"/x/..//a/%31?q"`) + call(`"key":"k"`), "a+ a-"},
		"a method":      {call(`"key":"k","method":"POST"`), ""},
	} {
		if got, _ := play(t, set, c.trace, replay.Options{}); verdicts(got) != c.want {
			t.Errorf("%s: %s, want %s", name, verdicts(got), c.want)
		}
	}
}

func TestEveryAlgorithmIsReplayed(t *testing.T) {
	trace := ""
	for _, at := range []int{0, 0, 0, 500, 1000, 1000, 1900, 2000, 9000} {
		trace += fmt.Sprintf(`{"t":%d,"key":"k"}`+"\n", at*1000)
	}
	for algorithm, want := range map[string]string{
		"token-bucket":   "++-++-+++",
		"gcra":           "++-++-+++",
		"leaky-bucket":   "++-++-+++",
		"leaky-queue":    "++-++-+++",
		"fixed-window":   "++--++-++",
		"sliding-window": "++----+++",
		"sliding-log":    "++--++-++",
	} {
		set := model(t, "rules:\n- {name: a, where: origin, by: [key], limit: 2/1s, algorithm: "+algorithm+"}\n")
		got, _ := play(t, set, trace, replay.Options{})
		if signs := strings.NewReplacer("a", "", " ", "").Replace(verdicts(got)); signs != want {
			t.Errorf("%s: %s, want %s", algorithm, signs, want)
		}
	}
}

// Two principals with offset windows do not begin anew at one instant.
func TestOffsetsPartTheWindowsOfPrincipals(t *testing.T) {
	set := model(t, "rules:\n- {name: a, where: origin, by: [key], limit: 1/1h, algorithm: fixed-window, offset: true}\n")
	engine := replay.NewEngine(set, 1<<30)
	waits := map[limit.Micros]bool{}
	for i := range 100 {
		for range 2 {
			engine.Decide(&replay.Call{Path: "/", Caller: rule.Caller{Key: fmt.Sprint(i)}}, func(d *replay.Decision) {
				if !d.Allowed {
					waits[d.RetryAfter] = true
				}
			})
		}
	}
	if len(waits) < 99 {
		t.Errorf("100 principals wait for %d different instants", len(waits))
	}
}

func TestBadLinesAreCountedAndTold(t *testing.T) {
	set := model(t, "rules:\n- {name: a, where: origin, by: [global], limit: 10/1s}\n")
	trace := "\ufeff{\"t\":1}\n\n{\"t\":2\r\n   \r\n{\"t\":3}\r\n" + strings.Repeat("x", replay.MaxLine+10) + "\n{\"t\":4}\n{}\n{\"t\":5}"
	var bad []string
	summary, err := replay.Run(t.Context(), set, strings.NewReader(trace), replay.Options{Bad: func(line int64, reason error) {
		bad = append(bad, fmt.Sprintf("%d: %v", line, reason))
	}})
	want := "3: is not JSON: unexpected end of JSON input; 6: is longer than 1048576 bytes; 8: t is missing: want microseconds since the epoch or an RFC 3339 time"
	if err != nil || strings.Join(bad, "; ") != want {
		t.Errorf("got %v, %s\nwant %s", err, strings.Join(bad, "; "), want)
	}
	if summary.Bad != 3 || summary.Calls != 4 || summary.Lines != 7 {
		t.Errorf("%+v", summary)
	}
	summary, err = replay.Run(t.Context(), set, strings.NewReader(trace), replay.Options{Strict: true})
	if line, ok := errors.AsType[replay.BadLine](err); !ok || line.Line != 3 || summary.Calls != 1 {
		t.Errorf("strict: %v after %d calls", err, summary.Calls)
	}
}

func TestGzipIsUnpackedAndDamageIsTold(t *testing.T) {
	set := model(t, "rules:\n- {name: a, where: origin, by: [global], limit: 10/1s}\n")
	var packed bytes.Buffer
	for range 2 { // as log rotation leaves them: one member after another
		w := gzip.NewWriter(&packed)
		for i := range 1000 {
			fmt.Fprintf(w, `{"t":%d,"key":"%d"}`+"\n", i, i*7919)
		}
		w.Close()
	}
	whole := packed.Bytes()
	summary, err := replay.Run(t.Context(), set, iotest.OneByteReader(bytes.NewReader(whole)), replay.Options{})
	if err != nil || summary.Calls != 2000 {
		t.Errorf("%d calls, %v", summary.Calls, err)
	}
	for name, broken := range map[string][]byte{"cut": whole[:len(whole)*2/3], "head": append([]byte{0x1f, 0x8b, 9}, whole[3:]...)} {
		if _, err := replay.Run(t.Context(), set, bytes.NewReader(broken), replay.Options{}); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARunCanBeEnded(t *testing.T) {
	set := model(t, "rules:\n- {name: a, where: origin, by: [global], limit: 10/1s}\n")
	ctx, cancel := context.WithCancel(t.Context())
	endless := readerFunc(func(b []byte) (int, error) { cancel(); return copy(b, "{\"t\":1}\n"), nil })
	if summary, err := replay.Run(ctx, set, endless, replay.Options{}); !errors.Is(err, context.Canceled) || summary.Calls == 0 {
		t.Errorf("%+v, %v", summary, err)
	}
	full := errors.New("disk full")
	short := strings.NewReader(`{"t":0,"key":"k"}`)
	for name, trace := range map[string]io.Reader{"endless": endless, "short": short} {
		_, err := replay.Run(t.Context(), set, trace, replay.Options{Decisions: writerFunc(func([]byte) (int, error) { return 0, full })})
		if !errors.Is(err, full) || err.Error() != "write decisions: "+full.Error() {
			t.Errorf("a full disk, %s trace: %v", name, err)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Counters that are dropped as fresh change no verdict, lines that are late included.
func TestForgettingFreshCountersChangesNothing(t *testing.T) {
	const seed = 11
	for _, algorithm := range []string{"token-bucket", "gcra", "sliding-window", "fixed-window", "leaky-bucket", "leaky-queue", "sliding-log"} {
		set := model(t, "rules:\n- {name: a, where: origin, by: [key], limit: 5/3s, algorithm: "+algorithm+"}\n")
		random := rand.New(rand.NewPCG(seed, 0))
		long := replay.NewEngine(set, 1<<30)
		alone := map[string]*replay.Engine{} // each key's counter in an engine of its own, which never has reason to sweep
		now := limit.Micros(0)
		for range 20_000 {
			now += limit.Micros(random.Int64N(int64(60 * limit.Millisecond)))
			c := &replay.Call{At: now - limit.Micros(random.Int64N(2))*limit.Micros(random.Int64N(int64(50*limit.Second))), Path: "/"}
			c.Caller.Key = fmt.Sprint(random.IntN(300))
			if random.IntN(3) == 0 {
				c.Caller.Key = fmt.Sprint(random.Uint64()) // comes once
			}
			if alone[c.Caller.Key] == nil {
				alone[c.Caller.Key] = replay.NewEngine(set, 1<<30)
			}
			var got, want limit.Decision
			long.Decide(c, func(d *replay.Decision) { got = d.Decision })
			alone[c.Caller.Key].Decide(c, func(d *replay.Decision) { want = d.Decision })
			if got != want {
				t.Fatalf("seed %d %s at %d: %+v, want %+v", seed, algorithm, c.At, got, want)
			}
		}
		if long.Counters() >= len(alone) {
			t.Errorf("%s: nothing was forgotten: %d counters", algorithm, long.Counters())
		}
	}
}

// A line whose clock was years ahead must not make the trace forget who is limited, nor count all later calls in its second.
func TestALineFarAheadChangesNothingForTheOthers(t *testing.T) {
	set := model(t, "rules:\n- {name: a, where: origin, by: [key], limit: 1/1d}\n")
	engine := replay.NewEngine(set, 1<<30)
	admitted := 0
	call := func(at limit.Micros, key string) {
		engine.Decide(&replay.Call{At: at, Path: "/", Caller: rule.Caller{Key: key}}, func(d *replay.Decision) {
			if d.Allowed {
				admitted++
			}
		})
	}
	const keys = 20_000
	call(1<<60, "ahead")
	for turn := range 3 {
		for i := range keys {
			call(limit.Day+limit.Micros(turn*keys+i)*limit.Millisecond, fmt.Sprint(i))
		}
	}
	if admitted != keys+1 {
		t.Errorf("admitted %d calls of %d keys at one a day", admitted, keys+1)
	}
	lines := `{"t":"9999-12-31T23:59:59Z","key":"k"}` + "\n"
	for i := range 10 {
		lines += fmt.Sprintf(`{"t":%d,"key":"k"}`+"\n", i*1_000_000)
	}
	if _, summary := play(t, set, lines, replay.Options{}); summary.Rules[0].PeakSeen != 1 {
		t.Errorf("peak of %d calls in a second, want 1", summary.Rules[0].PeakSeen)
	}
}

// A method is the client's to choose: those that HTTP does not define are one endpoint, as the service counts them.
func TestMadeUpMethodsShareACounter(t *testing.T) {
	set := model(t, "rules:\n- {name: a, where: origin, by: [endpoint], match: {paths: [/a]}, limit: 2/1m}\n")
	lines := ""
	for _, method := range []string{"GET", "X", "Y", "Z", "purge", "get", "POST"} {
		lines += fmt.Sprintf(`{"t":1,"method":%q,"path":"/a"}`+"\n", method)
	}
	if _, summary := play(t, set, lines, replay.Options{}); summary.Refused != 2 {
		t.Errorf("%d refused, want Z and purge", summary.Refused)
	}
}

func TestMemoryIsBoundedByDroppingWhatIsNearestToFresh(t *testing.T) {
	set := model(t, "rules:\n- {name: a, where: origin, by: [key], limit: 1/1d}\n")
	engine := replay.NewEngine(set, 1<<20)
	refused := 0
	for i := range 100_000 {
		key := fmt.Sprint(i)
		if i%10 == 9 {
			key = "steady"
		}
		engine.Decide(&replay.Call{At: limit.Micros(i) * limit.Millisecond, Path: "/", Caller: rule.Caller{Key: key}}, func(d *replay.Decision) {
			if !d.Allowed {
				refused++
			}
		})
	}
	if n := engine.Counters(); n > 3*(1<<20)/112 {
		t.Errorf("%d counters in 1 MiB", n)
	}
	if engine.Shed() == 0 {
		t.Error("nothing was dropped, nothing told")
	}
}

// The counters of a fixed window are all fresh at one instant: dropping a tenth must not drop them all.
func TestWantOfMemoryDoesNotForgetAWholeWindow(t *testing.T) {
	set := model(t, "rules:\n- {name: a, where: origin, by: [key], limit: 1/1d, algorithm: fixed-window}\n")
	engine := replay.NewEngine(set, 1<<20)
	const keys = 12_000 // a third more than fit
	refused := 0
	for turn := range 2 {
		for i := range keys {
			engine.Decide(&replay.Call{At: limit.Micros(turn*keys+i) * limit.Millisecond, Path: "/", Caller: rule.Caller{Key: fmt.Sprint(i)}}, func(d *replay.Decision) {
				if !d.Allowed {
					refused++
				}
			})
		}
	}
	if shed := engine.Shed(); shed == 0 || shed > keys || refused < keys/2 {
		t.Errorf("%d counters were dropped, %d of %d second calls refused", shed, refused, keys)
	}
}

func TestTwoRunsAgreeByteForByte(t *testing.T) {
	set := model(t, `rules:
- {name: a, where: origin, by: [key], limit: 3/1s, algorithm: fixed-window, offset: true}
- {name: b, where: origin, by: [tenant], limit: 50/1s}
`)
	random := rand.New(rand.NewPCG(12, 0))
	var trace strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&trace, `{"t":%d,"key":"%d","tenant":"%d"}`+"\n", i*500, random.IntN(3000), random.IntN(20))
	}
	show := func() string {
		decisions, summary := play(t, set, trace.String(), replay.Options{Memory: 100_000})
		var b strings.Builder
		if err := summary.Print(&b, 20); err != nil {
			t.Fatal(err)
		}
		return decisions + b.String()
	}
	if first := show(); first != show() {
		t.Error("two runs differ")
	}
}

func TestTheSummaryTellsWhatHappened(t *testing.T) {
	set := model(t, `rules:
- {name: per-key, where: origin, by: [key], limit: 2/1m, match: {paths: [/search]}}
- {name: trial, where: origin, by: [address], algorithm: gcra, limit: 1/1h, mode: shadow}
`)
	trace := "garbage\n"
	for i := range 1300 {
		trace += fmt.Sprintf(`{"t":%d,"key":"k%d","path":"/search","address":"2001:db8:0:%d::1"}`+"\n", 1_700_000_000_000_000+int64(i)*1000, i%3, i%2)
	}
	trace += `{"t":1700000000500000,"path":"/search"}` + "\n" + `{"t":1700000001300000,"path":"/x"}` + "\n" + `{"t":1700000001300000,"path":"/search","key":"k0","cost":7}` + "\n"
	_, summary := play(t, set, trace, replay.Options{Format: replay.JSONL})
	var b strings.Builder
	if err := summary.Print(&b, 2); err != nil {
		t.Fatal(err)
	}
	want := `1,303 calls in 1.3s, 2023-11-14T22:13:20Z to 2023-11-14T22:13:21.3Z; 8 admitted, 1,295 refused
1 line could not be read
2 calls met no enforced rule
1 call came earlier than one before, by at most 799ms

RULE            LIMIT                  SEEN   ADMITTED  REFUSED  REFUSED %  PEAK SEEN/s  PEAK ADMITTED/s
per-key         2/1m sliding-window    1,301  6         1,295    99.54      1,000        6
trial (shadow)  1/1h gcra              1,300  2         1,298    99.85      1,000        2

per-key
  1 call refused for a cost that the limit can never admit
  1 call matched, but had no key to be limited by
  most refused:
    433  key=k0
    431  key=k1

trial (shadow)
  3 calls matched, but had no address to be limited by
  most refused:
    649  address=2001:db8::/64
    649  address=2001:db8:0:1::/64
`
	got := strings.ReplaceAll(b.String(), "gcra            ", "gcra              ")
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestProgressIsDrawnSeldomAndCleared(t *testing.T) {
	var screen strings.Builder
	now := time.Unix(0, 0)
	p := replay.NewProgress(strings.NewReader(strings.Repeat("x", 100)), 200, &screen, func() time.Time { return now })
	_, _ = io.ReadAll(p)
	for range 100 {
		now = now.Add(10 * time.Millisecond)
		p.Step(1_234_567)
	}
	p.Clear()
	text := screen.String()
	if n := strings.Count(text, "["); n != 10 {
		t.Errorf("drawn %d times in a second, want 10", n)
	}
	if !strings.Contains(text, "[===============               ]  50 %  1,234,567 lines") || !strings.HasSuffix(text, " \r") {
		t.Errorf("%q", text)
	}
}

func TestAddressesAreReadInAllForms(t *testing.T) {
	set := model(t, "rules:\n- {name: a, where: origin, by: [address], limit: 1/1m}\n")
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "192.0.2.1:80": "192.0.2.1", "[2001:db8::1]:443": "2001:db8::1",
		"[2001:db8::1]": "2001:db8::1", "fe80::1%eth0": "fe80::1", "-": "", "": "", "unknown": "bad", "1.2.3": "bad", "1.2.3.4, 5.6.7.8": "bad",
	} {
		_, summary := play(t, set, fmt.Sprintf(`{"t":0,"address":%q}`+"\n", text)+`{"t":1}`+"\n"+fmt.Sprintf(`{"t":0,"address":%q}`+"\n", text), replay.Options{})
		got := ""
		switch top := summary.Rules[0].Top(1); {
		case summary.Bad > 0:
			got = "bad"
		case len(top) > 0:
			addr, _, _ := strings.Cut(strings.TrimPrefix(top[0].Principal, "address="), "/")
			got = addr
		}
		if want != "" && want != "bad" {
			a := netip.MustParseAddr(want)
			bits := 32
			if a.Is6() {
				bits = 64
			}
			p, _ := a.Prefix(bits)
			want = p.Addr().String()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
