package keyfilter_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/FastFilter/xorfilter"

	"github.com/weirproject/weir/shared/keyfilter"
)

func filter(t testing.TB, hashes []uint64) keyfilter.Filter {
	t.Helper()
	b, err := keyfilter.EncodeFilter(hashes)
	if err != nil {
		t.Fatal(err)
	}
	f, err := keyfilter.ReadFilter(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// seeded is a source whose seed the test prints.
func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func hashes(r *rand.Rand, n int) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = r.Uint64()
	}
	return list
}

func TestAFilterHoldsAllItWasMadeOf(t *testing.T) {
	r := seeded(t)
	for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 10, 33, 100, 1_000, 10_000, 123_457, 400_000} {
		set := hashes(r, n)
		if n > 2 {
			set[0], set[1], set[2] = 0, ^uint64(0), set[n-1] // one twice
		}
		before := slices.Clone(set)
		f := filter(t, set)
		if !slices.Equal(set, before) {
			t.Errorf("%d keys: EncodeFilter changed its argument", n)
		}
		slices.Sort(before)
		if want := len(slices.Compact(before)); f.Len() != want {
			t.Errorf("%d keys: Len %d, want %d", n, f.Len(), want)
		}
		for _, h := range set {
			if !f.Contains(h) {
				t.Fatalf("%d keys: %#x is not in the filter", n, h)
			}
		}
	}
	if (keyfilter.Filter{}).Contains(0) || filter(t, nil).Contains(0) {
		t.Error("the empty filter holds 0")
	}
}

// Keys are hashes, but nothing may hang on their being random.
func TestAFilterHoldsHashesInARow(t *testing.T) {
	set := make([]uint64, 50_000)
	for i := range set {
		set[i] = uint64(i)
	}
	f := filter(t, set)
	for _, h := range set {
		if !f.Contains(h) {
			t.Fatalf("%d is not in the filter", h)
		}
	}
}

func TestTheSameSetGivesTheSameBytes(t *testing.T) {
	r := seeded(t)
	set := hashes(r, 5_000)
	one, err := keyfilter.EncodeFilter(set)
	if err != nil {
		t.Fatal(err)
	}
	r.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
	other, err := keyfilter.EncodeFilter(append(set, set[0]))
	if err != nil || !bytes.Equal(one, other) {
		t.Errorf("another order gives other bytes: %v", err)
	}
}

// One forged key in 2^16 passes. Of 2^22 that are not in the set, 64 pass, give or take 8 (one standard deviation of
// the binomial distribution); the bounds lie six of them away, which chance leaves once in some million runs.
func TestOneHashIn65536PassesFalsely(t *testing.T) {
	r := seeded(t)
	const probes, want, sigma = 1 << 22, 1 << 6, 8
	f := filter(t, hashes(r, 400_000))
	passed := 0
	for range probes {
		if f.Contains(r.Uint64()) { // one of the set itself: once in 10^7 runs
			passed++
		}
	}
	t.Logf("%d of %d pass, want %d ± %d: 2^-16", passed, probes, want, sigma)
	if passed < want-6*sigma || passed > want+6*sigma {
		t.Errorf("%d of %d pass, want %d ± %d", passed, probes, want, 6*sigma)
	}
}

// The lookup is written anew, from the published formula: it must answer as the library that builds does.
func TestTheLookupAnswersAsTheBuilderDoes(t *testing.T) {
	r := seeded(t)
	passed := 0
	for _, n := range []int{1, 9, 100, 3_000} {
		set := hashes(r, n)
		fuse, err := xorfilter.NewBinaryFuse[uint16](slices.Clone(set))
		if err != nil {
			t.Fatal(err)
		}
		f := filter(t, set)
		for range 1 << 19 {
			h := r.Uint64()
			if f.Contains(h) != fuse.Contains(h) {
				t.Fatalf("%d keys: of %#x we say %v", n, h, f.Contains(h))
			}
			if f.Contains(h) {
				passed++
			}
		}
	}
	if passed == 0 { // 32 are to be expected
		t.Error("nothing passes falsely, so that nothing was compared")
	}
}

// damage is a copy of b with a u32 replaced.
func damage(b []byte, at int, v uint32) []byte {
	b = bytes.Clone(b)
	binary.LittleEndian.PutUint32(b[at:], v)
	return b
}

func TestFiltersThatCannotBeAreRefused(t *testing.T) {
	good, _ := keyfilter.EncodeFilter([]uint64{1, 2, 3})
	empty, _ := keyfilter.EncodeFilter(nil)
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"nothing":                   {nil, keyfilter.ErrFilterLength},
		"half a head":               {good[:10], keyfilter.ErrFilterLength},
		"cut":                       {good[:len(good)-1], keyfilter.ErrFilterLength},
		"longer":                    {append(bytes.Clone(good), 0, 0), keyfilter.ErrFilterLength},
		"no keys in segments":       {damage(good, 8, 0), keyfilter.ErrFilterGeometry},
		"no keys with fingerprints": {append(bytes.Clone(empty), 0, 0), keyfilter.ErrFilterLength},
		"more keys than places":     {damage(good, 8, 1<<20), keyfilter.ErrFilterGeometry},
		"segments of nothing":       {damage(good, 12, 0), keyfilter.ErrFilterGeometry},
		"segments of 3":             {damage(good, 12, 3), keyfilter.ErrFilterGeometry},
		"segments of 2^31":          {damage(good, 12, 1<<31), keyfilter.ErrFilterGeometry},
		"segments of twice as many": {damage(good, 12, 2*binary.LittleEndian.Uint32(good[12:])), keyfilter.ErrFilterLength},
		"no segments":               {damage(good, 16, 0), keyfilter.ErrFilterGeometry},
		"2^32-1 segments":           {damage(good, 16, 1<<32-1), keyfilter.ErrFilterGeometry},
	} {
		if f, err := keyfilter.ReadFilter(c.b); !errors.Is(err, c.want) || f.Len() != 0 || f.Contains(1) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestMoreKeysThanAFilterTakesAreRefused(t *testing.T) {
	if _, err := keyfilter.EncodeFilter(make([]uint64, keyfilter.MaxFilterKeys+1)); !errors.Is(err, keyfilter.ErrFilterKeys) {
		t.Errorf("%v, want %v", err, keyfilter.ErrFilterKeys)
	}
}

// Whatever the bytes: refused, or a filter that answers without leaving them.
func FuzzReadFilter(f *testing.F) {
	for _, n := range []int{0, 1, 5, 100} {
		set := make([]uint64, n)
		for i := range set {
			set[i] = uint64(i) * 0x9e3779b97f4a7c15
		}
		b, err := keyfilter.EncodeFilter(set)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint64(n))
	}
	f.Fuzz(func(t *testing.T, b []byte, h uint64) {
		got, err := keyfilter.ReadFilter(b)
		if err != nil {
			if got.Len() != 0 || got.Contains(h) {
				t.Fatalf("half a filter came with %v", err)
			}
			return
		}
		for i := range uint64(64) {
			got.Contains(h)
			got.Contains(1 << i)
			got.Contains(^uint64(0) << i)
			h = h*0x5851f42d4c957f2d + 1
		}
		if got.Len() > len(b) {
			t.Fatalf("%d keys in %d bytes", got.Len(), len(b))
		}
	})
}

func BenchmarkContains(b *testing.B) {
	r := seeded(b)
	f := filter(b, hashes(r, 400_000))
	b.ReportAllocs()
	h := uint64(1)
	for b.Loop() {
		h = h*0x5851f42d4c957f2d + 1
		f.Contains(h)
	}
}
