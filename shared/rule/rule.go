// Package rule holds the rule model: what is limited, for whom, by how much.
//
// A [Draft] is a rules file as somebody wrote it, with source positions. [Compile] validates all of it at once, giving
// a [Set] of typed rules that needs no further check. Parsing YAML is not done here, so that none of it gets into
// the Wasm build.
package rule

import "github.com/weirproject/weir/shared/limit"

// Rule is a validated rule, as a [Set] tells it. What it points to is the set's and must not be changed.
type Rule struct {
	Name string // stable identity of the rule's counters: [a-z0-9-]{1,63}
	// Limit is what applies where neither a tier nor an override says otherwise; of a rule with Tier, the strictest
	// tier's. See [Set.Grant].
	Limit limit.Limit
	// Valid is the limit of an address whose API key is known; edge rules only, nil for "the same bucket size as
	// Limit, kept apart".
	Valid *limit.Limit
	*Terms
	Index uint32 // the rule's place in its [Set]
	Line  uint32 // where the rule begins in its file; 0 where unknown
}

// Terms are what a rule says but for its name, its limits, the paths and hosts it applies to.
type Terms struct {
	Where     Where
	Algorithm Algorithm
	Mode      Mode
	// By is the principal: the choices together name who is limited.
	By             []Choice
	OnStoreFailure FailureMode
	Headers        Headers
	// PrefixV4 and PrefixV6 are how many bits of an address make one principal; edge rules only.
	PrefixV4, PrefixV6 int
	// OuterV6 is the wider IPv6 network that every address of it pays for too, at 16 times the limit; edge rules only, 0
	// where PrefixV6 is that wide itself.
	OuterV6 int
	Cost    int64 // what a call of unstated cost costs, 1 to [limit.MaxCount]
	Tier    bool  // the limit is the caller's tier's
	Exact   bool  // no lease, no local share, no fallback but Closed
	Offset  bool  // each principal's fixed windows begin at an instant of its own
	Penalty Penalty
	// Methods are those that the rule applies to, none for all; GET stands for HEAD too, as it does for handlers.
	Methods []string
	// HeaderNames are request headers that must all be present, in lower case.
	HeaderNames []string
}

// Penalty lengthens the refusals of a principal that goes on when refused. The zero value is none.
type Penalty struct {
	After   int64        // refusals before the first longer one, 1 to 1,000,000
	Ceiling limit.Micros // the longest refusal, 1 s to 24 h
	Decay   limit.Micros // time without a refusal that halves the count, 1 s to 24 h
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

// The algorithms. At the edge only [TokenBucket] and [GCRA] are legal.
const (
	TokenBucket Algorithm = iota
	SlidingWindow
	GCRA
	FixedWindow
	LeakyBucket
	LeakyQueue
	SlidingLog
)

// HasBurst tells whether a limit of the algorithm has a burst: a bucket's capacity, a queue's length.
func (a Algorithm) HasBurst() bool {
	return a == TokenBucket || a == GCRA || a == LeakyBucket || a == LeakyQueue
}

// Mode tells whether a rule's refusals count.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota
	Shadow       // decided and counted, never refusing, as if it were enforced alone
)

// Part is one attribute of a request that takes part in naming who is limited.
type Part uint8

// The attributes.
const (
	Key      Part = iota // the API key's id
	Tenant               // the tenant that the key or user belongs to
	Address              // the client's address, v6 cut to /64
	Endpoint             // method and matched pattern, never the raw path
	Global               // everybody together
	User                 // a verified user: issuer, tenant, subject
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
	wheres     = []word[Where]{{"edge", Edge}, {"origin", Origin}}
	algorithms = []word[Algorithm]{{"token-bucket", TokenBucket}, {"gcra", GCRA}, {"sliding-window", SlidingWindow},
		{"fixed-window", FixedWindow}, {"leaky-bucket", LeakyBucket}, {"leaky-queue", LeakyQueue}, {"sliding-log", SlidingLog}}
	edgeAlgorithms = algorithms[:2]
	modes          = []word[Mode]{{"enforce", Enforce}, {"shadow", Shadow}}
	parts          = []word[Part]{{"key", Key}, {"user", User}, {"tenant", Tenant}, {"address", Address}, {"endpoint", Endpoint}, {"global", Global}}
	failureModes   = []word[FailureMode]{{"local", Local}, {"open", Open}, {"closed", Closed}}
	headerModes    = []word[Headers]{{"full", Full}, {"retry-only", RetryOnly}, {"none", None}}
	truths         = []word[bool]{{"false", false}, {"true", true}}
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

// ParseAlgorithm reads the spelling in a rules file.
func ParseAlgorithm(text string) (a Algorithm, ok bool) { return lookup(algorithms, text) }

// String is the spelling in a rules file.
func (a Algorithm) String() string { return spelling(algorithms, a) }

// String is the spelling in a rules file.
func (m Mode) String() string { return spelling(modes, m) }

// String is the spelling in a rules file.
func (p Part) String() string { return spelling(parts, p) }

// String is the spelling in a rules file.
func (m FailureMode) String() string { return spelling(failureModes, m) }

// String is the spelling in a rules file.
func (h Headers) String() string { return spelling(headerModes, h) }
