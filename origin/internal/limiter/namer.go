package limiter

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"math/bits"
	"sync"

	"github.com/dchest/siphash"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Rotation is a change of the secret that names counters: for a time each counter has two names, and the store decides
// which one it is kept under.
type Rotation struct {
	Former []byte // the secret that is being replaced
}

// namer names counters under a secret, or two. It is safe for concurrent use.
type namer struct {
	secret sync.Pool // *mac
	former *sync.Pool
}

// mac is an HMAC with its buffers, so that a name costs no allocation.
type mac struct {
	hash.Hash
	parts []byte
	sum   [sha256.Size]byte
}

func macs(secret []byte) func() any {
	return func() any { return &mac{Hash: hmac.New(sha256.New, secret)} }
}

func newNamer(secret []byte, r *Rotation) *namer {
	n := &namer{}
	n.secret.New = macs(secret)
	if r != nil {
		n.former = &sync.Pool{New: macs(r.Former)}
	}
	return n
}

// name names the counter of a charge by a rule whose principal is the chosen parts of who. It sets the offset too, if the
// rule wants one.
func (n *namer) name(c *Charge, ru *rule.Rule, of *[ruleSize]byte, chosen []rule.Part, who *principal) {
	m := n.secret.Get().(*mac)
	defer n.secret.Put(m)
	m.parts = m.parts[:0]
	slot := 0
	for i, part := range chosen {
		m.parts = who.append(m.parts, part)
		if i == 0 {
			slot = len(m.parts)
		}
	}
	tag := uint16(siphash.Hash(0, 0, m.parts[:slot]))
	c.Counter.write(tag, of, m.keyed(m.parts))
	if n.former != nil {
		f := n.former.Get().(*mac)
		c.Former.write(tag, of, f.keyed(m.parts))
		n.former.Put(f)
	}
	if ru.Offset {
		c.Offset = offset(m.parts, c.Limit.Window)
	}
}

// offset is where a principal's windows begin, 0 to window-1. Its hash has no secret: a window must not move when the secret
// changes, and a client sees when its windows begin anyway.
func offset(parts []byte, window limit.Micros) limit.Micros {
	at, _ := bits.Mul64(siphash.Hash(1, 0, parts), uint64(window))
	return limit.Micros(at)
}

// keyed is the hash of parts.
func (m *mac) keyed(parts []byte) []byte {
	m.Reset()
	m.Write(parts)
	return m.Sum(m.sum[:0])
}

func (c *Counter) write(tag uint16, of *[ruleSize]byte, hashed []byte) {
	const digits = "0123456789abcdef"
	copy(c[:], "w1:{hhhh}:")
	for i := range 4 {
		c[4+i] = digits[tag>>(12-4*i)&15]
	}
	copy(c[slotSize:], of[:])
	base64.RawURLEncoding.Encode(c[slotSize+ruleSize:], hashed[:principalSize*6/8])
}

// idKind begins what is hashed for a call's id: no part of a principal has it.
const idKind = 0xff

// id names a call by the request id that its caller gave it, who that is, and what it asks for: an id does not let another
// call pass. It is hashed by the secret in force, so that a call repeated over a change of secrets is charged again.
func (n *namer) id(req *Request, charges []Charge) (id CallID) {
	m := n.secret.Get().(*mac)
	defer n.secret.Put(m)
	parts := append(m.parts[:0], idKind)
	for _, text := range [...]string{callerID(req), req.ID} {
		parts = binary.BigEndian.AppendUint32(parts, uint32(len(text)))
		parts = append(parts, text...)
	}
	if u := req.Caller.User; u != nil {
		parts = appendUser(parts, u)
	}
	for i := range charges {
		if c := &charges[i]; !c.Shadow {
			parts = append(parts, c.Counter[:]...)
			parts = binary.BigEndian.AppendUint64(parts, uint64(c.Cost))
		}
	}
	m.parts = parts
	copy(id[:], m.keyed(parts))
	return id
}

func callerID(req *Request) string {
	if k := req.Caller.Key; k != nil {
		return k.ID
	}
	return ""
}
