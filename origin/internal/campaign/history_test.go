package campaign

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/shared/limit"
)

// history is all that happens in one run. Its text is what a failing one is kept as.
type history struct {
	seed      uint64
	processes int
	slots     bool // each counter in a slot of its own, so that shadow rules are asked beside calls
	releases  [][]ruleSpec
	steps     []step
}

// ruleSpec is a rule, and what overrides and tiers give callers under it.
type ruleSpec struct {
	name, by, path, algorithm, mode, failure string
	count, burst, cost                       int64
	window                                   limit.Micros
	exact, tier, offset                      bool
	penalty                                  int64 // refusals before the first longer one; 0: none
	override                                 int64 // count of a limit of k1's or u1's own; 0: none
}

// Limits of a release's tiers: the strictest is for callers without one.
const (
	freeCount, paidCount = 4, 9
	penaltyCeiling       = 60 * limit.Second
)

// step is one thing that happens. Fields that a kind of step does not name are empty.
type step struct {
	kind    string // advance, call, begin, end, patient, peek, refund, reset, use, spoil, leave, join, failover, process-clock, store-clock, news, audit
	n       int    // the call's number, by which begin, end and refund name it
	process int
	who     string // see callers
	path    string
	cost    int64
	id      string
	fault   string // none if empty: error, done, twice, lost, lostdone
	rule    string // that a fault or spoil is about
	held    string // request or reply, of begin
	by      limit.Micros
	amount  int // of failover: how many steps are lost; of use and join: which release
}

func (s step) String() string {
	var b strings.Builder
	b.WriteString(s.kind)
	add := func(name, value string, there bool) {
		if there {
			fmt.Fprintf(&b, " %s=%s", name, value)
		}
	}
	add("n", strconv.Itoa(s.n), s.n != 0)
	add("process", strconv.Itoa(s.process), s.process != 0)
	add("who", s.who, s.who != "")
	add("path", s.path, s.path != "")
	add("cost", strconv.FormatInt(s.cost, 10), s.cost != 0)
	add("id", s.id, s.id != "")
	add("fault", s.fault, s.fault != "")
	add("rule", s.rule, s.rule != "")
	add("held", s.held, s.held != "")
	add("by", strconv.FormatInt(int64(s.by), 10), s.by != 0)
	add("amount", strconv.Itoa(s.amount), s.amount != 0)
	return b.String()
}

func (r ruleSpec) String() string {
	s := fmt.Sprintf("rule name=%s by=%s path=%s algorithm=%s mode=%s failure=%s count=%d burst=%d cost=%d window=%d",
		r.name, r.by, r.path, r.algorithm, r.mode, r.failure, r.count, r.burst, r.cost, r.window)
	if r.exact {
		s += " exact=1"
	}
	if r.tier {
		s += " tier=1"
	}
	if r.offset {
		s += " offset=1"
	}
	if r.penalty > 0 {
		s += fmt.Sprintf(" penalty=%d", r.penalty)
	}
	if r.override > 0 {
		s += fmt.Sprintf(" override=%d", r.override)
	}
	return s
}

// text is what parse reads.
func (h history) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "history seed=%d processes=%d slots=%v\n", h.seed, h.processes, h.slots)
	for _, rules := range h.releases {
		b.WriteString("release\n")
		for _, r := range rules {
			fmt.Fprintf(&b, "  %s\n", r)
		}
	}
	b.WriteString("steps\n")
	for _, s := range h.steps {
		fmt.Fprintf(&b, "  %s\n", s)
	}
	return b.String()
}

