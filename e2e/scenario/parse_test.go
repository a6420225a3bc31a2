package scenario

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const good = `name: worked-example
why: a sentence
targets: [wasmhost]
rules:
- name: flood
  where: edge
  by: [address]
  algorithm: token-bucket
  limit: 1/1s
  burst: 3
keys: [alice]
workers: 2
steps:
- from: 192.0.2.7
  send: {path: /search, headers: ["X-Api-Key: $alice", "x-other: 1"], worker: each}
  times: 4
  expect: {200: 3, 429: 1, header: {Retry-After: 1, x-a: "~a+"}, no-header: [Set-Cookie], code: rate_limited, where: edge, api: 3}
- advance: 1s
- from: 2001:db8::/64
  expect: {200: 1}
- from: "@pipe"
  expect: {200: 1}
`

func TestScenarioReads(t *testing.T) {
	s, err := Parse("x.yaml", []byte(good), "")
	if err != nil {
		t.Fatal(err)
	}
	first := s.Steps[0]
	if s.Name != "worked-example" || s.Workers != 2 || len(s.Steps) != 4 || !s.On(Wasmhost) || s.On(Envoy) {
		t.Errorf("read %+v", s)
	}
	if first.Times != 4 || first.Expect.Status[200] != 3 || first.Expect.Header["Retry-After"] != "1" || first.Expect.API != 3 ||
		!first.Send.EachOne || first.Send.Method != "GET" || first.Line != 14 {
		t.Errorf("first step %+v", first)
	}
	if s.Steps[1].Advance != time.Second || s.Steps[3].From.Raw != "pipe" || s.Steps[2].Expect.API != -1 {
		t.Errorf("other steps %+v", s.Steps[1:])
	}
	for _, want := range []string{"version: 1", "limit: 1/1s", "by:"} {
		if !strings.Contains(s.Rules, want) {
			t.Errorf("rules lack %q:\n%s", want, s.Rules)
		}
	}
}

