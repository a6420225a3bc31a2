package keys_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/keys"
)

// text is the n-th of many keys; only its hash matters here.
func text(n int) []byte { return fmt.Appendf(nil, "wk_%028d", n) }

// large is a file of n keys.
func large(t testing.TB, n int) *keys.File {
	t.Helper()
	f, err := keys.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f.Entries = make([]keys.Entry, n)
	for i := range f.Entries {
		sum := sha256.Sum256(text(i))
		f.Entries[i] = keys.Entry{Key: keys.Key{ID: fmt.Sprintf("customer-%06d", i), Tenant: fmt.Sprintf("tenant-%d", i%1000), Tier: "paid"},
			SHA256: sum, EdgeHash: binary.LittleEndian.Uint64(sum[:]), Created: time.Unix(1_700_000_000, 0)}
	}
	return f
}

func TestEachOfManyKeysIsFoundAndNoOther(t *testing.T) {
	const n = 20_000
	f := large(t, n)
	table := f.Table()
	for i := range n {
		if k := table.Lookup(text(i)); k == nil || *k != f.Entries[i].Key {
			t.Fatalf("key %d: found %+v", i, k)
		}
		if k := table.Lookup(text(n + i)); k != nil {
			t.Fatalf("found %+v for a key that was never issued", k)
		}
	}
}

// Wherever a writer was interrupted: what came before must not be taken for all.
func TestAFileThatWasCutShortIsRefused(t *testing.T) {
	small := large(t, 3).Encode()
	for cut := range len(small) - 1 { // without the last line's end, nothing is lost
		if f, err := keys.Parse("k", small[:cut]); err == nil {
			t.Fatalf("cut after %d of %d bytes, it holds %d keys:\n%s", cut, len(small), len(f.Entries), small[:cut])
		}
	}
	big := large(t, 6_000).Encode()
	for cut := len(big) - 2; cut > len(big)-250; cut -= 7 {
		if f, err := keys.Parse("k", big[:cut]); err == nil {
			t.Fatalf("cut after %d of %d bytes, it holds %d keys", cut, len(big), len(f.Entries))
		}
	}
}

// In a large file no YAML but Weir's own layout can be read, which is told with the line.
func TestALargeFileTellsWhatItMayNotHoldAndWhere(t *testing.T) {
	good := string(large(t, 6_000).Encode())
	lines := strings.SplitAfter(good, "\n")
	const entry = 6 // lines of a key, after the 5 of the head: --- version prefix hash-key keys
	key := 5 + 5000*entry
	for name, c := range map[string]struct {
		line int
		text string
		want []string
	}{
		"an anchor":           {key, "- &a id: \"x\"\n", []string{"k:30006: ", "cannot be read in a file of more than 1048576 bytes", "want the layout of `weir key new`"}},
		"an escape":           {key, "- id: \"x\\x41\"\n", []string{"k:30006: "}},
		"a tab":               {key, "-\tid: x\n", []string{"k:30006: "}},
		"an unknown field":    {key + 1, "  colour: red\n", []string{"k:30007: "}},
		"a field twice":       {key + 1, "  id: x\n", []string{"k:30007: "}},
		"another indentation": {key, "  - id: x\n", []string{"k:30006: "}},
		"a long line":         {key, "- id: " + strings.Repeat("x", 5000) + "\n", []string{"k:30006: "}},
		"a second document":   {key, "---\n", []string{"k:30006: "}},
		"bad hex":             {key + 1, "  sha256: \"12\"\n", []string{"k:30007:11: keys[5000].sha256: \"12\": want 64 hex digits"}},
		"a name that is none": {key + 3, "  tenant: \"a b\"\n", []string{`k:30009:11: keys[5000].tenant: "a b": want 1 to 64 of a-z`}},
		"a time that is none": {key + 5, "  created: now\n", []string{`keys[5000].created: "now": want a time`}},
		"a missing field":     {key + 1, "# nothing\n", []string{"k:30006:3: keys[5000].sha256: is missing: want 64 hex digits"}},
		"an id of another":    {key, "- id: customer-000000\n", []string{`k:30006:7: keys[5000].id: "customer-000000": is taken by the key at k:6:7`}},
		"the key of another":  {key + 1, lines[6], []string{"keys[5000].sha256", "is the key at k:7:11"}},
		"a key after the end": {key, "...\n", []string{"k:30007: "}},
		"another version":     {1, "version: 2\n", []string{`k:2:10: version: "2": want version: 1`}},
	} {
		edited := append([]string(nil), lines...)
		edited[c.line] = c.text
		_, err := keys.Parse("k", []byte(strings.Join(edited, "")))
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s lacks %q:\n%v", name, want, err)
			}
		}
	}
	if _, err := keys.Parse("k", []byte(strings.ReplaceAll(good, "sha256: \"", "sha256: \"x"))); err == nil || !strings.Contains(err.Error(), "k: and 5900 more") {
		t.Errorf("6,000 faults: %.200v", err)
	}
}

