package keys_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/shared/keyfilter"
)

func issue(t *testing.T, path, id string) string {
	t.Helper()
	var text string
	err := keys.Update(path, rand.Reader, func(f *keys.File) (err error) {
		text, err = f.Issue(rand.Reader, keys.Key{ID: id, Tenant: "acme", Tier: "paid"}, time.Unix(1_700_000_000, 0))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAnIssuedKeyIsFoundByItsTextAndStoredWithoutIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.keys.yaml")
	first, second := issue(t, path, "first"), issue(t, path, "007")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(content, []byte(first)) || bytes.Contains(content, []byte(first[3:25])) {
		t.Error("the file holds a key's text")
	}
	if stat, _ := os.Stat(path); stat.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", stat.Mode())
	}
	f, err := keys.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	table := f.Table()
	for id, text := range map[string]string{"first": first, "007": second} {
		k := table.Lookup([]byte(text))
		if k == nil || *k != (keys.Key{ID: id, Tenant: "acme", Tier: "paid"}) {
			t.Errorf("%s: found %+v", id, k)
		}
	}
	if table.Lookup([]byte(first+"x")) != nil || table.Lookup(nil) != nil || table.Len() != 2 {
		t.Error("found a key that was never issued")
	}
	if got := f.Entries[0]; got.EdgeHash != keyfilter.Hash(f.HashKey, []byte(first)) || got.Created.Unix() != 1_700_000_000 {
		t.Errorf("entry %+v", got)
	}
	if again, err := keys.Parse("k", f.Encode()); err != nil || fmt.Sprint(again) != fmt.Sprint(f) {
		t.Errorf("encoded and read again: %v, %v", again, err)
	}
}

func TestUpdatesAtTheSameTimeLoseNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.keys.yaml")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := keys.Update(path, rand.Reader, func(f *keys.File) error {
				_, err := f.Issue(rand.Reader, keys.Key{ID: fmt.Sprint("key-", i)}, time.Time{})
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f, err := keys.Load(path)
	if err != nil || len(f.Entries) != 20 {
		t.Errorf("%d of 20 keys, %v", len(f.Entries), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAFailedUpdateLeavesTheFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.keys.yaml")
	issue(t, path, "a")
	before, _ := os.ReadFile(path)
	for name, who := range map[string]keys.Key{"taken id": {ID: "a"}, "no id": {}, "odd id": {ID: "a b"}, "odd tenant": {ID: "c", Tenant: "\n"}, "long tier": {ID: "c", Tier: strings.Repeat("t", 65)}} {
		if err := keys.Update(path, rand.Reader, func(f *keys.File) error {
			_, err := f.Issue(rand.Reader, who, time.Time{})
			return err
		}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the file changed")
	}
	if _, err := keys.Load(path + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestBrokenFilesTellEveryFault(t *testing.T) {
	good := fmt.Sprintf("- {id: a, sha256: %q, edge-hash: %q}\n", strings.Repeat("a", 64), strings.Repeat("1", 16))
	for text, want := range map[string][]string{
		"version: 2\n": {"k:1:10: version: \"2\": want version: 1", "hash-key: is missing: want 32 hex digits"},
		"version: 1\nhash-key: 00\nprefix: a-b\nkeys: []\n":                                                                                    {"hash-key: \"00\": want 32 hex digits", "prefix: \"a-b\": want 1 to 16"},
		"version: 1\nhash-key: \"" + strings.Repeat("0", 32) + "\"\nkeys:\n" + good + good:                                                     {"keys[1].id: \"a\": is taken by the key at k:4:", "keys[1].sha256"},
		"version: 1\nhash-key: \"" + strings.Repeat("0", 32) + "\"\nkeys:\n- {id: \"\", sha256: xx, tenant: 'a b', key: wk_1, created: now}\n": {"keys[0].id", "keys[0].sha256: \"xx\": want 64", "keys[0].edge-hash: is missing", "keys[0].tenant", "keys[0].key: is unknown", "keys[0].created: \"now\": want a time"},
	} {
		_, err := keys.Parse("k", []byte(text))
		if err == nil {
			t.Errorf("%q: no error", text)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q lacks %q:\n%v", text, w, err)
			}
		}
	}
}

// A key that somebody put where its hash or its name belongs is not to stand in the log.
func TestNoMessageShowsAKey(t *testing.T) {
	f, err := keys.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own := keyfilter.Format{Prefix: "acme_"}
	for _, secret := range []string{must(f.Format.New(rand.Reader)), must(own.New(rand.Reader)), "sk_live_4eC39HqLyjWDarjtT1zdp7dc"} {
		head := "version: 1\nprefix: acme_\nhash-key: \"" + strings.Repeat("0", 32) + "\"\nkeys:\n"
		hashes := "  sha256: " + strings.Repeat("a", 64) + "\n  edge-hash: " + strings.Repeat("1", 16) + "\n"
		for _, text := range []string{
			head + "- id: a\n  sha256: " + secret + "\n  edge-hash: " + secret + "\n",
			head + "- " + secret + "\n",
			head + "- key: " + secret + "\n",
			head + secret + ": x\n",
			strings.Replace(head, "hash-key: ", "hash-key: "+secret+" # ", 1) + "- id: a\n" + hashes,
			head + "- id: " + secret + "\n" + hashes,
		} {
			for _, text := range []string{text, text + strings.Repeat("# more\n", 200_000)} { // read as YAML, read by line
				_, err := keys.Parse("k", []byte(text))
				if err == nil && strings.HasPrefix(secret, "sk_") {
					continue // a name as any other, for all that can be told
				}
				if err == nil || strings.Contains(err.Error(), secret[:12]) {
					t.Errorf("%.200q: %v", text, err)
				}
			}
		}
		err := f.Append(keys.Entry{Key: keys.Key{ID: secret}})
		if !strings.HasPrefix(secret, "sk_") && (err == nil || strings.Contains(err.Error(), secret)) {
			t.Errorf("as a name: %v", err)
		}
	}
}

func must(text string, err error) string {
	if err != nil {
		panic(err)
	}
	return text
}

func TestALookupAllocatesNothing(t *testing.T) {
	f, err := keys.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := f.Issue(rand.Reader, keys.Key{ID: "a"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	table, b := f.Table(), []byte(text)
	if n := testing.AllocsPerRun(1000, func() {
		if table.Lookup(b) == nil {
			t.Error("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
