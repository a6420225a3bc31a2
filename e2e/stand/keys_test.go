package stand

import (
	"math/rand/v2"
	"testing"

	"github.com/weirproject/weir/shared/keyfilter"
)

// A storm of forged keys is counted exactly, so none of them may be one that the filter takes for issued.
func TestForgedKeysAreNoneThatTheFilterTakesForIssued(t *testing.T) {
	k := NewKeyring(t)
	k.hashKey = keyfilter.HashKey{1} // with the seed below, so that the same keys are mistaken each time
	k.random = rand.NewChaCha8([32]byte{2})
	k.Issue(t, "a")
	encoded, err := keyfilter.EncodeFilter(k.hashes)
	if err != nil {
		t.Fatal(err)
	}
	filter, err := keyfilter.ReadFilter(encoded)
	if err != nil {
		t.Fatal(err)
	}
	// Both draw from one seed, of which so many keys hold some that the filter mistakes.
	const keys = 200_000
	k.random = rand.NewChaCha8([32]byte{3})
	mistaken := 0
	for range keys {
		if filter.Contains(keyfilter.Hash(k.hashKey, []byte(k.key(t)))) {
			mistaken++
		}
	}
	k.random = rand.NewChaCha8([32]byte{3})
	if mistaken == 0 {
		t.Errorf("the filter mistakes none of %d keys: want some, or this test proves nothing", keys)
	}
	for range keys {
		if key := k.Forge(t); filter.Contains(keyfilter.Hash(k.hashKey, []byte(key))) {
			t.Errorf("%s is taken for issued", key)
		}
	}
}