// spelled are ways to write a keys file that are not Weir's own, as people do.
func spelled() []string {
	sum, other := strings.Repeat("0a", 32), strings.Repeat("b1", 32)
	head := "version: 1\nhash-key: \"" + strings.Repeat("0", 32) + "\"\n"
	return []string{
		head + "keys: []\n",
		head + "keys:\n- {id: a, sha256: " + sum + ", edge-hash: 00000000000000ff, tenant: t}\n",
		"# mine\n" + head + "prefix: 'ab' # short\n\nkeys: # all\n  # first\n  - id: a\n    sha256: '" + sum + "' # it\n    edge-hash: \"00000000000000ff\"\n\n" +
			"  - {id: \"b\",   sha256: '" + other + "', edge-hash: 1111111111111111, created: 2026-11-30T12:00:00Z}   # second\n",
		"version: '1'\nprefix: wk_\nhash-key: " + strings.Repeat("1", 32) + "\nkeys:\n- id: 007\n  tier: yes\n  tenant: 1e3\n  sha256: " + sum + "\n  edge-hash: 1e00000000000000\n",
		"---\n" + head + "keys:\n- id: a\n  sha256: " + sum + "\n  edge-hash: 00000000000000ff\n...\n# the end\n",
		head + "keys:\n- id: a\n  id: b\n",
		head + "keys:\n- id: null\n  sha256: ~\n",
		head + "keys:\n- id: -a\n",
		head + "keys:\n-  id: a\n   sha256: " + sum + "\n   edge-hash: 00000000000000ff\n",
		head + "keys:\n- id: a\n  sha256: " + sum + "\n  edge-hash: 00000000000000ff\nprefix: zz\n",
	}
}

// What the reader of lines takes is what YAML's reader makes of it: only its reach is smaller.
func FuzzLinesMeanWhatYAMLMeans(f *testing.F) {
	f.Add(string(large(f, 2).Encode()))
	for _, text := range spelled() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		byLine, err := keys.ReadLines("k", strings.NewReader(text))
		if err != nil {
			return
		}
		whole, err := keys.ReadDocument("k", []byte(text))
		if err != nil {
			t.Fatalf("YAML's reader refuses it: %v", err)
		}
		if a, b := byLine.Encode(), whole.Encode(); !bytes.Equal(a, b) {
			t.Errorf("by line\n%s\nby YAML\n%s", a, b)
		}
	})
}

// Which spellings are read by line, so that a large file may have them.
func TestCommonSpellingsAreReadByLine(t *testing.T) {
	for i, text := range spelled() {
		_, err := keys.ReadLines("k", strings.NewReader(text))
		if byLine := err == nil; byLine != (i >= 1 && i <= 4) {
			t.Errorf("spelling %d read by line: %v, %v", i, byLine, err)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1_000, 400_000} {
		table := large(b, n).Table()
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			room := text(0)
			for i := 0; b.Loop(); i++ {
				binary.BigEndian.PutUint32(room[3:], uint32(i)) // one that was never issued
				table.Lookup(room)
			}
		})
	}
}
