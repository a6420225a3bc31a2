package limiter

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"net/netip"
	"sync"

	"github.com/dchest/siphash"

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

// prefixes of an address that make one principal at the origin: a host, or the network that an ISP hands out.
const (
	prefixV4 = rule.DefaultPrefixV4
	prefixV6 = rule.DefaultPrefixV6
)

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
// new limit can, and keeps its counters.
func ruleBytes(name string, algorithm rule.Algorithm, window limit.Micros) (r [ruleSize]byte) {
	h := sha256.New()
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(name)))
	h.Write(length[:])
	h.Write([]byte(name))
	h.Write([]byte{byte(algorithm), stateFormat})
	var w [8]byte
	binary.BigEndian.PutUint64(w[:], uint64(window))
	h.Write(w[:])
	base64.RawURLEncoding.Encode(r[:], h.Sum(nil)[:8])
	return r
}

// namer names counters under a secret. It is safe for concurrent use.
type namer struct{ macs sync.Pool }

// mac is an HMAC with its buffers, so that a name costs no allocation.
type mac struct {
	hash.Hash
	parts []byte
	sum   [sha256.Size]byte
}

func newNamer(secret []byte) *namer {
	n := &namer{}
	n.macs.New = func() any { return &mac{Hash: hmac.New(sha256.New, secret)} }
	return n
}

// name is the counter of a rule for a request, false if the request lacks a part of the rule's principal.
func (n *namer) name(c *Counter, ru applied, req *Request, pattern string) bool {
	m := n.macs.Get().(*mac)
	defer n.macs.Put(m)
	m.parts = m.parts[:0]
	slot := 0
	for i, choice := range ru.rule.By {
		var ok bool
		if m.parts, ok = appendChoice(m.parts, choice, req, pattern); !ok {
			return false
		}
		if i == 0 {
			slot = len(m.parts)
		}
	}
	m.Reset()
	m.Write(m.parts)
	tag := uint16(siphash.Hash(0, 0, m.parts[:slot]))
	const digits = "0123456789abcdef"
	copy(c[:], "w1:{hhhh}:")
	for i := range 4 {
		c[4+i] = digits[tag>>(12-4*i)&15]
	}
	copy(c[slotSize:], ru.name[:])
	base64.RawURLEncoding.Encode(c[slotSize+ruleSize:], m.Sum(m.sum[:0])[:16])
	return true
}

// appendChoice appends the first part of a choice that the request has.
func appendChoice(dst []byte, choice rule.Choice, req *Request, pattern string) ([]byte, bool) {
	from := len(dst)
	for _, part := range choice {
		var ok bool
		if dst, ok = appendPart(dst, part, req, pattern); ok {
			return dst, true
		}
		dst = dst[:from]
	}
	return dst, false
}

// appendPart appends one part of a principal: its kind, its length, its value, so that no two lists of values
// run into the same bytes.
func appendPart(dst []byte, part rule.Part, req *Request, pattern string) ([]byte, bool) {
	dst = append(dst, byte(part), 0, 0, 0, 0)
	from := len(dst)
	switch part {
	case rule.Key:
		if req.Caller.Key == nil {
			return dst, false
		}
		dst = append(dst, req.Caller.Key.ID...)
	case rule.Tenant:
		if req.Caller.Key == nil || req.Caller.Key.Tenant == "" {
			return dst, false
		}
		dst = append(dst, req.Caller.Key.Tenant...)
	case rule.Address:
		if !req.Caller.Address.IsValid() {
			return dst, false
		}
		dst = appendNetwork(dst, req.Caller.Address)
	case rule.Endpoint:
		dst = append(dst, rule.EndpointMethod(req.Method)...)
		dst = append(append(dst, ' '), pattern...)
	case rule.Global:
	}
	binary.BigEndian.PutUint32(dst[from-4:], uint32(len(dst)-from))
	return dst, true
}

// appendNetwork appends the network of an address that counts as one caller.
func appendNetwork(dst []byte, a netip.Addr) []byte {
	a = a.Unmap().WithZone("")
	bits := prefixV6
	if a.Is4() {
		bits = prefixV4
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return dst
	}
	if a.Is4() {
		b := p.Addr().As4()
		return append(dst, b[:]...)
	}
	b := p.Addr().As16()
	return append(dst, b[:]...)
}