// One broken file for each thing that a typing error must not turn into a test of nothing.
func TestBrokenScenarioNamesTheLine(t *testing.T) {
	for what, c := range map[string]struct{ old, new, want string }{
		"unknown field":            {"workers: 2", "worker: 2", `x.yaml:12: scenario: unknown field "worker"`},
		"unknown step field":       {"  times: 4", "  time: 4", `x.yaml:16: step: unknown field "time"`},
		"unknown send field":       {"path: /search", "pat: /search", `x.yaml:15: send: unknown field "pat"`},
		"unknown expect field":     {"api: 3", "apo: 3", `x.yaml:17: expect: unknown field "apo"`},
		"unknown target":           {"[wasmhost]", "[wasm]", `x.yaml:3: targets: "wasm"`},
		"target twice":             {"[wasmhost]", "[wasmhost, wasmhost]", `x.yaml:3: targets: "wasmhost"`},
		"no targets":               {"[wasmhost]", "[]", "x.yaml:3: targets: want at least one"},
		"advance in real time":     {"[wasmhost]", "[wasmhost, envoy]", "x.yaml:18: advance: only a virtual target"},
		"short window":             {"[wasmhost]", "[memory]", "rules: limit 1/1s: targets in real time want windows of 1h or more"},
		"foreign address":          {"[wasmhost]", "[memory]", "x.yaml:14: from: targets in real time want addresses of 127.0.0.0/16"},
		"counts differ":            {"times: 4", "times: 5", "x.yaml:14: expect: counts 4 answers of 5"},
		"no counts":                {"expect: {200: 1}\n- from: \"@pipe\"", "expect: {code: x}\n- from: \"@pipe\"", "x.yaml:20: expect: want the counts"},
		"status out of range":      {"expect: {200: 1}\n- from: \"@pipe\"", "expect: {20: 1}\n- from: \"@pipe\"", "x.yaml:20: expect: status 20"},
		"missing why":              {"why: a sentence\n", "", "why: is missing"},
		"bad name":                 {"worked-example", "Worked_Example", "x.yaml:1: name: want small letters"},
		"key is not declared":      {"$alice", "$bob", "x.yaml:15: headers: $bob is no key"},
		"users at the edge alone":  {"keys: [alice]", "keys: [alice]\nusers: {bob: paid}", `x.yaml:12: users: not for wasmhost`},
		"a user with a key's name": {"keys: [alice]", "keys: [alice]\nusers: {alice: paid}", `x.yaml:12: users: "alice" is a key's name`},
		"a list of users":          {"keys: [alice]", "keys: [alice]\nusers: [bob]", `x.yaml:12: users: want a mapping`},
		"reserved user name":       {"keys: [alice]", "keys: [alice]\nusers: {forged: paid}", `x.yaml:12: users: "forged"`},
		"reserved key name":        {"keys: [alice]", "keys: [alice, forged]", `x.yaml:11: keys: "forged"`},
		"worker out of range":      {"worker: each", "worker: 2", "x.yaml:15: worker: want an integer from 0 to 1"},
		"header without value":     {`"x-other: 1"`, "x-other", `x.yaml:15: headers: "x-other"`},
		"bad address":              {"192.0.2.7", "192.0.2.777", "x.yaml:14: from: want an address"},
		"bad duration":             {"advance: 1s", "advance: 1", "x.yaml:18: advance: want a duration"},
		"advance with a send":      {"- advance: 1s", "- advance: 1s\n  times: 2", "x.yaml:18: step: advance stands alone"},
		"bad expression":           {`"~a+"`, `"~a("`, "x.yaml:17: header: error parsing regexp"},
		"parallel with a header":   {"worker: each", "parallel: true", "x.yaml:15: send: parallel wants no await and no expected header"},
		"relative path":            {"path: /search", "path: search", "x.yaml:15: path: want one that begins with /"},
		"rules file is not there":  {good[strings.Index(good, "rules:"):strings.Index(good, "keys:")], "rules: nothing\n", "x.yaml:4: rules: no file rules/nothing.yaml"},
		"field twice":              {"workers: 2", "workers: 2\nworkers: 3", "already defined"},
		"times of nothing":         {"times: 4", "times: 0", "x.yaml:16: times: want an integer from 1"},
		"unheard-of fault":         {"workers: 2", "fault: burn", "x.yaml:12: fault: want trap-on-path=/path"},
		"fault without an edge":    {"[wasmhost]", "[wasmhost, memory]\nfault: no-shared-data", "x.yaml:4: fault, proxied: only for targets with an edge"},
		"proxied maybe":            {"workers: 2", "proxied: 1", "x.yaml:12: proxied: want true or false"},
		"proxied without an edge":  {"[wasmhost]", "[valkey]\nproxied: true", "x.yaml:4: fault, proxied: only for targets with an edge"},
		"path in a list":           {"path: /search", "path: [/search, a]", "x.yaml:15: path: want one that begins with /"},
		"no path":                  {"path: /search", "path: []", "x.yaml:15: path: want one that begins with /"},
		"few counts":               {"{200: 3, 429: 1,", "{200: some, 429: lots,", `x.yaml:17: expect: "lots": want a number, some or any`},
		"open counts of too many":  {"{200: 3, 429: 1,", "{200: 4, 429: some,", "x.yaml:14: expect: counts 5 or more answers of 4"},
		"calls at the API":         {"api: 3", "api: some", "x.yaml:17: api: want an integer from 0"},
		"push and send":            {"- advance: 1s", "- push: {release: 2}\n  times: 2", "x.yaml:18: step: push stands alone"},
		"push of nothing":          {"- advance: 1s", "- push: {as: good}", "x.yaml:18: push: want a release"},
		"push of an old release":   {"- advance: 1s", "- push: {release: 2}\n- push: {release: 2}", "x.yaml:19: release: want an integer from 3"},
		"push of the first":        {"- advance: 1s", "- push: {release: 1}", "x.yaml:18: release: want an integer from 2"},
		"push of another shape":    {"- advance: 1s", "- push: {release: 2, as: round}", `x.yaml:18: as: "round": want one of good`},
		"unknown push field":       {"- advance: 1s", "- push: {release: 2, force: true}", `x.yaml:18: push: unknown field "force"`},
		"damage that is taken":     {"- advance: 1s", "- push: {release: 2, as: damaged}", "x.yaml:18: push: a bundle that is damaged must be refused"},
		"newer that is taken":      {"- advance: 1s", "- push: {release: 2, as: newer-format, refused: false}", "x.yaml:18: push: a bundle that is newer-format must be refused"},
		"push without a file":      {"- advance: 1s", "- push: {release: 2, rules: nothing}", "x.yaml:18: rules: no file rules/nothing.yaml"},
		"await and expect":         {"  times: 4", "  await: {status: 200, meanwhile: [503]}", "x.yaml:14: step: want one of advance, push, await, expect"},
		"await of nothing":         {"- advance: 1s", "- await: {status: 200}", "x.yaml:18: await: want a status, and others meanwhile"},
		"await of what is there":   {"- advance: 1s", "- await: {status: 200, meanwhile: [200]}", "x.yaml:18: await: want a status, and others meanwhile"},
		"await of no status":       {"- advance: 1s", "- await: {status: 20, meanwhile: [503]}", "x.yaml:18: status: want an integer from 100 to 599"},
		"unknown await field":      {"- advance: 1s", "- await: {status: 200, meanwhile: [503], until: 1}", `x.yaml:18: await: unknown field "until"`},
	} {
		t.Run(what, func(t *testing.T) {
			text := strings.Replace(good, c.old, c.new, 1)
			if text == good {
				t.Fatal("the fixture changes nothing")
			}
			_, err := Parse("x.yaml", []byte(text), t.TempDir())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error\n%v\ndoes not say\n%s", err, c.want)
			}
		})
	}
}

