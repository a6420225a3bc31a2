package keyfilter_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weirproject/weir/shared/keyfilter"
)

// The vectors of the SipHash paper's reference code: key 00..0f, inputs of growing length.
func TestHashIsSipHash24(t *testing.T) {
	var k keyfilter.HashKey
	for i := range k {
		k[i] = byte(i)
	}
	input := []byte{}
	for n, want := range map[int]string{0: "310e0edd47db6f72", 1: "fd67dc93c539f874", 8: "6224939a79f5f593", 15: "e545be4961ca29a1"} {
		input = input[:0]
		for i := range n {
			input = append(input, byte(i))
		}
		h := keyfilter.Hash(k, input)
		var le [8]byte
		for i := range le {
			le[i] = byte(h >> (8 * i))
		}
		if got := hex.EncodeToString(le[:]); got != want {
			t.Errorf("%d bytes: got %s, want %s", n, got, want)
		}
	}
}

func TestListsHoldExactlyWhatTheyWereMadeOf(t *testing.T) {
	hashes := []uint64{7, 1 << 63, 0, 7, 42, ^uint64(0)}
	l, err := keyfilter.ReadList(keyfilter.Sorted(hashes))
	if err != nil || l.Len() != 5 {
		t.Fatalf("%d fingerprints, %v", l.Len(), err)
	}
	for _, h := range hashes {
		if !l.Contains(h) || h > 0 && h-1 != 0 && l.Contains(h-1) {
			t.Errorf("around %d: %v, %v", h, l.Contains(h), l.Contains(h-1))
		}
	}
	if (keyfilter.List{}).Contains(0) {
		t.Error("the empty list holds 0")
	}
	if hashes[0] != 7 || hashes[5] != ^uint64(0) {
		t.Error("Sorted reordered its argument")
	}
}

func TestListsOutOfOrderAreRefused(t *testing.T) {
	good := keyfilter.Sorted([]uint64{1, 2})
	for name, b := range map[string][]byte{
		"cut":        good[:15],
		"descending": append(bytes.Clone(good[8:]), good[:8]...),
		"twice":      append(bytes.Clone(good[:8]), good[:8]...),
	} {
		if _, err := keyfilter.ReadList(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestNewKeysHaveTheirFormatAndAnyDamageShows(t *testing.T) {
	for _, f := range []keyfilter.Format{{}, {Prefix: "acme_live_"}} {
		key, err := f.New(rand.Reader)
		if err != nil || len(key) != f.Len() || !f.Check([]byte(key)) {
			t.Fatalf("%q (%d): %v", key, f.Len(), err)
		}
		if again, _ := f.New(rand.Reader); again == key {
			t.Error("two keys are the same")
		}
		for i := range key {
			damaged := []byte(key)
			damaged[i] = 'x'
			if key[i] == 'x' {
				damaged[i] = 'y'
			}
			if f.Check(damaged) {
				t.Errorf("%s with another byte %d passes", key, i)
			}
		}
		for _, bad := range []string{"", key[:len(key)-1], key + "0", " " + key, strings.ToUpper(key), strings.Repeat("w", 1<<16), "wk_\x00"} {
			if f.Check([]byte(bad)) {
				t.Errorf("%.40q passes", bad)
			}
		}
	}
	if (keyfilter.Format{Prefix: "other_"}).Check([]byte("wk_")) {
		t.Error("a key of another prefix passes")
	}
}

func TestKeysNeedRandomBytes(t *testing.T) {
	if _, err := (keyfilter.Format{}).New(iotest.ErrReader(iotest.ErrTimeout)); err == nil {
		t.Error("a key was made without random bytes")
	}
	// A source of 0xff alone is drawn from for ever unless it ends: bytes from 248 on are never used.
	if _, err := (keyfilter.Format{}).New(bytes.NewReader(bytes.Repeat([]byte{0xff}, 1000))); err == nil {
		t.Error("bytes outside the fair range were used")
	}
}

func TestLookingUpAKeyAllocatesNothing(t *testing.T) {
	l, _ := keyfilter.ReadList(keyfilter.Sorted([]uint64{1, 2, 3}))
	key, _ := keyfilter.Format{}.New(rand.Reader)
	b := []byte(key)
	if n := testing.AllocsPerRun(1000, func() {
		if !(keyfilter.Format{}).Check(b) || l.Contains(keyfilter.Hash(keyfilter.HashKey{}, b)) {
			t.Error("wrong answer")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestPrefixesThatCannotBeginAKeyAreRefused(t *testing.T) {
	for prefix, ok := range map[string]bool{"wk_": true, "A9": true, "": false, "a-b": false, "a b": false, strings.Repeat("a", 17): false, "ä": false} {
		if err := keyfilter.CheckPrefix(prefix); (err == nil) != ok {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}
