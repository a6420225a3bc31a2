package numbers

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/gateway"
	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/origin/internal/telemetry"
)

// Keys that were never issued, well-formed or not, are answered before any counter is touched.
func TestRandomKeysMakeNoCounter(t *testing.T) {
	c := &clock{}
	c.set(hour)
	store := memory.New(1_000_000, nil)
	issued, foreign := newKeys(t), newKeys(t) // another installation's are well-formed here
	own, err := issued.Issue(rand.Reader, keys.Key{ID: "own"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	upstream, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	known := issued.Table()
	g := gateway.New(gateway.Options{
		Upstream: upstream,
		Resolver: &identity.Resolver{Keys: func() *keys.Table { return known }, Believes: func(netip.Addr) bool { return false }},
		Limiter:  process(t, store, c, "version: 1\nrules:\n- {name: per-key, where: origin, by: [\"key|address\"], limit: 600/1m}\n"),
		Metrics:  telemetry.New(), Log: quiet,
	})
	defer g.Close()
	ask := func(key string) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(identity.KeyHeader, key)
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		return w.Code
	}
	count := 100_000 / share(50)
	for n := range count {
		key := rand.Text()
		switch n % 3 {
		case 0:
			key = "wk_" + key + key[:2] // a checksum that is wrong
		case 1:
			if n%300 == 1 { // a file of many takes long to append to
				foreign = newKeys(t)
			}
			if key, err = foreign.Issue(rand.Reader, keys.Key{ID: strings.ToLower(key)}, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		if code := ask(key); code != http.StatusUnauthorized {
			t.Fatalf("key %q: answer %d", key, code)
		}
	}
	made := store.Len()
	if made != 0 {
		t.Errorf("%d random keys made %d counters", count, made)
	}
	if code := ask(own); code != http.StatusOK || store.Len() != 1 {
		t.Errorf("an issued key: answer %d, %d counters", code, store.Len())
	}
	report(t, fmt.Sprintf("random keys, 100,000/s (%s tried): counters made", thousands(int64(count))), "0", fmt.Sprint(made))
}

func newKeys(t *testing.T) *keys.File {
	t.Helper()
	f, err := keys.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
