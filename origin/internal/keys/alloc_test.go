//go:build !race

// The race detector allocates itself, and takes half a minute for what is a second without it.

package keys_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/keys"
)

// many is what the table and the file are made for.
const many = 400_000

// retained is what make leaves on the heap, and allocated all that it took on the way.
func retained[T any](make func() T) (value T, left, allocated uint64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	value = make()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return value, after.HeapAlloc - before.HeapAlloc, after.TotalAlloc - before.TotalAlloc
}

func TestAllocatedForATableOf400000Keys(t *testing.T) {
	f := large(t, many)
	table, left, _ := retained(f.Table)
	t.Logf("%d keys: %.1f MB, %.0f bytes a key", many, float64(left)/1e6, float64(left)/many)
	if left > 48e6 {
		t.Errorf("%d bytes, want at most 48 MB", left)
	}
	for i := 0; i < many; i += 997 {
		if k := table.Lookup(text(i)); k == nil || *k != f.Entries[i].Key {
			t.Fatalf("key %d: found %+v", i, k)
		}
		if k := table.Lookup(text(many + i)); k != nil {
			t.Fatalf("found %+v for a key that was never issued", k)
		}
	}
	runtime.KeepAlive(f)
}

func TestAllocatedWhileAFileOf400000KeysIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.keys.yaml")
	content := large(t, many).Encode()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	size := len(content)
	content = nil
	began := time.Now()
	f, left, allocated := retained(func() *keys.File {
		f, err := keys.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	})
	t.Logf("%d keys in %d MB: %v, %d MB allocated in all, %d MB kept", len(f.Entries), size/1e6, time.Since(began).Round(time.Millisecond), allocated/1e6, left/1e6)
	if len(f.Entries) != many || f.Entries[many-1].ID != fmt.Sprintf("customer-%06d", many-1) {
		t.Errorf("%d keys", len(f.Entries))
	}
	if allocated > 300e6 {
		t.Errorf("%d bytes allocated in all, want at most 300 MB: that much it takes at once if nothing is collected", allocated)
	}
}
