// Package scenario reads scenario files, the tests that several targets run alike.
package scenario

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Target is a system that runs scenarios.
type Target string

// The targets.
const (
	Wasmhost  Target = "wasmhost"  // the filter alone on a manual clock
	Envoy     Target = "envoy"     // real Envoy, filter, guard and origin
	Container Target = "container" // the same from their images, each in a container, counters in Valkey in another
	Memory    Target = "memory"    // the origin alone, counters in its memory
	Valkey    Target = "valkey"    // the origin alone, counters in Valkey
)

// Targets are all targets in the order that summaries show them.
var Targets = []Target{Wasmhost, Envoy, Container, Memory, Valkey}

// Virtual tells whether a target's time is moved by the scenario.
func (t Target) Virtual() bool { return t == Wasmhost }

// Scenario is a validated scenario file.
type Scenario struct {
	File    string
	Name    string // [a-z0-9-]+; unique among the files of a folder
	Why     string // the risk in one sentence
	Targets []Target
	Rules   string   // text of a rules file
	Keys    []string // names of keys that the runner issues
	// Users are users whose bearer tokens the runner gets, each with a tier or an empty one.
	Users   map[string]string
	Workers int    // of the wasmhost; 1 if the file does not say
	Fault   string // what the fault build of the filter shall do wrong; empty for the shipped build
	// Proxied: clients reach the edge through one trusted proxy, which appends their address to X-Forwarded-For.
	Proxied bool
	Steps   []Step
}

// On tells whether the scenario runs on a target.
func (s *Scenario) On(t Target) bool { return slices.Contains(s.Targets, t) }

// Alone tells whether the scenario wants an edge that no other one uses: it breaks or changes it.
func (s *Scenario) Alone() bool {
	return s.Fault != "" || slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Push != nil })
}

// Step either moves the clock, or pushes a bundle, or sends.
type Step struct {
	Line    int
	Advance time.Duration // above 0: nothing is sent
	Push    *Push         // not nil: nothing is sent
	From    Source
	Send    Send
	Times   int    // at least 1; of Await: answers in a row
	Await   *Await // not nil: sends again and again, and expects nothing else
	Expect  Expect
}

// Push is a new bundle for the edge.
type Push struct {
	Release int // above that of the last bundle that was applied, which at the start is 1
	As      Shape
	Rules   string // text of a rules file, the scenario's own if the file does not say
	Refused bool   // the edge must refuse it and go on with what it had
}

// Shape is what is unusual about a bundle.
type Shape string

// The shapes.
const (
	Good         Shape = "good"          // as weir writes it
	NewerSection Shape = "newer-section" // with a section of a kind that nobody knows, else good
	NewerFormat  Shape = "newer-format"  // with the next format version in its head, else good
	Damaged      Shape = "damaged"       // one bit differs
)

var shapes = []Shape{Good, NewerSection, NewerFormat, Damaged}

// Await repeats a request until it is answered with Status. Any status but that and those of Meanwhile is a failure, and
// so is a call that reaches the API and is not answered with 200.
type Await struct {
	Status    int
	Meanwhile []int
}

// Expected counts beside numbers.
const (
	Some = -1 // 1 or more
	Any  = -2 // any number, 0 included
)

// Passed stands for a count of calls at the API: as many as were answered with 200.
const Passed = -2

// Source is where requests come from: one address, or one address after another of a network, or a text that is no
// address at all.
type Source struct {
	Prefix netip.Prefix
	Raw    string // stands for the whole source address if not empty
}

// Network tells whether there is more than one address to come from.
func (s Source) Network() bool { return s.Raw == "" && !s.Prefix.IsSingleIP() }

// At is the n-th address, counted from 0; a network is gone through once and starts over.
func (s Source) At(n int) netip.Addr {
	a := s.Prefix.Addr()
	free := a.BitLen() - s.Prefix.Bits()
	if free < 31 {
		n &= 1<<free - 1
	}
	b := a.AsSlice()
	for i := len(b) - 1; i >= 0 && n > 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	a, _ = netip.AddrFromSlice(b)
	return a
}

// Send is a request. Header lines may hold $name for an issued key or a user's token, $forged for a key of the right form that was
// never issued (a new one each time), $long for 64,000 letters, $wide for 10,000, and $entries for 200 addresses.
type Send struct {
	Method   string   // GET if the file does not say
	Paths    []string // requests take them in turn; / if the file does not say
	Headers  []string
	Worker   int  // which worker of the edge takes it, virtual targets only
	EachOne  bool // worker: each, the workers take turns
	Parallel bool // all repetitions at once; where time is virtual, at one instant
}

// Expect is what must come back. Status counts the answers of a step; the rest is about its last answer.
type Expect struct {
	Status   map[int]int       // a number, [Some] or [Any]
	Header   map[string]string // "*" stands for any value, "~RE" for a regular expression over the whole value
	NoHeader []string
	Code     string // of the problem body
	Where    string // of the problem body
	Details  string // response code details, where the target has them
	API      int    // calls that reached the API during the step; [Passed], or -1: not asked
}

// Fault is what is wrong at a place of a file.
type Fault struct {
	File string
	Line int
	Text string
}

func (f Fault) Error() string { return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text) }

// Fill replaces the $names in header lines. An unknown name stays as it is.
func Fill(lines []string, value func(name string) (string, bool)) []string {
	filled := make([]string, len(lines))
	for i, line := range lines {
		filled[i] = line
		at := strings.IndexByte(line, '$')
		if at < 0 {
			continue
		}
		end := at + 1
		for end < len(line) && nameByte(line[end]) {
			end++
		}
		if v, ok := value(line[at+1 : end]); ok {
			filled[i] = line[:at] + v + line[end:]
		}
	}
	return filled
}

func nameByte(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' }
