// Package rule holds the rule model: what is limited, for whom, by how much.
//
// A [Spec] is a rule as somebody wrote it, with source positions. [Compile] validates all of them at once, giving
// a [Set] of typed rules that needs no further check. Parsing YAML is not done here, so that none of it gets into
// the Wasm build.
package rule

import "github.com/weirproject/weir/shared/limit"

// Rule is a validated rule.
type Rule struct {
	Name      string // stable identity of the rule's counters: [a-z0-9-]{1,63}
	Where     Where
	Algorithm Algorithm
	Limit     limit.Limit
	// Valid is the limit of an address whose API key is known; edge rules only, nil for "the same bucket size as
	// Limit, kept apart".
	Valid *limit.Limit
	// By is the principal: all parts together name who is limited.
	By             []Part
	OnStoreFailure FailureMode
	Headers        Headers
	// PrefixV4 and PrefixV6 are how many bits of an address make one principal; edge rules only.
	PrefixV4, PrefixV6 int
	// Index is the rule's place in its [Set].
	Index int

	paths   []pattern
	methods []string
}

// Where is the tier that enforces a rule.
type Where uint8

// The tiers.
const (
	Origin Where = iota
	Edge
)

// Algorithm is one of shared/limit's.
type Algorithm uint8

// The algorithms of this version: [TokenBucket] at the edge, [SlidingWindow] at the origin.
const (
	TokenBucket Algorithm = iota
	SlidingWindow
)

// Part is one attribute of a request that takes part in naming who is limited.
type Part uint8

// The attributes.
const (
	Key      Part = iota // the API key's id
	Tenant               // the tenant that the key belongs to
	Address              // the client's address, v6 cut to /64
	Endpoint             // method and matched pattern, never the raw path
	Global               // everybody together
)

// FailureMode is what answers for a rule whose counter cannot be asked.
type FailureMode uint8

// The failure modes.
const (
	Local  FailureMode = iota // count in this process
	Open                      // let pass
	Closed                    // refuse with 503
)

// Headers is how much a rule tells the client about itself.
type Headers uint8

// The header modes.
const (
	Full      Headers = iota // Retry-After, RateLimit, RateLimit-Policy, X-RateLimit-*
	RetryOnly                // Retry-After alone
	None                     // nothing
)

// word is the spelling of a value in a rules file.
type word[T any] struct {
	text  string
	value T
}

// Spellings, in the order that messages list them.
var (
	wheres       = []word[Where]{{"edge", Edge}, {"origin", Origin}}
	algorithms   = []word[Algorithm]{{"token-bucket", TokenBucket}, {"sliding-window", SlidingWindow}}
	parts        = []word[Part]{{"key", Key}, {"tenant", Tenant}, {"address", Address}, {"endpoint", Endpoint}, {"global", Global}}
	failureModes = []word[FailureMode]{{"local", Local}, {"open", Open}, {"closed", Closed}}
	headerModes  = []word[Headers]{{"full", Full}, {"retry-only", RetryOnly}, {"none", None}}
)

func lookup[T any](words []word[T], text string) (value T, ok bool) {
	for _, w := range words {
		if w.text == text {
			return w.value, true
		}
	}
	return value, false
}

func spelling[T comparable](words []word[T], value T) string {
	for _, w := range words {
		if w.value == value {
			return w.text
		}
	}
	return "unknown"
}

func listed[T any](words []word[T]) string {
	text := ""
	for i, w := range words {
		if i > 0 {
			text += ", "
		}
		text += w.text
	}
	return text
}

// String is the spelling in a rules file.
func (w Where) String() string { return spelling(wheres, w) }

// String is the spelling in a rules file.
func (a Algorithm) String() string { return spelling(algorithms, a) }

// String is the spelling in a rules file.
func (p Part) String() string { return spelling(parts, p) }

// String is the spelling in a rules file.
func (m FailureMode) String() string { return spelling(failureModes, m) }

// String is the spelling in a rules file.
func (h Headers) String() string { return spelling(headerModes, h) }
