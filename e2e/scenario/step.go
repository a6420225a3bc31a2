package scenario

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// realClients are the addresses that a scenario may name on targets in real time.
var realClients = netip.MustParsePrefix("127.0.0.0/16")

func (p *parsing) step(n ast.Node) {
	s := Step{Line: n.GetToken().Position.Line, Times: 1, Send: Send{Method: "GET", Paths: []string{"/"}}, Expect: Expect{API: -1}}
	s.From.Prefix = netip.MustParsePrefix("127.0.0.1/32")
	var from, send ast.Node
	seen := p.fields(n, "step", map[string]func(ast.Node){
		"advance": func(v ast.Node) {
			d, err := time.ParseDuration(p.text(v, "advance"))
			if err != nil || d <= 0 {
				p.fault(v, "advance: want a duration above 0, as 1h30m or 250ms")
			}
			if p.real() {
				p.fault(v, "advance: only a virtual target (wasmhost) has a clock to move")
			}
			s.Advance = d
		},
		"push":   func(v ast.Node) { s.Push = p.push(v) },
		"await":  func(v ast.Node) { s.Await = p.await(v) },
		"from":   func(v ast.Node) { from = v; s.From = p.source(v) },
		"send":   func(v ast.Node) { send = v; p.send(v, &s.Send) },
		"times":  func(v ast.Node) { s.Times = p.number(v, "times", 1, 2_000_000) },
		"expect": func(v ast.Node) { p.expect(v, &s.Expect) },
	})
	for _, alone := range []string{"advance", "push"} {
		if !seen[alone] {
			continue
		}
		if len(seen) > 1 {
			p.fault(n, "step: %s stands alone", alone)
		}
		p.s.Steps = append(p.s.Steps, s)
		return
	}
	if seen["expect"] == seen["await"] {
		p.fault(n, "step: want one of advance, push, await, expect")
	}
	if from != nil && p.real() && !p.s.Proxied && (s.From.Raw != "" || !realClients.Contains(s.From.Prefix.Addr()) || s.From.Prefix.Bits() < 16) {
		p.fault(from, "from: targets in real time want addresses of %s: the second byte tells scenarios apart", realClients)
	}
	if send != nil && s.Send.Parallel && (s.Await != nil || len(s.Expect.Header) > 0) {
		p.fault(send, "send: parallel wants no await and no expected header")
	}
	if seen["expect"] {
		p.total(n, &s)
	}
	p.s.Steps = append(p.s.Steps, s)
}

// total holds the expected counts against how many answers there will be.
func (p *parsing) total(n ast.Node, s *Step) {
	least, open := 0, false
	for _, count := range s.Expect.Status {
		switch count {
		case Some:
			least, open = least+1, true
		case Any:
			open = true
		default:
			least += count
		}
	}
	switch {
	case !open && least != s.Times:
		p.fault(n, "expect: counts %d answers of %d", least, s.Times)
	case open && least > s.Times:
		p.fault(n, "expect: counts %d or more answers of %d", least, s.Times)
	}
}

// push reads a bundle to push. Releases rise, since the release in force is what tells that a push was applied.
func (p *parsing) push(n ast.Node) *Push {
	p.wantEdge(n, "push")
	b := &Push{As: Good, Rules: p.s.Rules}
	seen := p.fields(n, "push", map[string]func(ast.Node){
		"release": func(v ast.Node) { b.Release = p.number(v, "release", p.applied+1, 1_000_000) },
		"as": func(v ast.Node) {
			if b.As = Shape(p.text(v, "as")); !slices.Contains(shapes, b.As) {
				p.fault(v, "as: %q: want one of good, newer-section, newer-format, damaged", b.As)
			}
		},
		"rules": func(v ast.Node) {
			if b.Rules = p.rules(v); p.real() {
				p.windows(v, b.Rules)
			}
		},
		"refused": func(v ast.Node) { b.Refused = p.yes(v, "refused") },
	})
	if !seen["release"] {
		p.fault(n, "push: want a release")
	}
	if (b.As == Damaged || b.As == NewerFormat) && !b.Refused {
		p.fault(n, "push: a bundle that is %s must be refused: want refused: true", b.As)
	}
	if !b.Refused {
		p.applied = b.Release
	}
	return b
}

// await reads what to wait for.
func (p *parsing) await(n ast.Node) *Await {
	a := &Await{}
	seen := p.fields(n, "await", map[string]func(ast.Node){
		"status": func(v ast.Node) { a.Status = p.number(v, "status", 100, 599) },
		"meanwhile": func(v ast.Node) {
			for _, item := range p.items(v, "meanwhile") {
				a.Meanwhile = append(a.Meanwhile, p.number(item, "meanwhile", 100, 599))
			}
		},
	})
	if !seen["status"] || len(a.Meanwhile) == 0 || slices.Contains(a.Meanwhile, a.Status) {
		p.fault(n, "await: want a status, and others meanwhile, as {status: 200, meanwhile: [503]}")
	}
	return a
}

