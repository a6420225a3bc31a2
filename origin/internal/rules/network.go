package rules

import (
	"net/netip"
	"slices"

	"github.com/weirproject/weir/shared/rule"
)

// Treatment is what a file's edge block says of an address.
type Treatment uint8

// The treatments.
const (
	Untreated Treatment = iota // the rules are for it
	Exempt                     // no edge rule is for it
	Denied                     // the edge refuses it
)

// Networks finds the treatment of addresses, as the edge does from its bundle. The zero value treats none. It may be read
// by many at once.
type Networks struct {
	of   map[netip.Prefix]Treatment
	bits [2][]int // lengths that networks have, v4 and v6, the longest first
}

// NewNetworks are those of a file's edge block.
func NewNetworks(s rule.EdgeSettings) (n Networks) {
	if len(s.Exempt)+len(s.Deny) == 0 {
		return n
	}
	n.of = make(map[netip.Prefix]Treatment, len(s.Exempt)+len(s.Deny))
	add := func(list []rule.Network, t Treatment) {
		for _, network := range list {
			address, family := netip.AddrFrom16(network.Address), 1
			if !network.V6 {
				address, family = netip.AddrFrom4([4]byte(network.Address[:4])), 0
			}
			n.of[netip.PrefixFrom(address, int(network.Bits))] = t
			if !slices.Contains(n.bits[family], int(network.Bits)) {
				n.bits[family] = append(n.bits[family], int(network.Bits))
			}
		}
	}
	add(s.Exempt, Exempt)
	add(s.Deny, Denied)
	for _, bits := range n.bits {
		slices.SortFunc(bits, func(a, b int) int { return b - a })
	}
	return n
}

// Find is the treatment of an address with the network that says so, the longest that holds it. The zero address has none.
func (n *Networks) Find(address netip.Addr) (t Treatment, network netip.Prefix) {
	if len(n.of) == 0 || !address.IsValid() {
		return Untreated, network
	}
	address = address.Unmap().WithZone("")
	family := 0
	if address.Is6() {
		family = 1
	}
	for _, bits := range n.bits[family] {
		p, err := address.Prefix(bits)
		if err != nil { // no network of its family is longer than an address
			continue
		}
		if t, ok := n.of[p]; ok {
			return t, p
		}
	}
	return Untreated, network
}
