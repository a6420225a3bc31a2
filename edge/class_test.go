package edge

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

func changes(t testing.TB, list ...keyfilter.Change) keyfilter.Changes {
	t.Helper()
	c, err := keyfilter.ReadChanges(keyfilter.EncodeChanges(list))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNetworksAreDeniedOrExemptByTheLongestPrefix(t *testing.T) {
	good, forged := newKey(t, 1), newKey(t, 2)
	b := withNetworks(t, "192.0.2.0/24 2001:db8::/32", "192.0.2.128/25 192.0.2.7/32")
	b.Rule = testRule(per(1, 1), per(1, 1)).Rule
	e := worker(newSlots(), gated(t, b, good))
	for address, want := range map[string]header.Code{
		"192.0.2.1:1": "", "[::ffff:192.0.2.2]:1": "", "192.0.2.128:1": header.AddressDenied, "192.0.2.7": header.AddressDenied,
		"[2001:db8::1]:1": "", "garbage": "", "198.51.100.1:1": "", "[::ffff:192.0.2.7]:1": header.AddressDenied,
	} {
		for i := range 3 {
			v := decide(e, from(address, 0))
			exempt := want == "" && address != "garbage" && address != "198.51.100.1:1"
			switch {
			case want != "" && v.Code != want, exempt && (!v.Allowed || v.Class != Exempt):
				t.Errorf("%s: %+v", address, v)
			case want == "" && !exempt && v.Allowed != (i == 0):
				t.Errorf("%s: call %d of a bucket of 1: %+v", address, i, v)
			}
		}
	}
	if v := decide(e, Request{Address: []byte("192.0.2.1:1"), Key: []byte(forged), HasKey: true}); v.Code != header.KeyUnknown {
		t.Errorf("a forged key from an exempt address: %+v", v)
	}
	if v := decide(e, Request{Address: []byte("192.0.2.200:1"), Key: []byte(good), HasKey: true}); v.Code != header.AddressDenied {
		t.Errorf("a good key from a denied address: %+v", v)
	}
}

// outer is a rule of 4 at once for a /64 and 10 for its /48.
func outer() bundle.Bundle {
	b := testRule(per(1, 4), per(1, 4))
	b.Rule.OuterV6, b.Rule.OuterAnonymous, b.Rule.OuterValid = 48, per(1, 10), per(1, 10)
	return b
}

func TestAV6AddressPaysForItsWiderNetworkToo(t *testing.T) {
	good := newKey(t, 1)
	e := worker(newSlots(), gated(t, outer(), good))
	admitted := 0
	for i := range 100 {
		if decide(e, from(fmt.Sprintf("[2001:db8:0:%x::1]:1", i), 0)).Allowed {
			admitted++
		}
	}
	if admitted != 10 {
		t.Errorf("%d admitted of 100 networks of one /48, want 10", admitted)
	}
	if v := decide(e, from("[2001:db8:1::1]:1", 0)); !v.Allowed {
		t.Errorf("another /48: %+v", v)
	}
	if v := decide(e, Request{Address: []byte("[2001:db8:0:1::1]:1"), Key: []byte(good), HasKey: true}); !v.Allowed {
		t.Errorf("a known key pays from another bucket: %+v", v)
	}
	for i := range 3 { // v4 has no wider network
		if v := decide(e, from(fmt.Sprintf("192.0.2.%d:1", i), 0)); !v.Allowed {
			t.Errorf("v4: %+v", v)
		}
	}
}

// What the wider network refuses is not taken from the narrower one.
func TestARefusalByOneBucketChargesNone(t *testing.T) {
	e := worker(newSlots(), outer())
	for i := range 10 {
		decide(e, from(fmt.Sprintf("[2001:db8:0:%x::1]:1", i+1), 0))
	}
	for range 50 {
		if v := decide(e, from("[2001:db8::1]:1", 0)); v.Allowed || v.Limit.Burst != 10 {
			t.Fatalf("got %+v, want refused by the /48", v)
		}
	}
	now := 10 * limit.Second // the /48 is full again, and so would a drained /64 be
	admitted := 0
	for decide(e, from("[2001:db8::1]:1", now)).Allowed {
		admitted++
	}
	if admitted != 4 {
		t.Errorf("%d admitted, want 4", admitted)
	}
}

func TestUnknownKeysPassAsUnverifiedOnceTheBundleIsTooOld(t *testing.T) {
	good, young := newKey(t, 1), newKey(t, 2)
	b := gated(t, testRule(per(1000, 1000), per(1000, 1000)), good)
	b.Gate.StaleAfter, b.Gate.Unverified = limit.Hour, per(1, 5)
	e := New(newSlots(), testSeed)
	e.Install(b, limit.Second, limit.Hour-limit.Minute) // a minute short of stale
	ask := func(key string, now limit.Micros) Verdict {
		return decide(e, Request{Now: now, Address: fmt.Appendf(nil, "192.0.2.%d:1", now%250), Key: []byte(key), HasKey: true})
	}
	now := limit.Second + limit.Minute
	if v := ask(young, now); v.Code != header.KeyUnknown {
		t.Errorf("at the stated age: %+v", v)
	}
	now++
	admitted := 0
	for range 20 { // from as many addresses: they share one bucket
		now++
		v := ask(young, now)
		switch {
		case v.Allowed && v.Class == Unverified && !v.Forged:
			admitted++
		case v.Code != header.RateLimited || v.Rule != "unverified":
			t.Errorf("got %+v", v)
		}
	}
	if admitted != 5 {
		t.Errorf("%d admitted unverified, want 5", admitted)
	}
	if v := ask(good, now); !v.Allowed || v.Class != Valid {
		t.Errorf("a known key: %+v", v)
	}
	if v := ask("wk_nonsense", now); v.Code != header.KeyMalformed {
		t.Errorf("a malformed key: %+v", v)
	}
	e.Confirm(now)
	if v := ask(young, now); v.Code != header.KeyUnknown {
		t.Errorf("after control confirmed: %+v", v)
	}
}

func TestChangesGoBeforeTheBundle(t *testing.T) {
	good, young := newKey(t, 1), newKey(t, 2)
	e := worker(newSlots(), gated(t, testRule(per(1000, 1000), per(1000, 1000)), good))
	hash := func(key string) uint64 { return keyfilter.Hash(e.gate.HashKey, []byte(key)) }
	e.Learn(changes(t, keyfilter.Change{Hash: hash(good), Op: keyfilter.Revoked}, keyfilter.Change{Hash: hash(young), Op: keyfilter.Issued}))
	if v := decide(e, Request{Key: []byte(good), HasKey: true}); v.Code != header.KeyUnknown {
		t.Errorf("a revoked key: %+v", v)
	}
	if v := decide(e, Request{Key: []byte(young), HasKey: true}); !v.Allowed {
		t.Errorf("an issued key: %+v", v)
	}
}

func TestWhereForeignKeysExistAChecksumAloneRefusesNothing(t *testing.T) {
	foreign := "legacy-key-7"
	b := gated(t, testRule(per(1000, 1000), per(1000, 1000)), foreign)
	e := worker(newSlots(), b)
	if v := decide(e, Request{Key: []byte(foreign), HasKey: true}); v.Code != header.KeyMalformed {
		t.Errorf("without foreign keys: %+v", v)
	}
	b.Gate.Foreign = true
	e.Install(b, 0, 0)
	for key, want := range map[string]header.Code{foreign: "", "legacy-key-8": header.KeyUnknown, "": header.KeyMalformed, "a,b": header.KeyConflict} {
		if v := decide(e, Request{Key: []byte(key), HasKey: true}); v.Code != want {
			t.Errorf("%q: %+v", key, v)
		}
	}
}

func TestTheTableHasTheSizeThatTheReleaseSays(t *testing.T) {
	b := testRule(per(1, 10), per(1, 10))
	b.TableEntries = rule.MinTableEntries
	slots := newSlots()
	e := worker(slots, b)
	created, evicted := 0, 0
	for i := range 20_000 {
		v := decide(e, from(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), 0))
		created, evicted = created+int(v.Created), evicted+int(v.Evicted)
	}
	if len(slots.values) != 256 || created != rule.MinTableEntries || len(e.local.sets)*localWays != rule.MinTableEntries {
		t.Errorf("%d slots, %d buckets, %d entries in a worker", len(slots.values), created, len(e.local.sets)*localWays)
	}
	if evicted == 0 {
		t.Error("nobody was evicted")
	}
	b.TableEntries = 1 << 12
	e.Install(b, 0, 0)
	if len(e.local.sets)*localWays != 1<<12 {
		t.Errorf("%d entries after the release said 4096", len(e.local.sets)*localWays)
	}
}

// withNetworks is a bundle of space-separated networks.
func withNetworks(t testing.TB, exempt, deny string) bundle.Bundle {
	t.Helper()
	read := func(text string) (networks []rule.Network) {
		for _, field := range strings.Fields(text) {
			prefix := netip.MustParsePrefix(field)
			n := rule.Network{V6: prefix.Addr().Is6(), Bits: uint8(prefix.Bits())}
			copy(n.Address[:], prefix.Addr().AsSlice())
			networks = append(networks, n)
		}
		return networks
	}
	return decoded(t, bundle.Content{Exempt: read(exempt), Deny: read(deny)})
}

func decoded(t testing.TB, c bundle.Content) bundle.Bundle {
	t.Helper()
	encoded, err := bundle.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	b.HasRule, b.Rule = true, testRule(per(1000, 1000), per(1000, 1000)).Rule
	return b
}
