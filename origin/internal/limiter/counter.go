package limiter

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Layout of a counter's name: "w1:{hhhh}:", 11 characters of the rule, 22 of the principal. hhhh is the hash tag that
// a cluster places the name by; it hangs on the first part of the principal alone, so that a caller's counters of
// rules by [key] and by [key, endpoint] share a slot, whatever the secret.
const (
	CounterSize = slotSize + ruleSize + principalSize

	slotSize      = len("w1:{hhhh}:")
	ruleSize      = 11
	principalSize = 22
)

// stateFormat is the version of what a store keeps under a name; a new one gets new names.
const stateFormat = 1

// Counter is the name of a counter: printable, of fixed length whatever the client sent, with nothing of the
// principal readable in it.
type Counter [CounterSize]byte

// Overflow is the name of the counter that principals of c's rule share where a store has no room for their own. No
// principal has it: a name's hash holds no "!".
func (c Counter) Overflow() Counter {
	for i := slotSize + ruleSize; i < len(c); i++ {
		c[i] = '!'
	}
	copy(c[:], "w1:{!!!!}:")
	return c
}

// ruleBytes hashes what makes a rule's counters its own: another algorithm or window cannot read the same state; a
// new limit can, and keeps its counters. The window is that of the limit at hand, which a tier or an override may give. It
// does not allocate.
func ruleBytes(name string, algorithm rule.Algorithm, window limit.Micros) (r [ruleSize]byte) {
	var room [4 + maxRuleName + 2 + 8]byte
	b := binary.BigEndian.AppendUint32(room[:0], uint32(len(name)))
	b = append(b, name...)
	b = append(b, byte(algorithm), stateFormat)
	b = binary.BigEndian.AppendUint64(b, uint64(window))
	sum := sha256.Sum256(b)
	base64.RawURLEncoding.Encode(r[:], sum[:8])
	return r
}

// maxRuleName is how long a rule's name is at most.
const maxRuleName = 63

// PrincipalHash is the part of the name that stands for who is counted, as logs show it.
func (c Counter) PrincipalHash() string { return string(c[slotSize+ruleSize:]) }
