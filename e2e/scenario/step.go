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
	s := Step{Line: n.GetToken().Position.Line, Times: 1, Send: Send{Method: "GET", Path: "/"}, Expect: Expect{API: -1}}
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
		"from":   func(v ast.Node) { from = v; s.From = p.source(v) },
		"send":   func(v ast.Node) { send = v; p.send(v, &s.Send) },
		"times":  func(v ast.Node) { s.Times = p.number(v, "times", 1, 2_000_000) },
		"expect": func(v ast.Node) { p.expect(v, &s.Expect) },
	})
	if seen["advance"] {
		if len(seen) > 1 {
			p.fault(n, "step: advance stands alone")
		}
		p.s.Steps = append(p.s.Steps, s)
		return
	}
	if !seen["expect"] {
		p.fault(n, "step: want advance, or expect")
	}
	if from != nil && p.real() && (s.From.Raw != "" || !realClients.Contains(s.From.Prefix.Addr()) || s.From.Prefix.Bits() < 16) {
		p.fault(from, "from: targets in real time want addresses of %s: the second byte tells scenarios apart", realClients)
	}
	if send != nil && s.Send.Parallel && (slices.ContainsFunc(p.s.Targets, Target.Virtual) || len(s.Expect.Header) > 0) {
		p.fault(send, "send: parallel wants targets in real time and no expected header")
	}
	total := 0
	for _, count := range s.Expect.Status {
		total += count
	}
	if seen["expect"] && total != s.Times {
		p.fault(n, "expect: counts %d answers of %d", total, s.Times)
	}
	p.s.Steps = append(p.s.Steps, s)
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
			if s.Path = p.text(v, "path"); !strings.HasPrefix(s.Path, "/") {
				p.fault(v, "path: want one that begins with /")
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
		"parallel": func(v ast.Node) {
			b, isBool := v.(*ast.BoolNode)
			if !isBool {
				p.fault(v, "parallel: want true or false")
				return
			}
			s.Parallel = b.Value
		},
	})
}

func (p *parsing) unknownName(v ast.Node, line string) {
	Fill([]string{line}, func(name string) (string, bool) {
		if name != "forged" && name != "long" && !slices.Contains(p.s.Keys, name) {
			p.fault(v, "headers: $%s is no key of this scenario: keys come before steps", name)
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
		"api":       func(v ast.Node) { e.API = p.number(v, "api", 0, 2_000_000) },
	}
	for i := m.MapRange(); i.Next(); {
		name := i.Key().String()
		if status, err := strconv.Atoi(name); err == nil {
			if status < 100 || status > 599 {
				p.fault(i.Key(), "expect: status %d: want 100 to 599", status)
			}
			e.Status[status] = p.number(i.Value(), "expect", 1, 2_000_000)
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
