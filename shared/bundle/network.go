package bundle

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/weirproject/weir/shared/rule"
)

// Errors of networks.
var (
	ErrNetwork  = errors.New("bundle: networks: want whole networks, none both exempt and denied, at most 100000 in all")
	ErrNetworks = errors.New("bundle: networks section is damaged")
)

// Treatment is what an address gets for the network that it is in.
type Treatment uint8

// The treatments, as numbered in a networks section.
const (
	NoTreatment Treatment = iota
	Exempt                // no limit by address
	Deny                  // refused
)

// Networks finds the longest of the exempt and denied prefixes that an address has, read in place. The zero value holds
// none. It is read-only, so any number of goroutines may use it.
//
// The prefixes stand as the ranges that they cut the addresses into: each begins at an address and ends before the next,
// and has one treatment, that of its longest prefix. So a lookup is one search by halves, whatever the nesting.
//
// Section, all integers little-endian: {u32 exempt networks, u32 denied, u32 ranges of v6, u32 of v4}, the first address of
// each range in ascending order, {u64 high, u64 low} for v6, u32 for v4, then a u8 of treatment for each range of v6 and
// of v4. Below the first range there is none.
type Networks struct {
	exempt, deny   uint32
	v6, v4         []byte // first addresses
	treat6, treat4 []byte
}

// networksHead is the fixed part of a networks section.
const networksHead = 16

// Exempted is the number of exempt networks.
func (n *Networks) Exempted() int { return int(n.exempt) }

// Denied is the number of denied networks.
func (n *Networks) Denied() int { return int(n.deny) }

// Find is the treatment of an address in network order, v4 in the upper half of high: that of the longest prefix it has.
// It does not allocate.
func (n *Networks) Find(v6 bool, high, low uint64) Treatment {
	treat := n.treat6
	if !v6 {
		treat = n.treat4
	}
	// The range is the one before the first that begins past the address.
	from, to := 0, len(treat)
	for from < to {
		mid := int(uint(from+to) / 2)
		past := false
		if v6 {
			past = after(n.v6[16*mid:], high, low)
		} else {
			past = binary.LittleEndian.Uint32(n.v4[4*mid:]) > uint32(high>>32)
		}
		if past {
			to = mid
		} else {
			from = mid + 1
		}
	}
	if from == 0 {
		return NoTreatment
	}
	return Treatment(treat[from-1])
}

// after tells whether the v6 address at the start of b lies past another.
func after(b []byte, high, low uint64) bool {
	h := readU64(b)
	return h > high || h == high && readU64(b[8:]) > low
}

func decodeNetworks(b []byte) (Networks, error) {
	if len(b) < networksHead {
		return Networks{}, ErrNetworks
	}
	le := binary.LittleEndian
	n := Networks{exempt: le.Uint32(b), deny: le.Uint32(b[4:])}
	n6, n4 := uint64(le.Uint32(b[8:])), uint64(le.Uint32(b[12:]))
	if b = b[networksHead:]; uint64(len(b)) != 17*n6+5*n4 || uint64(n.exempt)+uint64(n.deny) > rule.MaxNetworks {
		return Networks{}, ErrNetworks
	}
	n.v6, b = b[:16*n6], b[16*n6:]
	n.v4, b = b[:4*n4], b[4*n4:]
	n.treat6, n.treat4 = b[:n6], b[n6:]
	for i := 1; i < len(n.treat6); i++ {
		if at := n.v6[16*(i-1):]; !after(n.v6[16*i:], readU64(at), readU64(at[8:])) {
			return Networks{}, ErrNetworks
		}
	}
	for i := 1; i < len(n.treat4); i++ {
		if le.Uint32(n.v4[4*(i-1):]) >= le.Uint32(n.v4[4*i:]) {
			return Networks{}, ErrNetworks
		}
	}
	for _, treatments := range [][]byte{n.treat6, n.treat4} {
		for _, t := range treatments {
			if Treatment(t) > Deny {
				return Networks{}, ErrNetworks
			}
		}
	}
	return n, nil
}

