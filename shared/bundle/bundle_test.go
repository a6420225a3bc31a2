package bundle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

func content() Content {
	valid := limit.Limit{Count: 500, Window: limit.Second, Burst: 2000}
	return Content{
		Release:   41,
		Built:     1_700_000_000_000_000,
		Gate:      &Gate{KeyHeader: "x-api-key", Format: keyfilter.Format{Prefix: "wk_"}, HashKey: keyfilter.HashKey{1, 2, 3}},
		KeyHashes: []uint64{9, 3, 1 << 60},
		Rule: &rule.Rule{
			Name:  "flood-per-address",
			Limit: limit.Limit{Count: 50, Window: limit.Second, Burst: 200},
			Valid: &valid,
			Terms: &rule.Terms{
				Where: rule.Edge, Algorithm: rule.TokenBucket, By: []rule.Choice{{rule.Address}}, PrefixV4: 32, PrefixV6: 64, Headers: rule.RetryOnly,
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
	if g := got.Gate; g.KeyHeader != "x-api-key" || g.Format.Prefix != "wk_" || g.HashKey != (keyfilter.HashKey{1, 2, 3}) || g.Keys.Len() != 3 || !g.Keys.Contains(1<<60) || g.Keys.Contains(4) {
		t.Errorf("gate %+v", g)
	}
	want := EdgeRule{Name: "flood-per-address", Headers: rule.RetryOnly, PrefixV4: 32, PrefixV6: 64,
		Anonymous: limit.Limit{Count: 50, Window: limit.Second, Burst: 200}, Valid: limit.Limit{Count: 500, Window: limit.Second, Burst: 2000}}
	if got.Rule != want {
		t.Errorf("rule %+v, want %+v", got.Rule, want)
	}
}

func TestSectionsMayBeAbsent(t *testing.T) {
	c := content()
	c.Gate, c.Rule = nil, nil
	if got, err := Decode(encode(t, c)); err != nil || got.HasGate || got.HasRule || got.Release != 41 {
		t.Errorf("%+v, %v", got, err)
	}
	c = content()
	c.Rule.Valid, c.KeyHashes = nil, nil
	got, err := Decode(encode(t, c))
	if err != nil || got.Rule.Valid != got.Rule.Anonymous || !got.HasGate || got.Gate.Keys.Len() != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Case 28: a newer bundle keeps an older edge working, or is refused whole.
func TestNewerBundlesWorkOrAreRefusedWhole(t *testing.T) {
	b, err := assemble(41, 0, []section{{99, []byte("from the future")}, {kindRule, mustRule(t)}, {0, nil}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode(b); err != nil || got.Release != 41 || !got.HasRule {
		t.Errorf("unknown sections: %+v, %v", got, err)
	}
	longer, _ := assemble(41, 0, []section{{kindRule, append(mustRule(t), "a newer field"...)}})
	if got, err := Decode(longer); err != nil || got.Rule.Name != "flood-per-address" {
		t.Errorf("a section with more at its end: %+v, %v", got, err)
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
	keys := keyfilter.Sorted([]uint64{1, 2})
	gate, _ := encodeGate(*content().Gate)
	sections := func(s ...section) []byte { b, _ := assemble(1, 0, s); return b }
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"more sections than fit":    {seal(func() []byte { b := encode(t, content()); b[10], b[11] = 0xff, 0xff; return b }()), ErrSections},
		"a section past the end":    {seal(func() []byte { b := encode(t, content()); b[headSize+7] = 0xff; return b }()), ErrSections},
		"a section too short":       {seal(func() []byte { b := encode(t, content()); b[headSize+4] = 0; return b }()), ErrSections},
		"a section twice":           {sections(section{kindGate, gate}, section{kindKeys, keys}, section{kindGate, gate}), ErrTwice},
		"keys without a gate":       {sections(section{kindKeys, keys}), ErrKeys},
		"a gate without keys":       {sections(section{kindGate, gate}), ErrKeys},
		"an empty gate":             {sections(section{kindGate, nil}, section{kindKeys, keys}), ErrGate},
		"a gate cut short":          {sections(section{kindGate, gate[:20]}, section{kindKeys, keys}), ErrGate},
		"a header name that is not": {sections(section{kindGate, append(append(bytes.Clone(gate[:16]), "\x03a b"...), "\x03wk_"...)}, section{kindKeys, keys}), ErrGate},
		"keys out of order":         {sections(section{kindGate, gate}, section{kindKeys, append(keys[8:16:16], keys[:8]...)}), keyfilter.ErrListOrder},
		"an empty rule":             {sections(section{kindRule, nil}), ErrRule},
		"a window of nothing":       {sections(section{kindRule, append(make([]byte, ruleFixed), "\x01a"...)}), ErrRule},
		"a rule without a name":     {sections(section{kindRule, append(mustRule(t)[:ruleFixed], 0)}), ErrRule},
	} {
		if _, err := Decode(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestContentThatNoEdgeCouldReadIsNotEncoded(t *testing.T) {
	for name, spoil := range map[string]func(*Content){
		"header":    func(c *Content) { c.Gate.KeyHeader = "X-Api-Key" },
		"no header": func(c *Content) { c.Gate.KeyHeader = "" },
		"prefix":    func(c *Content) { c.Gate.Format.Prefix = "a b" },
		"origin":    func(c *Content) { c.Rule.Where = rule.Origin },
		"by key":    func(c *Content) { c.Rule.By = []rule.Choice{{rule.Key}} },
		"name":      func(c *Content) { c.Rule.Name = strings.Repeat("a", 300) },
		"limit":     func(c *Content) { c.Rule.Limit.Window = 0 },
		"too large": func(c *Content) { c.KeyHashes = make([]uint64, MaxSize/8); fill(c.KeyHashes) },
	} {
		c := content()
		spoil(&c)
		if _, err := Encode(c); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

func fill(hashes []uint64) {
	for i := range hashes {
		hashes[i] = uint64(i)
	}
}

func TestDecodingCopiesNoKey(t *testing.T) {
	allocated := func(keys int) float64 {
		c := content()
		c.KeyHashes = make([]uint64, keys)
		fill(c.KeyHashes)
		b := encode(t, c)
		return testing.AllocsPerRun(10, func() {
			if _, err := Decode(b); err != nil {
				t.Error(err)
			}
		})
	}
	if few, many := allocated(1), allocated(100_000); few != many {
		t.Errorf("%v allocations with 1 key, %v with 100,000", few, many)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(f, content()), false)
	f.Add([]byte(magic), true)
	gate, _ := encodeGate(*content().Gate)
	for _, s := range [][]section{{{kindRule, mustRule(f)}}, {{kindGate, gate}, {kindKeys, keyfilter.Sorted([]uint64{1})}}, {{7, []byte{1}}}} {
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
		if got.HasRule && (got.Rule.Anonymous.Check() != nil || got.Rule.Valid.Check() != nil || !rule.ValidName(got.Rule.Name)) {
			t.Fatalf("%+v", got.Rule)
		}
		if got.HasGate {
			got.Gate.Keys.Contains(1)
			got.Gate.Format.Check([]byte("wk_"))
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	c := content()
	c.KeyHashes = make([]uint64, 400_000)
	fill(c.KeyHashes)
	encoded := encode(b, c)
	b.SetBytes(int64(len(encoded)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(encoded); err != nil {
			b.Fatal(err)
		}
	}
}
