package rule

import (
	"strconv"

	"github.com/weirproject/weir/shared/limit"
)

// Network is the IP addresses that begin with the first Bits bits of Address.
type Network struct {
	V6      bool
	Bits    uint8    // 0 to 32, v6 to 128
	Address [16]byte // v4 in the first 4; zero past Bits
}

// Valid tells whether n is a network of its family with nothing set past its bits.
func (n Network) Valid() bool {
	if n.Bits > 128 || !n.V6 && n.Bits > 32 {
		return false
	}
	for i, b := range n.Address {
		switch keep := int(n.Bits) - 8*i; {
		case keep <= 0 && b != 0:
			return false
		case keep > 0 && keep < 8 && b<<keep != 0:
			return false
		}
	}
	return true
}

// MaxNetworks is how many exempt and denied networks the edge holds in all.
const MaxNetworks = 100_000

// Bounds of [EdgeSettings.TableEntries].
const (
	MinTableEntries = 1 << 10
	MaxTableEntries = 1 << 20
)

// MinStaleAfter bounds [EdgeSettings.StaleAfter] below; above, it is [limit.MaxWindow].
const MinStaleAfter = limit.Second

// EdgeSettings are what a rules file says of the edge beside its rules.
type EdgeSettings struct {
	Exempt, Deny []Network // each once; none in both
	TableEntries uint32    // how many addresses the edge keeps count of, a power of two; 0 where the file says nothing
	// StaleAfter is the age of a bundle from which on unknown keys pass as unverified; 0 for never.
	StaleAfter limit.Micros
	Unverified limit.Limit // what all those pass by; zero where StaleAfter is
}

// EdgeSpec is EdgeSettings as written, before validation.
type EdgeSpec struct {
	Exempt, Deny             []NetworkSpec
	TableEntries, StaleAfter Scalar
	UnverifiedAt             Source // where `unverified` stands; zero when absent
	UnverifiedLimit          Scalar
	UnverifiedBurst          Scalar
}

// NetworkSpec is a network as written. Reading it is left to whoever reads the file, which the Wasm build does not.
type NetworkSpec struct {
	At    Source
	Field string // as edge.deny[2]; empty in a file of networks alone
	Text  string
	Network
}

// edgeSettings checks what a file says of the edge.
func (c *compiler) edgeSettings(spec *EdgeSpec) (s EdgeSettings) {
	c.field = "edge"
	exempt := map[Network]*NetworkSpec{}
	for i := range spec.Exempt {
		n := &spec.Exempt[i]
		if exempt[n.Network] == nil {
			exempt[n.Network] = n
			s.Exempt = append(s.Exempt, n.Network)
		}
	}
	denied := map[Network]bool{}
	for i := range spec.Deny {
		n := &spec.Deny[i]
		if other := exempt[n.Network]; other != nil {
			c.faults = append(c.faults, Fault{At: n.At, Field: n.Field, Value: n.Text, Want: "is exempt as well, at " + other.At.String() + ": want it in one list"})
		} else if !denied[n.Network] {
			denied[n.Network] = true
			s.Deny = append(s.Deny, n.Network)
		}
	}
	if n := len(s.Exempt) + len(s.Deny); n > MaxNetworks {
		longest := spec.Exempt
		if len(spec.Deny) > len(longest) {
			longest = spec.Deny
		}
		c.fault(longest[len(longest)-1].At, "", strconv.Itoa(n), "want at most "+strconv.Itoa(MaxNetworks)+" networks, exempt and denied")
	}
	if t := spec.TableEntries; t.Set {
		n, tooLarge, ok := parseCount(t.Text)
		if !ok || tooLarge || n < MinTableEntries || n > MaxTableEntries || n&(n-1) != 0 {
			c.fault(t.At, ".table-entries", t.Text, "want a power of two, 1024 to 1048576")
		} else {
			s.TableEntries = uint32(n)
		}
	}
	c.unverified(spec, &s)
	return s
}

// unverified reads from when on unknown keys pass, and how many: one without the other is half of what was meant.
func (c *compiler) unverified(spec *EdgeSpec, s *EdgeSettings) {
	age := spec.StaleAfter
	if age.Set {
		d, ok := parseDuration(age.Text)
		if !ok || d < MinStaleAfter {
			c.fault(age.At, ".stale-after", age.Text, "want 1s to 366d, as 1h")
		}
		s.StaleAfter = d
	}
	switch {
	case age.Set && !present(spec.UnverifiedAt):
		c.fault(age.At, ".unverified", "", "is missing: want what unknown keys pass by from that age on, as {limit: 100/1s, burst: 200}")
	case !age.Set && present(spec.UnverifiedAt):
		c.fault(spec.UnverifiedAt, ".stale-after", "", "is missing: want the age from which on unknown keys pass, as 1h")
	}
	if present(spec.UnverifiedAt) {
		s.Unverified = c.burst(".unverified.burst", spec.UnverifiedBurst, c.rate(spec.UnverifiedAt, ".unverified.limit", spec.UnverifiedLimit))
	}
}
