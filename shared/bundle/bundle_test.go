package bundle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

func content() Content {
	valid := limit.Limit{Count: 500, Window: limit.Second, Burst: 2000}
	return Content{
		Release: 41,
		Built:   1_700_000_000_000_000,
		Gate: &Gate{
			KeyHeader: "x-api-key", Format: keyfilter.Format{Prefix: "wk_"}, HashKey: keyfilter.HashKey{1, 2, 3}, Foreign: true,
			Epoch: 7, Seq: 1 << 40, StaleAfter: limit.Hour, Unverified: limit.Limit{Count: 100, Window: limit.Second, Burst: 200},
		},
		KeyHashes:    []uint64{9, 3, 1 << 60},
		Changes:      []keyfilter.Change{{Hash: 12, Op: keyfilter.Issued}, {Hash: 9, Op: keyfilter.Revoked}},
		Exempt:       []rule.Network{{Bits: 8, Address: [16]byte{10}}},
		Deny:         []rule.Network{{Bits: 9, Address: [16]byte{10, 0x80}}, {V6: true, Bits: 16, Address: [16]byte{0x20, 1}}},
		Origin:       originSet,
		TableEntries: 1 << 12,
		Rule: &rule.Rule{
			Name:  "flood-per-address",
			Limit: limit.Limit{Count: 50, Window: limit.Second, Burst: 200},
			Valid: &valid,
			Terms: &rule.Terms{
				Where: rule.Edge, Algorithm: rule.GCRA, By: []rule.Choice{{rule.Address}}, PrefixV4: 32, PrefixV6: 64, OuterV6: 48, Headers: rule.RetryOnly,
			},
		},
	}
}

