package bundle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/weirproject/weir/shared/rule"
)

// prefix is a network as net/netip knows it, with its treatment: what the oracle compares.
type prefix struct {
	netip.Prefix
	treat Treatment
}

func (p prefix) network() rule.Network {
	n := rule.Network{V6: p.Addr().Is6(), Bits: uint8(p.Bits())}
	copy(n.Address[:], p.Addr().AsSlice())
	return n
}

// longest is the treatment of the longest prefix that holds an address, by comparing all.
func longest(list []prefix, a netip.Addr) Treatment {
	best, t := -1, NoTreatment
	for _, p := range list {
		if p.Bits() > best && p.Contains(a) {
			best, t = p.Bits(), p.treat
		}
	}
	return t
}

func networks(t testing.TB, list []prefix) Networks {
	t.Helper()
	c := Content{}
	for _, p := range list {
		if p.treat == Exempt {
			c.Exempt = append(c.Exempt, p.network())
		} else {
			c.Deny = append(c.Deny, p.network())
		}
	}
	b, err := Decode(encode(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return b.Networks
}

func find(n *Networks, a netip.Addr) Treatment {
	var bytes [16]byte
	copy(bytes[:], a.AsSlice())
	return n.Find(a.Is6(), binary.BigEndian.Uint64(bytes[:]), binary.BigEndian.Uint64(bytes[8:]))
}

func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// randomPrefixes are n networks of both families, each once, many of them within others.
func randomPrefixes(r *rand.Rand, n int, v4, v6 func() netip.Addr) []prefix {
	var list []prefix
	seen := map[netip.Prefix]bool{}
	for len(list) < n {
		a := v4()
		if r.IntN(2) == 0 {
			a = v6()
		}
		if len(list) > 0 && r.IntN(2) == 0 { // in or around one that is there, beginning or ending with it
			other := list[r.IntN(len(list))]
			a = other.Addr()
			if r.IntN(2) == 0 {
				a = last(other.Prefix)
			}
		}
		p, err := a.Prefix(r.IntN(a.BitLen() + 1))
		if err == nil && !seen[p] {
			seen[p] = true
			list = append(list, prefix{p, Treatment(1 + r.IntN(2))})
		}
	}
	return list
}

// last is the last address of a network.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func anyV4(r *rand.Rand) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, r.Uint32())))
}

func anyV6(r *rand.Rand) netip.Addr {
	return netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, r.Uint64()), r.Uint64())))
}

