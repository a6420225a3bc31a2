package rules_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/bundle"
)

// What explain and replay say of an address is what an edge does that was given the same networks.
func TestAnAddressIsTreatedAsTheEdgeTreatsIt(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	address := func() netip.Addr { // few enough bits that networks hold each other and addresses
		if random.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, byte(random.IntN(2)) << 7, byte(random.IntN(4)) << 6, byte(random.IntN(4))})
		}
		a := [16]byte{0: 0x20, 1: 1, 5: byte(random.IntN(2)), 7: byte(random.IntN(4)) << 6, 15: byte(random.IntN(4))}
		return netip.AddrFrom16(a)
	}
	found := map[rules.Treatment]int{}
	for range 50 {
		lists := map[string]int{}
		for range random.IntN(30) {
			a := address()
			p, err := a.Prefix(random.IntN(a.BitLen() + 1))
			if err != nil {
				t.Fatal(err)
			}
			lists[p.String()] = random.IntN(2)
		}
		var exempt, deny []string
		for text, list := range lists {
			if list == 0 {
				exempt = append(exempt, fmt.Sprintf("%q", text))
			} else {
				deny = append(deny, fmt.Sprintf("%q", text))
			}
		}
		release, err := rules.Parse("r.yaml", fmt.Appendf(nil, "version: 1\nrules: [{name: a, where: edge, by: [address], limit: 1/1s}]\nedge: {exempt: [%s], deny: [%s]}\n",
			strings.Join(exempt, ", "), strings.Join(deny, ", ")))
		if err != nil {
			t.Fatal(err)
		}
		settings := release.Set.EdgeSettings
		encoded, err := bundle.Encode(bundle.Content{Exempt: settings.Exempt, Deny: settings.Deny})
		if err != nil {
			t.Fatal(err)
		}
		b, err := bundle.Decode(encoded)
		if err != nil {
			t.Fatal(err)
		}
		networks := rules.NewNetworks(settings)
		for range 200 {
			a := address()
			high, low := uint64(0), uint64(0)
			if a.Is6() {
				whole := a.As16()
				high, low = binary.BigEndian.Uint64(whole[:8]), binary.BigEndian.Uint64(whole[8:])
			} else {
				whole := a.As4()
				high = uint64(binary.BigEndian.Uint32(whole[:])) << 32
			}
			want := map[bundle.Treatment]rules.Treatment{bundle.NoTreatment: rules.Untreated, bundle.Exempt: rules.Exempt, bundle.Deny: rules.Denied}[b.Networks.Find(a.Is6(), high, low)]
			got, network := networks.Find(a)
			if got != want || got != rules.Untreated && lists[network.String()] != map[rules.Treatment]int{rules.Exempt: 0, rules.Denied: 1}[got] {
				t.Fatalf("%s: %d by %v, the edge says %d; exempt %v, deny %v", a, got, network, want, exempt, deny)
			}
			found[got]++
		}
	}
	if len(found) != 3 {
		t.Errorf("treatments found: %v, want all three", found)
	}
}

func TestAddressesThatAreSpeltOddlyAreFound(t *testing.T) {
	release, err := rules.Parse("r.yaml", []byte("version: 1\nrules: [{name: a, where: edge, by: [address], limit: 1/1s}]\nedge: {deny: [192.0.2.0/24, \"2001:db8::/32\"]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	networks := rules.NewNetworks(release.Set.EdgeSettings)
	for text, want := range map[string]rules.Treatment{"::ffff:192.0.2.7": rules.Denied, "2001:db8::1%eth0": rules.Denied, "::c000:207": rules.Untreated} {
		if got, _ := networks.Find(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	if got, network := networks.Find(netip.Addr{}); got != rules.Untreated || network.IsValid() {
		t.Errorf("no address: %d by %v", got, network)
	}
	var none rules.Networks
	if got, _ := none.Find(netip.MustParseAddr("192.0.2.7")); got != rules.Untreated {
		t.Errorf("no networks: %d", got)
	}
}
