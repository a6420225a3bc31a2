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
		"unknown field":           {"workers: 2", "worker: 2", `x.yaml:12: scenario: unknown field "worker"`},
		"unknown step field":      {"  times: 4", "  time: 4", `x.yaml:16: step: unknown field "time"`},
		"unknown send field":      {"path: /search", "pat: /search", `x.yaml:15: send: unknown field "pat"`},
		"unknown expect field":    {"api: 3", "apo: 3", `x.yaml:17: expect: unknown field "apo"`},
		"unknown target":          {"[wasmhost]", "[wasm]", `x.yaml:3: targets: "wasm"`},
		"target twice":            {"[wasmhost]", "[wasmhost, wasmhost]", `x.yaml:3: targets: "wasmhost"`},
		"no targets":              {"[wasmhost]", "[]", "x.yaml:3: targets: want at least one"},
		"advance in real time":    {"[wasmhost]", "[wasmhost, envoy]", "x.yaml:18: advance: only a virtual target"},
		"short window":            {"[wasmhost]", "[memory]", "rules: limit 1/1s: targets in real time want windows of 1h or more"},
		"foreign address":         {"[wasmhost]", "[memory]", "x.yaml:14: from: targets in real time want addresses of 127.0.0.0/16"},
		"counts differ":           {"times: 4", "times: 5", "x.yaml:14: expect: counts 4 answers of 5"},
		"no counts":               {"expect: {200: 1}\n- from: \"@pipe\"", "expect: {code: x}\n- from: \"@pipe\"", "x.yaml:20: expect: want the counts"},
		"status out of range":     {"expect: {200: 1}\n- from: \"@pipe\"", "expect: {20: 1}\n- from: \"@pipe\"", "x.yaml:20: expect: status 20"},
		"missing why":             {"why: a sentence\n", "", "why: is missing"},
		"bad name":                {"worked-example", "Worked_Example", "x.yaml:1: name: want small letters"},
		"key is not declared":     {"$alice", "$bob", "x.yaml:15: headers: $bob is no key"},
		"reserved key name":       {"keys: [alice]", "keys: [alice, forged]", `x.yaml:11: keys: "forged"`},
		"worker out of range":     {"worker: each", "worker: 2", "x.yaml:15: worker: want an integer from 0 to 1"},
		"header without value":    {`"x-other: 1"`, "x-other", `x.yaml:15: headers: "x-other"`},
		"bad address":             {"192.0.2.7", "192.0.2.777", "x.yaml:14: from: want an address"},
		"bad duration":            {"advance: 1s", "advance: 1", "x.yaml:18: advance: want a duration"},
		"advance with a send":     {"- advance: 1s", "- advance: 1s\n  times: 2", "x.yaml:18: step: advance stands alone"},
		"bad expression":          {`"~a+"`, `"~a("`, "x.yaml:17: header: error parsing regexp"},
		"parallel on a host":      {"worker: each", "parallel: true", "x.yaml:15: send: parallel wants targets in real time"},
		"relative path":           {"path: /search", "path: search", "x.yaml:15: path: want one that begins with /"},
		"rules file is not there": {good[strings.Index(good, "rules:"):strings.Index(good, "keys:")], "rules: nothing\n", "x.yaml:4: rules: no file rules/nothing.yaml"},
		"field twice":             {"workers: 2", "workers: 2\nworkers: 3", "already defined"},
		"times of nothing":        {"times: 4", "times: 0", "x.yaml:16: times: want an integer from 1"},
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
