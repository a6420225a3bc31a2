package stand

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/weirproject/weir/shared/keyfilter"
)

// Keyring makes API keys and the keys file that knows them.
type Keyring struct {
	format  keyfilter.Format
	hashKey keyfilter.HashKey
	random  io.Reader
	entries strings.Builder
	hashes  []uint64 // of the keys in entries

	mu       sync.Mutex // guards what follows
	filter   keyfilter.Filter
	filtered int // of how many keys filter is
}

// NewKeyring is empty, under a fresh hash key.
func NewKeyring(t testing.TB) *Keyring {
	t.Helper()
	k := &Keyring{format: keyfilter.Format{Prefix: keyfilter.DefaultPrefix}, random: rand.Reader}
	if _, err := io.ReadFull(k.random, k.hashKey[:]); err != nil {
		t.Fatal(err)
	}
	return k
}

// Issue makes a key that the file knows by id. It must not run beside another call.
func (k *Keyring) Issue(t testing.TB, id string) string {
	t.Helper()
	key := k.key(t)
	hash := keyfilter.Hash(k.hashKey, []byte(key))
	fmt.Fprintf(&k.entries, "- {id: %s, sha256: %x, edge-hash: %016x, tenant: %s}\n",
		id, sha256.Sum256([]byte(key)), hash, id)
	k.hashes = append(k.hashes, hash)
	return key
}

// Forge makes a key of the right form that was never issued. It is none of those, one in 65,536, that the edge's key
// filter takes for issued and leaves to the origin, so that tests can count refusals.
func (k *Keyring) Forge(t testing.TB) string {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.filtered != len(k.hashes) {
		encoded, err := keyfilter.EncodeFilter(k.hashes)
		if err == nil {
			k.filter, err = keyfilter.ReadFilter(encoded)
		}
		if err != nil {
			t.Fatal(err)
		}
		k.filtered = len(k.hashes)
	}
	for {
		if key := k.key(t); !k.filter.Contains(keyfilter.Hash(k.hashKey, []byte(key))) {
			return key
		}
	}
}

// key makes a key that no file knows.
func (k *Keyring) key(t testing.TB) string {
	t.Helper()
	key, err := k.format.New(k.random)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// File is the content of weir.keys.yaml.
func (k *Keyring) File() string {
	list := " []"
	if len(k.hashes) > 0 {
		list = "\n" + k.entries.String()
	}
	return fmt.Sprintf("version: 1\nprefix: %s\nhash-key: %x\nkeys:%s\n", keyfilter.DefaultPrefix, k.hashKey, list)
}
