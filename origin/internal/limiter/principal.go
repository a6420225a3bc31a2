package limiter

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/shared/rule"
)

// breadth is how much of an address a counter is for. Beyond the narrowest, callers share counters that nobody could make
// enough new ones for: see [newcomers].
type breadth uint8

const (
	own     breadth = iota // one IPv4 address, or the IPv6 network that an ISP hands out
	network                // what one operator has: v4 /24, v6 /48
	anyone                 // all addresses together: [Counter.Overflow]
)

// prefixes, by breadth, of an address that makes one principal at the origin.
var (
	prefixesV4 = [...]int{own: rule.DefaultPrefixV4, network: 24}
	prefixesV6 = [...]int{own: rule.DefaultPrefixV6, network: 48}
)

// bitsOf is how many bits of an unmapped address make one principal.
func bitsOf(a netip.Addr, wide breadth) int {
	if a.Is4() {
		return prefixesV4[wide]
	}
	return prefixesV6[wide]
}

// present are the parts that a caller has.
func present(c *identity.Caller) (p rule.Parts) {
	if c.Key != nil {
		p = p.With(rule.Key)
	}
	if c.User != nil {
		p = p.With(rule.User)
	}
	if c.Tenant() != "" {
		p = p.With(rule.Tenant)
	}
	if c.Address.IsValid() {
		p = p.With(rule.Address)
	}
	return p
}

// principal is who is limited by a rule in a request: what its chosen parts are of.
type principal struct {
	caller          *identity.Caller
	method, pattern string
	breadth         breadth // own or network
}

// append appends one part: its kind, its length, its value, so that no two lists of values run into the same bytes.
func (p *principal) append(dst []byte, part rule.Part) []byte {
	dst = append(dst, byte(part), 0, 0, 0, 0)
	from := len(dst)
	switch part {
	case rule.Key:
		dst = append(dst, p.caller.Key.ID...)
	case rule.User:
		dst = appendUser(dst, p.caller.User)
	case rule.Tenant:
		dst = append(dst, p.caller.Tenant()...)
	case rule.Address:
		dst = appendNetwork(dst, p.caller.Address, p.breadth)
	case rule.Endpoint:
		dst = append(dst, rule.EndpointMethod(p.method)...)
		dst = append(append(dst, ' '), p.pattern...)
	case rule.Global:
	}
	binary.BigEndian.PutUint32(dst[from-4:], uint32(len(dst)-from))
	return dst
}

// appendUser appends who a user is, each text after its length: an issuer's tenants and subjects are its own to name.
func appendUser(dst []byte, u *identity.User) []byte {
	for _, text := range [...]string{u.Issuer, u.Tenant, u.Subject} {
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(text)))
		dst = append(dst, text...)
	}
	return dst
}

// appendNetwork appends the network of an address that counts as one caller. A wider one ends in its size, or it would be
// the first address within it.
func appendNetwork(dst []byte, a netip.Addr, wide breadth) []byte {
	a = a.Unmap().WithZone("")
	bits := bitsOf(a, wide)
	p, err := a.Prefix(bits)
	if err != nil { // no family is shorter than its prefixes
		return dst
	}
	if a.Is4() {
		b := p.Addr().As4()
		dst = append(dst, b[:]...)
	} else {
		b := p.Addr().As16()
		dst = append(dst, b[:]...)
	}
	if wide != own {
		dst = append(dst, byte(bits))
	}
	return dst
}