// parse reads a history; lines that begin with # are comments.
func parse(text string) (h history, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for at := 1; lines.Scan(); at++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		f := fields{}
		for _, w := range words[1:] {
			name, value, ok := strings.Cut(w, "=")
			if !ok {
				return h, fmt.Errorf("line %d: %q: want name=value", at, w)
			}
			f[name] = value
		}
		switch words[0] {
		case "history":
			h.seed, h.processes, h.slots = uint64(f.number("seed")), int(f.number("processes")), f["slots"] == "true"
		case "release":
			h.releases = append(h.releases, nil)
		case "rule":
			if len(h.releases) == 0 {
				return h, fmt.Errorf("line %d: a rule before the first release", at)
			}
			last := &h.releases[len(h.releases)-1]
			*last = append(*last, ruleSpec{name: f["name"], by: f["by"], path: f["path"], algorithm: f["algorithm"], mode: f["mode"],
				failure: f["failure"], count: f.number("count"), burst: f.number("burst"), cost: f.number("cost"), window: limit.Micros(f.number("window")),
				exact: f["exact"] != "", tier: f["tier"] != "", offset: f["offset"] != "", penalty: f.number("penalty"), override: f.number("override")})
		case "steps":
		default:
			if !slices.Contains(kinds, words[0]) {
				return h, fmt.Errorf("line %d: %q: want history, release, rule, steps or a step: %s", at, words[0], strings.Join(kinds, ", "))
			}
			h.steps = append(h.steps, step{kind: words[0], n: int(f.number("n")), process: int(f.number("process")), who: f["who"], path: f["path"],
				cost: f.number("cost"), id: f["id"], fault: f["fault"], rule: f["rule"], held: f["held"], by: limit.Micros(f.number("by")), amount: int(f.number("amount"))})
		}
		if f["!"] != "" {
			return h, fmt.Errorf("line %d: %s", at, f["!"])
		}
	}
	if h.processes < 1 || len(h.releases) == 0 {
		return h, fmt.Errorf("want a history of 1 process and 1 release at least")
	}
	return h, nil
}

var kinds = []string{"advance", "call", "begin", "end", "patient", "peek", "refund", "reset", "use", "spoil", "leave", "join", "failover", "process-clock", "store-clock", "news", "audit"}

type fields map[string]string

// number is a field's, 0 where it is not told. What is none is noted under "!".
func (f fields) number(name string) int64 {
	if f[name] == "" {
		return 0
	}
	if name == "seed" {
		n, err := strconv.ParseUint(f[name], 10, 64)
		if err != nil {
			f["!"] = err.Error()
		}
		return int64(n)
	}
	n, err := strconv.ParseInt(f[name], 10, 64)
	if err != nil {
		f["!"] = err.Error()
	}
	return n
}

// yaml is a release as a rules file.
func yaml(rules []ruleSpec) string {
	var b, overrides strings.Builder
	fmt.Fprintf(&b, "version: 1\ntiers: {free: {limit: %d/1m}, paid: {limit: %d/1m}}\nrules:\n", freeCount, paidCount)
	for _, r := range rules {
		fmt.Fprintf(&b, "- {name: %s, where: origin, by: [%s], algorithm: %s, cost: %d, mode: %s", r.name, strings.ReplaceAll(r.by, "+", ", "), r.algorithm, r.cost, r.mode)
		if r.tier {
			b.WriteString(", tier: true")
		} else {
			fmt.Fprintf(&b, ", limit: %d/%dms", r.count, r.window/limit.Millisecond)
			if r.burst > 0 {
				fmt.Fprintf(&b, ", burst: %d", r.burst)
			}
		}
		if r.exact {
			b.WriteString(", exact: true")
		} else {
			fmt.Fprintf(&b, ", on-store-failure: %s", r.failure)
		}
		if r.offset {
			b.WriteString(", offset: true")
		}
		if r.penalty > 0 {
			fmt.Fprintf(&b, ", penalty: {after: %d, ceiling: %ds, decay: 10s}", r.penalty, penaltyCeiling/limit.Second)
		}
		paths := `"/**", /`
		if r.path != "/**" {
			paths = r.path
		}
		fmt.Fprintf(&b, ", match: {paths: [%s]}}\n", paths)
		if r.override > 0 {
			whose := "key-id: k1"
			if r.by == "user" {
				whose = fmt.Sprintf("user: %q", callers["u1"].user)
			}
			fmt.Fprintf(&overrides, "- {rule: %s, %s, limit: %d/%dms}\n", r.name, whose, r.override, r.window/limit.Millisecond)
		}
	}
	if overrides.Len() > 0 {
		b.WriteString("overrides:\n" + overrides.String())
	}
	return b.String()
}
