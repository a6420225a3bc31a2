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
	f := filter(t, []uint64{1, 2, 3})
	c, _ := keyfilter.ReadChanges(keyfilter.EncodeChanges([]keyfilter.Change{{Hash: 1, Op: keyfilter.Issued}}))
	key, _ := keyfilter.Format{}.New(rand.Reader)
	b := []byte(key)
	if n := testing.AllocsPerRun(1000, func() {
		h := keyfilter.Hash(keyfilter.HashKey{}, b)
		if _, changed := c.Find(h); changed || !(keyfilter.Format{}).Check(b) {
			t.Error("wrong answer")
		}
		f.Contains(h)
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
