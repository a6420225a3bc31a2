package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// minRealWindow is the shortest window of a limit on a target that runs in real time: the wall clock must not cross
// a window's edge, nor refill a bucket, while a scenario runs.
const minRealWindow = time.Hour

// Folder reads all scenario files of a folder, sorted by name. A rules entry that is a name stands for the file of
// that name in the folder's subfolder rules. All faults of all files come in one error.
func Folder(path string) ([]*Scenario, error) {
	files, err := filepath.Glob(filepath.Join(path, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no scenario files (*.yaml)", path)
	}
	var all []*Scenario
	var faults []error
	seen := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		s, err := Parse(filepath.Base(f), text, filepath.Join(path, "rules"))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if first, taken := seen[s.Name]; taken {
			faults = append(faults, Fault{s.File, 1, fmt.Sprintf("name: %s is the name of %s already", s.Name, first)})
		}
		seen[s.Name] = s.File
		all = append(all, s)
	}
	return all, errors.Join(faults...)
}

// Parse reads one scenario strictly: an unknown field, a value out of its range or a step that a target cannot run
// is a [Fault] with its line. Faults come joined.
func Parse(file string, text []byte, rulesFolder string) (*Scenario, error) {
	doc, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", file, strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	p := &parsing{file: file, rulesFolder: rulesFolder, s: &Scenario{File: file, Workers: 1}, applied: 1}
	if len(doc.Docs) != 1 || doc.Docs[0].Body == nil {
		return nil, Fault{file, 1, "want one document"}
	}
	p.scenario(doc.Docs[0].Body)
	if len(p.faults) > 0 {
		return nil, errors.Join(p.faults...)
	}
	return p.s, nil
}

// reserved are the names that stand for something else than an issued key.
var reserved = []string{"forged", "long", "wide", "entries"}

type parsing struct {
	file        string
	rulesFolder string
	s           *Scenario
	applied     int // release of the last bundle that was not refused
	faults      []error
}

func (p *parsing) fault(n ast.Node, format string, args ...any) {
	p.faults = append(p.faults, Fault{p.file, n.GetToken().Position.Line, fmt.Sprintf(format, args...)})
}

// fields calls the reader of each field of a mapping; a field without one is a fault.
func (p *parsing) fields(n ast.Node, what string, readers map[string]func(ast.Node)) map[string]bool {
	seen := map[string]bool{}
	m, ok := n.(ast.MapNode)
	if !ok {
		p.fault(n, "%s: want a mapping", what)
		return seen
	}
	for i := m.MapRange(); i.Next(); {
		name := i.Key().String()
		seen[name] = true
		if read := readers[name]; read != nil {
			read(i.Value())
			continue
		}
		known := []string{}
		for k := range readers {
			known = append(known, k)
		}
		slices.Sort(known)
		p.fault(i.Key(), "%s: unknown field %q: want %s", what, name, strings.Join(known, ", "))
	}
	return seen
}

func (p *parsing) items(n ast.Node, what string) []ast.Node {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		p.fault(n, "%s: want a list", what)
		return nil
	}
	return list.Values
}

func (p *parsing) text(n ast.Node, what string) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value
	}
	p.fault(n, "%s: want a text", what)
	return ""
}

func (p *parsing) texts(n ast.Node, what string) []string {
	var all []string
	for _, item := range p.items(n, what) {
		all = append(all, p.text(item, what))
	}
	return all
}

func (p *parsing) number(n ast.Node, what string, least, most int) int {
	v, err := strconv.Atoi(strings.ReplaceAll(n.GetToken().Value, "_", ""))
	if _, integer := n.(*ast.IntegerNode); !integer || err != nil || v < least || v > most {
		p.fault(n, "%s: want an integer from %d to %d", what, least, most)
		return least
	}
	return v
}

var (
	nameForm   = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	faultForm  = regexp.MustCompile(`^(trap-on-path=/\S*|start-fails-after=[1-9]\d*|no-shared-data)$`)
	windowForm = regexp.MustCompile(`^\d+/(\d+)(ms|s|m|h|d)$`)
	units      = map[string]time.Duration{
		"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
	}
)