// Few networks in a small space: every way to nest, touch and end at the edges of all addresses comes up.
func TestTheLongestPrefixDecides(t *testing.T) {
	r := seeded(t)
	edges := []netip.Addr{netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("::"),
		netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")}
	var found [Deny + 1]int
	for range 400 {
		list := randomPrefixes(r, r.IntN(12), func() netip.Addr {
			return netip.AddrFrom4([4]byte{byte(r.IntN(2) * 0xff), 0, 0, byte(r.IntN(8))})
		}, func() netip.Addr {
			return netip.AddrFrom16([16]byte{byte(r.IntN(2) * 0xff), 7: byte(r.IntN(4)), 8: byte(r.IntN(2) * 0x80), 15: byte(r.IntN(4))})
		})
		n := networks(t, list)
		for _, a := range append(probes(list), edges...) {
			got, want := find(&n, a), longest(list, a)
			if got != want {
				t.Fatalf("%v in %v: %v, want %v", a, list, got, want)
			}
			found[got]++
		}
	}
	t.Logf("none %d, exempt %d, denied %d", found[NoTreatment], found[Exempt], found[Deny])
	for _, n := range found {
		if n < 1000 {
			t.Error("a treatment comes up too seldom to say much")
		}
	}
}

// probes are the addresses at the edges of networks.
func probes(list []prefix) (all []netip.Addr) {
	for _, p := range list {
		first, end := p.Addr(), last(p.Prefix)
		for _, a := range []netip.Addr{first, first.Prev(), end, end.Next()} {
			if a.IsValid() {
				all = append(all, a)
			}
		}
	}
	return all
}

func Test100000NetworksAnswerAsComparingAllDoes(t *testing.T) {
	r := seeded(t)
	list := randomPrefixes(r, rule.MaxNetworks, func() netip.Addr { return anyV4(r) }, func() netip.Addr { return anyV6(r) })
	n := networks(t, list)
	if n.Exempted()+n.Denied() != rule.MaxNetworks || n.Exempted() == 0 || n.Denied() == 0 {
		t.Errorf("%d exempt, %d denied", n.Exempted(), n.Denied())
	}
	some := make([]prefix, 50)
	for i := range some {
		some[i] = list[r.IntN(len(list))]
	}
	addresses := probes(some)
	for range 50 {
		addresses = append(addresses, anyV4(r), anyV6(r))
	}
	for _, a := range addresses {
		if got, want := find(&n, a), longest(list, a); got != want {
			t.Fatalf("%v: %v, want %v", a, got, want)
		}
	}
	high := uint64(0)
	if got := testing.AllocsPerRun(1000, func() { high += 1 << 33; n.Find(false, high, 0); n.Find(true, high, high) }); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

func parsed(treat Treatment, texts ...string) (list []prefix) {
	for _, text := range texts {
		list = append(list, prefix{netip.MustParsePrefix(text), treat})
	}
	return list
}

func TestNetworksThatCannotBeAreNotEncoded(t *testing.T) {
	one := func(text string) []rule.Network { return []rule.Network{parsed(Exempt, text)[0].network()} }
	many := make([]rule.Network, rule.MaxNetworks+1)
	for i := range many {
		many[i] = rule.Network{Bits: 32, Address: [16]byte{1, byte(i >> 16), byte(i >> 8), byte(i)}}
	}
	for name, c := range map[string]Content{
		"both":            {Exempt: one("10.0.0.0/8"), Deny: one("10.0.0.0/8")},
		"bits past":       {Exempt: []rule.Network{{Bits: 8, Address: [16]byte{10, 1}}}},
		"bits past, odd":  {Exempt: []rule.Network{{Bits: 9, Address: [16]byte{10, 0x40}}}},
		"33 bits of v4":   {Deny: []rule.Network{{Bits: 33}}},
		"129 bits of v6":  {Deny: []rule.Network{{Bits: 129, V6: true}}},
		"100,001 of them": {Deny: many},
	} {
		if _, err := Encode(c); !errors.Is(err, ErrNetwork) {
			t.Errorf("%s: %v, want %v", name, err, ErrNetwork)
		}
	}
	twice := Content{Exempt: append(one("0.0.0.0/0"), append(one("::/0"), one("0.0.0.0/0")...)...), Deny: many[:5]}
	b, err := Decode(encode(t, twice))
	if err != nil || b.Networks.Exempted() != 2 || b.Networks.Denied() != 5 {
		t.Errorf("one twice: %d exempt, %d denied, %v", b.Networks.Exempted(), b.Networks.Denied(), err)
	}
}

func TestDamagedNetworksAreRefused(t *testing.T) {
	good, err := encodeNetworks([]rule.Network{parsed(Exempt, "10.0.0.0/8")[0].network(), parsed(Exempt, "2001:db8::/32")[0].network()}, nil)
	if err != nil || len(good) != networksHead+2*17+2*5 {
		t.Fatalf("%d bytes, %v", len(good), err)
	}
	with := func(at int, v ...byte) []byte { b := bytes.Clone(good); copy(b[at:], v); return b }
	for name, b := range map[string][]byte{
		"nothing":           nil,
		"cut":               good[:len(good)-1],
		"longer":            append(bytes.Clone(good), 0),
		"2^32-1 of v6":      with(8, 0xff, 0xff, 0xff, 0xff),
		"2^32-1 of v4":      with(12, 0xff, 0xff, 0xff, 0xff),
		"counts beyond":     with(0, 0xff, 0xff, 0xff, 0xff),
		"v6 out of order":   with(networksHead+7, 0xff),
		"v4 out of order":   with(networksHead+32+3, 0xff),
		"v4 twice":          with(networksHead+32+3, 11),
		"v6 treatment of 3": with(networksHead+40, 3),
		"v4 treatment of 3": with(networksHead+42, 3),
	} {
		if _, err := decodeNetworks(b); !errors.Is(err, ErrNetworks) {
			t.Errorf("%s: %v, want %v", name, err, ErrNetworks)
		}
	}
}

func BenchmarkFindNetwork(b *testing.B) {
	r := seeded(b)
	n := networks(b, randomPrefixes(r, rule.MaxNetworks, func() netip.Addr { return anyV4(r) }, func() netip.Addr { return anyV6(r) }))
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		i += 0x9e3779b97f4a7c15
		n.Find(i&1 == 0, i, 0)
	}
}