const broken = `name: broken
why: a filter that dies takes nobody along
targets: [wasmhost, envoy]
rules: [{name: flood, where: edge, by: [address], algorithm: token-bucket, limit: 5/1h}]
fault: trap-on-path=/trap
proxied: true
steps:
- {from: 2001:db8::/64, send: {path: [/, /trap], parallel: true}, times: 9, expect: {200: any, 503: some, api: passed}}
- await: {status: 200, meanwhile: [503, 429]}
  times: 7
- push: {release: 2}
- push: {release: 3, as: damaged, refused: true, rules: [{name: flood, where: edge, by: [address], algorithm: token-bucket, limit: 7/1h}]}
- push: {release: 3, as: newer-section}
- expect: {200: 1}
`

func TestFaultsPushesAndAwaitsRead(t *testing.T) {
	s, err := Parse("x.yaml", []byte(broken), "")
	if err != nil {
		t.Fatal(err)
	}
	if !s.Proxied || s.Fault != "trap-on-path=/trap" || !s.Alone() || len(s.Steps) != 6 {
		t.Errorf("read %+v", s)
	}
	mixed, await, good, damaged, newer := s.Steps[0], s.Steps[1], s.Steps[2].Push, s.Steps[3].Push, s.Steps[4].Push
	if !mixed.From.Network() || len(mixed.Send.Paths) != 2 || mixed.Expect.Status[200] != Any ||
		mixed.Expect.Status[503] != Some || mixed.Expect.API != Passed {
		t.Errorf("first step %+v", mixed)
	}
	if await.Await.Status != 200 || len(await.Await.Meanwhile) != 2 || await.Times != 7 {
		t.Errorf("await %+v", await)
	}
	if *good != (Push{Release: 2, As: Good, Rules: s.Rules}) || *newer != (Push{Release: 3, As: NewerSection, Rules: s.Rules}) {
		t.Errorf("pushes %+v, %+v", good, newer)
	}
	if damaged.As != Damaged || !damaged.Refused || damaged.Release != 3 || !strings.Contains(damaged.Rules, "limit: 7/1h") {
		t.Errorf("push %+v", damaged)
	}
}

// What a step may say hangs on the targets.
func TestBrokenPushNamesTheLine(t *testing.T) {
	for what, c := range map[string]struct{ old, new, want string }{
		"short window in a push": {"limit: 7/1h", "limit: 7/1s", "x.yaml:12: rules: limit 7/1s: targets in real time want windows of 1h"},
		"push without an edge":   {"[wasmhost, envoy]", "[wasmhost, envoy, memory]", "x.yaml:11: push: only for targets with an edge"},
		"foreign address":        {"proxied: true", "proxied: false", "x.yaml:8: from: targets in real time want addresses of 127.0.0.0/16"},
		"parallel await":         {"  times: 7", "  send: {parallel: true}", "x.yaml:10: send: parallel wants no await"},
	} {
		text := strings.Replace(broken, c.old, c.new, 1)
		if text == broken {
			t.Fatalf("%s: the fixture changes nothing", what)
		}
		if _, err := Parse("x.yaml", []byte(text), ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error\n%v\ndoes not say\n%s", what, err, c.want)
		}
	}
}

func TestFolderRefusesOneNameTwice(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"a.yaml", "b.yaml"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(good), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Folder(folder); err == nil || !strings.Contains(err.Error(), "b.yaml:1: name: worked-example is the name of a.yaml already") {
		t.Errorf("error %v", err)
	}
	if _, err := Folder(t.TempDir()); err == nil {
		t.Error("a folder without scenarios passed for a folder of passing scenarios")
	}
}

func TestSourceGoesThroughItsNetwork(t *testing.T) {
	for _, c := range []struct {
		prefix string
		n      int
		want   string
	}{
		{"192.0.2.7/32", 5, "192.0.2.7"},
		{"10.0.0.0/8", 0x010203, "10.1.2.3"},
		{"192.0.2.0/30", 5, "192.0.2.1"},
		{"2001:db8::/64", 70000, "2001:db8::1:1170"},
	} {
		if got := (Source{Prefix: netip.MustParsePrefix(c.prefix)}).At(c.n).String(); got != c.want {
			t.Errorf("address %d of %s = %s, want %s", c.n, c.prefix, got, c.want)
		}
	}
}