func (p *parsing) scenario(n ast.Node) {
	var steps, rules, targets, users ast.Node
	var edgeOnly []ast.Node
	seen := p.fields(n, "scenario", map[string]func(ast.Node){
		"name": func(v ast.Node) {
			if p.s.Name = p.text(v, "name"); !nameForm.MatchString(p.s.Name) {
				p.fault(v, "name: want small letters, digits and single hyphens")
			}
		},
		"why":     func(v ast.Node) { p.s.Why = p.text(v, "why") },
		"targets": func(v ast.Node) { targets = v; p.targets(v) },
		"rules":   func(v ast.Node) { rules = v; p.s.Rules = p.rules(v) },
		"keys": func(v ast.Node) {
			for _, name := range p.texts(v, "keys") {
				if !nameForm.MatchString(name) || slices.Contains(reserved, name) || slices.Contains(p.s.Keys, name) {
					p.fault(v, "keys: %q: want a new name of small letters, digits and single hyphens; not %s",
						name, strings.Join(reserved, ", "))
				}
				p.s.Keys = append(p.s.Keys, name)
			}
		},
		"users":   func(v ast.Node) { users = v; p.users(v) },
		"workers": func(v ast.Node) { p.s.Workers = p.number(v, "workers", 1, 16) },
		"fault": func(v ast.Node) {
			if p.s.Fault = p.text(v, "fault"); !faultForm.MatchString(p.s.Fault) {
				p.fault(v, "fault: want trap-on-path=/path, start-fails-after=N or no-shared-data")
			}
			edgeOnly = append(edgeOnly, v)
		},
		"proxied": func(v ast.Node) { p.s.Proxied = p.yes(v, "proxied"); edgeOnly = append(edgeOnly, v) },
		"steps":   func(v ast.Node) { steps = v },
	})
	for _, v := range edgeOnly {
		p.wantEdge(v, "fault, proxied")
	}
	for _, need := range []string{"name", "why", "targets", "rules", "steps"} {
		if !seen[need] {
			p.fault(n, "%s: is missing", need)
		}
	}
	if users != nil && p.s.On(Wasmhost) {
		p.fault(users, "users: not for wasmhost, where no origin verifies them")
	}
	for _, name := range p.s.Keys {
		if _, taken := p.s.Users[name]; taken {
			p.fault(users, "users: %q is a key's name", name)
		}
	}
	if rules != nil && targets != nil && p.real() {
		p.windows(rules, p.s.Rules)
	}
	if steps != nil {
		list := p.items(steps, "steps")
		if len(list) == 0 {
			p.fault(steps, "steps: want at least one")
		}
		for _, item := range list {
			p.step(item)
		}
	}
}

// users reads a mapping of users to their tiers, which may be empty texts.
func (p *parsing) users(v ast.Node) {
	p.s.Users = map[string]string{}
	m, ok := v.(ast.MapNode)
	if !ok {
		p.fault(v, "users: want a mapping of names to tiers")
		return
	}
	for i := m.MapRange(); i.Next(); {
		name := p.text(i.Key(), "users")
		if !nameForm.MatchString(name) || slices.Contains(reserved, name) {
			p.fault(i.Key(), "users: %q: want small letters, digits and single hyphens; not %s", name, strings.Join(reserved, ", "))
		}
		p.s.Users[name] = p.text(i.Value(), "users."+name)
	}
}

func (p *parsing) targets(v ast.Node) {
	for _, text := range p.texts(v, "targets") {
		t := Target(text)
		if !slices.Contains(Targets, t) || p.s.On(t) {
			p.fault(v, "targets: %q: want each at most once of wasmhost, envoy, container, memory, valkey", text)
		}
		p.s.Targets = append(p.s.Targets, t)
	}
	if len(p.s.Targets) == 0 {
		p.fault(v, "targets: want at least one")
	}
}

// real tells whether a target of the scenario runs in real time.
func (p *parsing) real() bool {
	return slices.ContainsFunc(p.s.Targets, func(t Target) bool { return !t.Virtual() })
}

// wantEdge refuses what only an edge can do, if a target has none.
func (p *parsing) wantEdge(n ast.Node, what string) {
	if p.s.On(Memory) || p.s.On(Valkey) {
		p.fault(n, "%s: only for targets with an edge (wasmhost, envoy)", what)
	}
}

// yes reads true or false.
func (p *parsing) yes(v ast.Node, what string) bool {
	b, isBool := v.(*ast.BoolNode)
	if !isBool {
		p.fault(v, "%s: want true or false", what)
		return false
	}
	return b.Value
}

// rules takes a list of rules, or the name of a file that holds a whole rules file, and returns a rules file's text.
func (p *parsing) rules(v ast.Node) string {
	if _, list := v.(*ast.SequenceNode); list {
		var rules any
		if err := yaml.NodeToValue(v, &rules, yaml.UseOrderedMap()); err != nil {
			p.fault(v, "rules: %v", err)
			return ""
		}
		text, err := yaml.Marshal(yaml.MapSlice{{Key: "version", Value: 1}, {Key: "rules", Value: rules}})
		if err != nil {
			p.fault(v, "rules: %v", err)
		}
		return string(text)
	}
	name := p.text(v, "rules")
	if !nameForm.MatchString(name) {
		p.fault(v, "rules: want a list of rules, or the name of a file in the folder rules")
		return ""
	}
	text, err := os.ReadFile(filepath.Join(p.rulesFolder, name+".yaml"))
	if err != nil {
		p.fault(v, "rules: no file rules/%s.yaml", name)
	}
	return string(text)
}

// windows refuses limits that a real clock could move within a run.
func (p *parsing) windows(rules ast.Node, text string) {
	var all any
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		p.fault(rules, "rules: %v", err)
		return
	}
	var look func(v any)
	look = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				look(item)
			}
		case map[string]any:
			for name, value := range v {
				limit, isText := value.(string)
				if name != "limit" || !isText {
					look(value)
					continue
				}
				m := windowForm.FindStringSubmatch(limit)
				if m == nil {
					continue // the rules' own validation says what is wrong
				}
				n, err := strconv.Atoi(m[1])
				if err != nil || time.Duration(n)*units[m[2]] < minRealWindow {
					p.fault(rules, "rules: limit %s: targets in real time want windows of 1h or more", limit)
				}
			}
		}
	}
	look(all)
}