// source reads an address, a network, or "@text" for what is neither.
func (p *parsing) source(v ast.Node) Source {
	text := p.text(v, "from")
	if raw, found := strings.CutPrefix(text, "@"); found {
		return Source{Raw: raw}
	}
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return Source{Prefix: prefix}
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		p.fault(v, "from: want an address, a network, or @text")
		return Source{Prefix: netip.MustParsePrefix("127.0.0.1/32")}
	}
	return Source{Prefix: netip.PrefixFrom(a, a.BitLen())}
}

func (p *parsing) send(n ast.Node, s *Send) {
	p.fields(n, "send", map[string]func(ast.Node){
		"method": func(v ast.Node) { s.Method = p.text(v, "method") },
		"path": func(v ast.Node) {
			if _, list := v.(*ast.SequenceNode); list {
				s.Paths = p.texts(v, "path")
			} else {
				s.Paths = []string{p.text(v, "path")}
			}
			if len(s.Paths) == 0 || slices.ContainsFunc(s.Paths, func(path string) bool { return !strings.HasPrefix(path, "/") }) {
				p.fault(v, "path: want one that begins with /, or a list of such")
			}
		},
		"headers": func(v ast.Node) {
			for _, line := range p.texts(v, "headers") {
				if name, _, found := strings.Cut(line, ":"); !found || name == "" {
					p.fault(v, "headers: %q: want lines Name: value", line)
				}
				p.unknownName(v, line)
				s.Headers = append(s.Headers, line)
			}
		},
		"worker": func(v ast.Node) {
			if t, isText := v.(*ast.StringNode); isText && t.Value == "each" {
				s.EachOne = true
				return
			}
			s.Worker = p.number(v, "worker", 0, p.s.Workers-1)
		},
		"parallel": func(v ast.Node) { s.Parallel = p.yes(v, "parallel") },
	})
}

func (p *parsing) unknownName(v ast.Node, line string) {
	Fill([]string{line}, func(name string) (string, bool) {
		if _, user := p.s.Users[name]; !user && !slices.Contains(reserved, name) && !slices.Contains(p.s.Keys, name) {
			p.fault(v, "headers: $%s is no key and no user of this scenario: both come before steps", name)
		}
		return "", false
	})
}

func (p *parsing) expect(n ast.Node, e *Expect) {
	e.Status = map[int]int{}
	m, ok := n.(ast.MapNode)
	if !ok {
		p.fault(n, "expect: want a mapping")
		return
	}
	readers := map[string]func(ast.Node){
		"header": func(v ast.Node) {
			e.Header = map[string]string{}
			h, ok := v.(ast.MapNode)
			if !ok {
				p.fault(v, "header: want a mapping of names to values")
				return
			}
			for i := h.MapRange(); i.Next(); {
				value := p.text(i.Value(), "header")
				if re, is := strings.CutPrefix(value, "~"); is {
					if _, err := regexp.Compile(re); err != nil {
						p.fault(i.Value(), "header: %v", err)
					}
				}
				e.Header[p.text(i.Key(), "header")] = value
			}
		},
		"no-header": func(v ast.Node) { e.NoHeader = p.texts(v, "no-header") },
		"code":      func(v ast.Node) { e.Code = p.text(v, "code") },
		"where":     func(v ast.Node) { e.Where = p.text(v, "where") },
		"details":   func(v ast.Node) { e.Details = p.text(v, "details") },
		"api": func(v ast.Node) {
			if t, isText := v.(*ast.StringNode); isText && t.Value == "passed" {
				e.API = Passed
				return
			}
			e.API = p.number(v, "api", 0, 2_000_000)
		},
	}
	for i := m.MapRange(); i.Next(); {
		name := i.Key().String()
		if status, err := strconv.Atoi(name); err == nil {
			if status < 100 || status > 599 {
				p.fault(i.Key(), "expect: status %d: want 100 to 599", status)
			}
			e.Status[status] = p.count(i.Value())
			continue
		}
		if read := readers[name]; read != nil {
			read(i.Value())
			continue
		}
		p.fault(i.Key(), "expect: unknown field %q: want a status, api, code, details, header, no-header, where", name)
	}
	if len(e.Status) == 0 {
		p.fault(n, "expect: want the counts of statuses, as {200: 3, 429: 1}")
	}
}

// count reads how often a status is expected.
func (p *parsing) count(v ast.Node) int {
	t, isText := v.(*ast.StringNode)
	switch {
	case isText && t.Value == "some":
		return Some
	case isText && t.Value == "any":
		return Any
	case isText:
		p.fault(v, "expect: %q: want a number, some or any", t.Value)
		return Any
	}
	return p.number(v, "expect", 1, 2_000_000)
}
