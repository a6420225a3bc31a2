package stand

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/keyfilter"
)

// Keyring makes API keys and the keys file that knows them.
type Keyring struct {
	format  keyfilter.Format
	hashKey keyfilter.HashKey
	random  io.Reader
	entries strings.Builder
	count   int
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

// Issue makes a key that the file knows by id.
func (k *Keyring) Issue(t testing.TB, id string) string {
	t.Helper()
	key := k.Forge(t)
	fmt.Fprintf(&k.entries, "- {id: %s, sha256: %x, edge-hash: %016x, tenant: %s}\n",
		id, sha256.Sum256([]byte(key)), keyfilter.Hash(k.hashKey, []byte(key)), id)
	k.count++
	return key
}

// Forge makes a key of the right form that was never issued.
func (k *Keyring) Forge(t testing.TB) string {
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
	if k.count > 0 {
		list = "\n" + k.entries.String()
	}
	return fmt.Sprintf("version: 1\nprefix: %s\nhash-key: %x\nkeys:%s\n", keyfilter.DefaultPrefix, k.hashKey, list)
}