// span is a range of addresses under construction: from first up to the next one's.
type span struct {
	first [16]byte
	treat Treatment
}

// treated is a network with its treatment.
type treated struct {
	rule.Network
	treat Treatment
}

// encodeNetworks writes a networks section. Networks of one treatment may stand several times, and are counted once.
func encodeNetworks(exempt, deny []rule.Network) ([]byte, error) {
	var all []treated
	for _, n := range exempt {
		all = append(all, treated{n, Exempt})
	}
	for _, n := range deny {
		all = append(all, treated{n, Deny})
	}
	slices.SortFunc(all, func(a, b treated) int {
		if a.V6 != b.V6 {
			if a.V6 {
				return -1
			}
			return 1
		}
		return cmp.Or(bytes.Compare(a.Address[:], b.Address[:]), cmp.Compare(a.Bits, b.Bits), cmp.Compare(a.treat, b.treat))
	})
	all = slices.Compact(all)
	var families [2][]treated
	var counts [Deny + 1]uint32
	for _, n := range all {
		family := &families[0]
		if !n.V6 {
			family = &families[1]
		}
		if before := len(*family) - 1; !n.Valid() || before >= 0 && (*family)[before].Network == n.Network {
			return nil, ErrNetwork
		}
		*family = append(*family, n)
		counts[n.treat]++
	}
	if len(all) > rule.MaxNetworks {
		return nil, ErrNetwork
	}
	six, four := spans(families[0]), spans(families[1])
	le := binary.LittleEndian
	b := make([]byte, 0, networksHead+17*len(six)+5*len(four))
	for _, n := range []uint32{counts[Exempt], counts[Deny], uint32(len(six)), uint32(len(four))} {
		b = le.AppendUint32(b, n)
	}
	for _, s := range six {
		b = appendU64(b, binary.BigEndian.Uint64(s.first[:]))
		b = appendU64(b, binary.BigEndian.Uint64(s.first[8:]))
	}
	for _, s := range four {
		b = le.AppendUint32(b, binary.BigEndian.Uint32(s.first[:]))
	}
	for _, list := range [][]span{six, four} {
		for _, s := range list {
			b = append(b, byte(s.treat))
		}
	}
	return b, nil
}

// spans cuts the addresses of one family into ranges, from networks in the order of their first address, wider ones
// first. Two networks are one within the other or apart.
func spans(networks []treated) (list []span) {
	begin := func(first [16]byte, t Treatment) {
		if last := len(list) - 1; last >= 0 && list[last].first == first {
			list[last].treat = t
			return
		}
		list = append(list, span{first, t})
	}
	var around []treated // the networks that the place at hand is in, the widest first
	leave := func() {
		last := len(around) - 1
		next, more := behind(around[last].Network)
		around = around[:last]
		t := NoTreatment
		if last > 0 {
			t = around[last-1].treat
		}
		if more {
			begin(next, t)
		}
	}
	for _, n := range networks {
		for len(around) > 0 && !holds(around[len(around)-1].Network, &n.Address) {
			leave()
		}
		begin(n.Address, n.treat)
		around = append(around, n)
	}
	for len(around) > 0 {
		leave()
	}
	before := NoTreatment
	return slices.DeleteFunc(list, func(s span) bool {
		same := s.treat == before
		before = s.treat
		return same
	})
}

// holds tells whether an address is in a network.
func holds(n rule.Network, address *[16]byte) bool {
	for i := range address {
		keep := int(n.Bits) - 8*i
		if keep <= 0 {
			break
		}
		if differ := n.Address[i] ^ address[i]; differ>>max(0, 8-keep) != 0 {
			return false
		}
	}
	return true
}

// behind is the first address past a network; more is false where there is none.
func behind(n rule.Network) (next [16]byte, more bool) {
	next = n.Address
	for bit := int(n.Bits) - 1; bit >= 0; bit-- { // add 1 at the last bit of the prefix
		mask := byte(0x80) >> (bit % 8)
		next[bit/8] ^= mask
		if next[bit/8]&mask != 0 {
			return next, true
		}
	}
	return next, false
}