func encode(t testing.TB, c Content) []byte {
	t.Helper()
	b, err := Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// seal makes a damaged frame's checksum right again, so that the checks behind it are reached.
func seal(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
	return b
}

func TestABundleSaysWhatItWasMadeOf(t *testing.T) {
	got, err := Decode(encode(t, content()))
	if err != nil {
		t.Fatal(err)
	}
	if got.Release != 41 || got.Built != 1_700_000_000_000_000 || !got.HasGate || !got.HasRule {
		t.Errorf("%+v", got)
	}
	if got.TableEntries != 1<<12 {
		t.Errorf("table of %d entries", got.TableEntries)
	}
	n := got.Networks
	if n.Exempted() != 1 || n.Denied() != 2 || find(&n, netip.MustParseAddr("10.1.0.0")) != Exempt || find(&n, netip.MustParseAddr("10.200.0.0")) != Deny ||
		find(&n, netip.MustParseAddr("2001:900::")) != Deny || find(&n, netip.MustParseAddr("a01::")) != NoTreatment {
		t.Errorf("networks %+v", n)
	}
	if i, ok := got.Origin.Find("search"); len(originFaults) > 0 || got.Origin.Len() != 2 || !ok || !got.Origin.Covers(i, &rule.Request{Method: "GET", Path: "/search/a"}) {
		t.Errorf("%d origin rules, search found %v; %v", got.Origin.Len(), ok, originFaults)
	}
	g, want := got.Gate, *content().Gate
	if g.Filter.Len() != 3 || g.Changes.Len() != 2 {
		t.Errorf("%d keys, %d changes", g.Filter.Len(), g.Changes.Len())
	}
	for hash, known := range map[uint64]bool{1 << 60: true, 3: true, 12: true, 9: false, 4: false} {
		if g.Knows(hash) != known {
			t.Errorf("knows %d: %v, want %v", hash, !known, known)
		}
	}
	g.Filter, g.Changes = want.Filter, want.Changes
	if !reflect.DeepEqual(g, want) {
		t.Errorf("gate %+v, want %+v", g, want)
	}
	wantRule := EdgeRule{Name: "flood-per-address", Headers: rule.RetryOnly, Algorithm: rule.GCRA, PrefixV4: 32, PrefixV6: 64, OuterV6: 48,
		Anonymous: limit.Limit{Count: 50, Window: limit.Second, Burst: 200}, Valid: limit.Limit{Count: 500, Window: limit.Second, Burst: 2000},
		OuterAnonymous: limit.Limit{Count: 800, Window: limit.Second, Burst: 3200}, OuterValid: limit.Limit{Count: 8000, Window: limit.Second, Burst: 32000}}
	if got.Rule != wantRule {
		t.Errorf("rule %+v, want %+v", got.Rule, wantRule)
	}
}

func TestSectionsAreListedByName(t *testing.T) {
	b := encode(t, content())
	sections, err := Sections(b)
	if err != nil {
		t.Fatal(err)
	}
	names, bytes := "", headSize+entrySize*len(sections)+trailerSize
	for _, s := range sections {
		names += s.Name + " "
		bytes += padded(s.Bytes)
	}
	if names != "gate key filter key changes rule networks origin rules table " || bytes != len(b) {
		t.Errorf("%s: %d bytes of %d", names, bytes, len(b))
	}
	newer, _ := assemble(1, 0, []section{{99, []byte{1}}, {2, nil}})
	if got, err := Sections(newer); err != nil || len(got) != 2 || got[0] != (Section{"unknown", 99, 1}) || got[1].Name != "unknown" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := Sections(newer[:20]); err == nil || len(got) != 0 {
		t.Errorf("half a bundle: %v, %v", got, err)
	}
}

// What the filter says of a key that was revoked since must not count, or a revocation would wait for the next bundle.
func TestChangesBeatTheFilter(t *testing.T) {
	c := content()
	c.Changes = []keyfilter.Change{{Hash: 3, Op: keyfilter.Revoked}, {Hash: 3, Op: keyfilter.Issued}, {Hash: 9, Op: keyfilter.Revoked}, {Hash: 8, Op: keyfilter.Issued}}
	got, err := Decode(encode(t, c))
	if err != nil || !got.Gate.Knows(3) || got.Gate.Knows(9) || !got.Gate.Knows(8) || !got.Gate.Filter.Contains(9) {
		t.Errorf("3: %v, 9: %v, 8: %v (%v)", got.Gate.Knows(3), got.Gate.Knows(9), got.Gate.Knows(8), err)
	}
}

func TestTheOuterLimitIsHeldAtTheBounds(t *testing.T) {
	for _, c := range []struct{ count, burst, wantCount, wantBurst int64 }{
		{0, 0, 0, 0}, {50, 0, 800, 0}, {1, 1, 16, 16}, {limit.MaxCount / 16, limit.MaxCount, limit.MaxCount / 16 * 16, limit.MaxCount},
		{limit.MaxCount/16 + 1, 5, limit.MaxCount, 80}, {limit.MaxCount, limit.MaxCount, limit.MaxCount, limit.MaxCount},
	} {
		got := OuterLimit(limit.Limit{Count: c.count, Window: limit.Second, Burst: c.burst})
		if got != (limit.Limit{Count: c.wantCount, Window: limit.Second, Burst: c.wantBurst}) || got.Check() != nil {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	c := content()
	c.Rule.OuterV6 = 0
	if got, err := Decode(encode(t, c)); err != nil || got.Rule.OuterAnonymous != (limit.Limit{}) || got.Rule.OuterValid != (limit.Limit{}) {
		t.Errorf("no outer network: %+v, %v", got.Rule, err)
	}
}

func TestSectionsMayBeAbsent(t *testing.T) {
	c := content()
	c.Gate, c.Rule, c.TableEntries, c.Exempt, c.Deny, c.Origin = nil, nil, 0, nil, nil, nil
	if got, err := Decode(encode(t, c)); err != nil || got.HasGate || got.HasRule || got.Release != 41 || got.Origin.Len() != 0 || got.Networks.Denied() != 0 || got.TableEntries != DefaultTableEntries {
		t.Errorf("%+v, %v", got, err)
	}
	c = content()
	c.Rule.Valid, c.KeyHashes, c.Changes = nil, nil, nil
	got, err := Decode(encode(t, c))
	if err != nil || got.Rule.Valid != got.Rule.Anonymous || !got.HasGate || got.Gate.Filter.Len() != 0 || got.Gate.Changes.Len() != 0 || got.Gate.Knows(3) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Case 28: a newer bundle keeps an older edge working, or is refused whole.
func TestNewerBundlesWorkOrAreRefusedWhole(t *testing.T) {
	b, err := assemble(41, 0, []section{{99, []byte("from the future")}, {kinds, nil}, {kinds, nil}, {kindRule, mustRule(t)}, {0, nil}, {2, []byte("a list")}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode(b); err != nil || got.Release != 41 || !got.HasRule {
		t.Errorf("unknown sections: %+v, %v", got, err)
	}
	gate, _ := encodeGate(*content().Gate)
	longer, _ := assemble(41, 0, []section{{kindRule, append(mustRule(t), "a newer field"...)}, {kindTable, []byte{0, 4, 0, 0, 9}},
		{kindGate, append(gate, "a newer field"...)}, {kindFilter, mustFilter(t)}, {kindChanges, nil}})
	if got, err := Decode(longer); err != nil || got.Rule.Name != "flood-per-address" || got.TableEntries != 1024 || got.Gate.Seq != 1<<40 {
		t.Errorf("sections with more at their end: %+v, %v", got, err)
	}
	newer := encode(t, content())
	newer[8]++
	if _, err := Decode(seal(newer)); !errors.Is(err, ErrVersion) {
		t.Errorf("a newer format: %v, want %v", err, ErrVersion)
	}
}

func mustRule(t testing.TB) []byte {
	b, err := encodeRule(content().Rule)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustFilter(t testing.TB, hashes ...uint64) []byte {
	b, err := keyfilter.EncodeFilter(hashes)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnyDamageRefusesTheWholeBundle(t *testing.T) {
	good := encode(t, content())
	for n := range good {
		if _, err := Decode(good[:n]); err == nil {
			t.Errorf("cut at %d bytes: no error", n)
		}
		for bit := range 8 {
			damaged := bytes.Clone(good)
			damaged[n] ^= 1 << bit
			if _, err := Decode(damaged); err == nil {
				t.Errorf("bit %d of byte %d turned: no error", bit, n)
			}
		}
	}
	if _, err := Decode(append(bytes.Clone(good), 0)); !errors.Is(err, ErrLength) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestFramesThatLieAreRefused(t *testing.T) {
	filter, changes := mustFilter(t, 1, 2), keyfilter.EncodeChanges(content().Changes)
	gate, _ := encodeGate(*content().Gate)
	gated := func(gate, filter, changes []byte) []byte {
		b, _ := assemble(1, 0, []section{{kindGate, gate}, {kindFilter, filter}, {kindChanges, changes}})
		return b
	}
	// head is the gate's part before its flags; tail is the rest.
	head, tail := gate[:16+1+len("x-api-key")+1+len("wk_")], gate[16+1+len("x-api-key")+1+len("wk_"):]
	sections := func(s ...section) []byte { b, _ := assemble(1, 0, s); return b }
	with := func(b []byte, at int, v ...byte) []byte { b = bytes.Clone(b); copy(b[at:], v); return b }
	edgeRule, outerAt := mustRule(t), ruleFixed+1+len("flood-per-address")
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"more sections than fit":     {seal(func() []byte { b := encode(t, content()); b[10], b[11] = 0xff, 0xff; return b }()), ErrSections},
		"a section past the end":     {seal(func() []byte { b := encode(t, content()); b[headSize+7] = 0xff; return b }()), ErrSections},
		"a section too short":        {seal(func() []byte { b := encode(t, content()); b[headSize+4] = 0; return b }()), ErrSections},
		"a section twice":            {sections(section{kindGate, gate}, section{kindFilter, filter}, section{kindGate, gate}), ErrTwice},
		"a filter without a gate":    {sections(section{kindFilter, filter}), ErrKeys},
		"changes without a gate":     {sections(section{kindChanges, changes}), ErrKeys},
		"a gate without keys":        {sections(section{kindGate, gate}), ErrKeys},
		"a gate without changes":     {sections(section{kindGate, gate}, section{kindFilter, filter}), ErrKeys},
		"a gate without a filter":    {sections(section{kindGate, gate}, section{kindChanges, changes}), ErrKeys},
		"an empty gate":              {gated(nil, filter, changes), ErrGate},
		"a gate cut short":           {gated(gate[:20], filter, changes), ErrGate},
		"a gate cut in its limit":    {gated(gate[:len(gate)-1], filter, changes), ErrGate},
		"a header name that is not":  {gated(append(append(bytes.Clone(gate[:16]), "\x03a b\x03wk_"...), tail...), filter, changes), ErrGate},
		"a prefix that is not":       {gated(append(append(bytes.Clone(gate[:16]), "\x03a-b\x03w k"...), tail...), filter, changes), ErrGate},
		"an age below zero":          {gated(with(gate, len(head)+1+16+7, 0xff), filter, changes), ErrGate},
		"an age without a limit":     {gated(append(bytes.Clone(gate[:len(gate)-limitSize]), make([]byte, limitSize)...), filter, changes), ErrGate},
		"a limit without an age":     {gated(with(gate, len(head)+1+16, make([]byte, 8)...), filter, changes), ErrGate},
		"a filter cut short":         {gated(gate, filter[:30], changes), keyfilter.ErrFilterLength},
		"changes out of order":       {gated(gate, filter, with(changes, 0, 0xff)), keyfilter.ErrChangesOrder},
		"an empty rule":              {sections(section{kindRule, nil}), ErrRule},
		"a window of nothing":        {sections(section{kindRule, with(edgeRule, 4+8, make([]byte, 8)...)}), ErrRule},
		"a rule without a name":      {sections(section{kindRule, append(edgeRule[:ruleFixed:ruleFixed], 0)}), ErrRule},
		"a rule without an outer":    {sections(section{kindRule, edgeRule[:outerAt]}), ErrRule},
		"an unknown algorithm":       {sections(section{kindRule, with(edgeRule, 3, 2)}), ErrRule},
		"outer limits of no network": {sections(section{kindRule, with(edgeRule, outerAt, 0)}), ErrRule},
		"an outer that is not wider": {sections(section{kindRule, with(edgeRule, outerAt, 64)}), ErrRule},
		"an outer limit of nothing":  {sections(section{kindRule, with(edgeRule, outerAt+1+8, make([]byte, 8)...)}), ErrRule},
		"an empty table":             {sections(section{kindTable, nil}), ErrTable},
		"a table of 1000":            {sections(section{kindTable, []byte{0xe8, 3, 0, 0}}), ErrTable},
		"networks cut short":         {sections(section{kindNetwork, make([]byte, networksHead-1)}), ErrNetworks},
		"origin rules cut short":     {sections(section{kindOrigin, []byte{1, 0, 0, 0}}), ErrOriginRules},
		"a table of 2^21":            {sections(section{kindTable, []byte{0, 0, 0x20, 0}}), ErrTable},
	} {
		if _, err := Decode(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestContentThatNoEdgeCouldReadIsNotEncoded(t *testing.T) {
	for name, spoil := range map[string]func(*Content){
		"header":         func(c *Content) { c.Gate.KeyHeader = "X-Api-Key" },
		"no header":      func(c *Content) { c.Gate.KeyHeader = "" },
		"prefix":         func(c *Content) { c.Gate.Format.Prefix = "a b" },
		"age":            func(c *Content) { c.Gate.StaleAfter = limit.Millisecond },
		"age alone":      func(c *Content) { c.Gate.Unverified = limit.Limit{} },
		"unverified":     func(c *Content) { c.Gate.StaleAfter = 0 },
		"change":         func(c *Content) { c.Changes[0].Op = 7 },
		"origin":         func(c *Content) { c.Rule.Where = rule.Origin },
		"sliding window": func(c *Content) { c.Rule.Algorithm = rule.SlidingWindow },
		"by key":         func(c *Content) { c.Rule.By = []rule.Choice{{rule.Key}} },
		"name":           func(c *Content) { c.Rule.Name = strings.Repeat("a", 300) },
		"limit":          func(c *Content) { c.Rule.Limit.Window = 0 },
		"outer":          func(c *Content) { c.Rule.OuterV6 = 64 },
		"table":          func(c *Content) { c.TableEntries = 1000 },
	} {
		c := content()
		spoil(&c)
		if _, err := Encode(c); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
	if _, err := assemble(1, 0, []section{{99, make([]byte, MaxSize)}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("more than fits: %v", err)
	}
}

// keyed is content with n random keys as an encoded bundle.
func keyed(t testing.TB, n int) (encoded []byte, hashes []uint64) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := content()
	c.KeyHashes = make([]uint64, n)
	for i := range c.KeyHashes {
		c.KeyHashes[i] = r.Uint64()
	}
	return encode(t, c), c.KeyHashes
}

// Envoy holds the bundle's bytes anyway; what decoding adds must not grow with the keys, or a push of many keys would
// stall a worker and take memory twice.
func TestDecodingCopiesNoKey(t *testing.T) {
	allocated := func(keys int) (times float64, bytes uint64) {
		b, _ := keyed(t, keys)
		decode := func() {
			if _, err := Decode(b); err != nil {
				t.Error(err)
			}
		}
		times = testing.AllocsPerRun(10, decode)
		var before, after runtime.MemStats
		bytes = ^uint64(0)
		for range 5 { // another goroutine of the runtime may allocate in between: once, not each time
			runtime.ReadMemStats(&before)
			decode()
			runtime.ReadMemStats(&after)
			bytes = min(bytes, after.TotalAlloc-before.TotalAlloc)
		}
		return times, bytes
	}
	few, fewBytes := allocated(1)
	many, manyBytes := allocated(400_000)
	t.Logf("1 key: %v allocations, %d bytes; 400,000 keys: %v, %d bytes", few, fewBytes, many, manyBytes)
	if few != many || fewBytes != manyBytes || manyBytes > 1024 {
		t.Error("want the same, within 1024 bytes")
	}
}

func TestABundleOf400000KeysIsSmall(t *testing.T) {
	const keys = 400_000
	b, hashes := keyed(t, keys)
	each := float64(len(b)) / keys
	t.Logf("%d keys: %d bytes, %.3f a key", keys, len(b), each)
	if each > 2.5 {
		t.Errorf("%.3f bytes a key, want at most 2.5", each)
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hashes {
		if !got.Gate.Knows(h) {
			t.Fatalf("%#x is not known", h)
		}
	}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		i++
		got.Gate.Knows(hashes[i])
		got.Gate.Knows(uint64(i))
		got.Gate.Knows(9)
	}); n != 0 {
		t.Errorf("%v allocations to look a key up, want 0", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(f, content()), false)
	f.Add([]byte(magic), true)
	gate, _ := encodeGate(*content().Gate)
	for _, s := range [][]section{{{kindRule, mustRule(f)}}, {{kindGate, gate}, {kindFilter, mustFilter(f, 1)}, {kindChanges, nil}}, {{kindTable, []byte{0, 4, 0, 0}}}, {{kindNetwork, make([]byte, networksHead)}}, {{kindOrigin, make([]byte, originHead)}}} {
		b, _ := assemble(1, 2, s)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, resealed bool) {
		if resealed && len(b) >= headSize+trailerSize {
			binary.LittleEndian.PutUint32(b[12:], uint32(len(b)))
			seal(b)
		}
		got, err := Decode(b)
		if err != nil {
			if got.Release != 0 || got.HasGate || got.HasRule {
				t.Fatalf("half a bundle came with %v", err)
			}
			return
		}
		// What was accepted is within bounds: the edge does not check again.
		if got.HasRule && (got.Rule.Anonymous.Check() != nil || got.Rule.Valid.Check() != nil || !got.Rule.validOuter() || !rule.ValidName(got.Rule.Name)) {
			t.Fatalf("%+v", got.Rule)
		}
		if got.HasGate {
			got.Gate.Knows(1)
			got.Gate.Knows(^uint64(0))
			if !got.Gate.validAge() {
				t.Fatalf("%+v", got.Gate)
			}
			got.Gate.Format.Check([]byte("wk_"))
		}
		got.Networks.Find(true, 0x2001<<48, 0)
		got.Networks.Find(false, 10<<56, 0)
		for i := range got.Origin.Len() {
			got.Origin.Covers(i, &rule.Request{Method: "GET", Path: "/search/%2e", Host: "a.example.com"})
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	encoded, _ := keyed(b, 400_000)
	b.SetBytes(int64(len(encoded)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(encoded); err != nil {
			b.Fatal(err)
		}
	}
}
