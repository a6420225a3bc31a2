package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/weirproject/weir/e2e/stand"
)

var errStill503 = errors.New("still 503")

// unless is nil if a condition holds.
func unless(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// Names of the filter's own metrics in Envoy.
const (
	releaseGauge    = "wasmcustom.weir_edge_release"
	rejectedCounter = "wasmcustom.weir_edge_bundle_rejected"
)

const tinyRules = `version: 1
rules:
- {name: tiny, where: edge, by: [address], algorithm: token-bucket, limit: %d/1h}
`

func TestPushKeepsBucketsAndDamageKeepsTheLastGood(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	rules := fmt.Sprintf(tinyRules, 5)
	keyring := stand.NewKeyring(t)
	e, api := behind(t, stand.EdgeSettings{Rules: rules, Keys: keyring.File(), Workers: 1})
	admin := stand.NewClient(t, "")
	c := stand.NewClient(t, "127.0.0.9")
	runs := func(release int) {
		t.Helper()
		e.Until(t, fmt.Sprintf("runs release %d", release), func() error {
			got := e.Stat(t, admin, releaseGauge)
			return unless(got == release, "%s = %d", releaseGauge, got)
		})
	}
	statuses := func(n int, headers ...string) map[int]int {
		t.Helper()
		counts := map[int]int{}
		for range n {
			counts[c.Get(t, e.URL+"/", headers...).Status]++
		}
		return counts
	}
	runs(1)
	if got := statuses(3); got[200] != 3 {
		t.Fatalf("answers %v, want 3 × 200", got)
	}

	// A new key comes with release 2; the address goes on with the two tokens it had left.
	alice := keyring.Issue(t, "alice")
	e.Push(t, stand.BuildBundle(t, rules, keyring.File(), 2))
	runs(2)
	if got := statuses(1, "X-Api-Key: "+alice); got[200] != 1 {
		t.Errorf("the key of release 2: %v, want 200", got)
	}
	if got := statuses(4); got[200] != 2 || got[429] != 2 {
		t.Errorf("after a push: %v, want the 2 tokens that were left and no refill", got)
	}

	// A damaged bundle is refused whole; release 2 goes on. The same damage again changes nothing.
	value := regexp.MustCompile(`"value": "[A-Za-z0-9+/=]{40,}"`)
	for range 2 {
		taken, refused := e.Updates(t, admin)
		e.Replace(t, func(text string) string {
			return value.ReplaceAllString(text, `"value": "V0VJUkJORExkYW1hZ2Vk"`)
		})
		e.Until(t, "refuses the damaged bundle", func() error {
			_, now := e.Updates(t, admin)
			return unless(now > refused, "%d refused", now)
		})
		if got := statuses(1, "X-Api-Key: "+alice); got[200] != 1 {
			t.Errorf("after a damaged push: %v, want release 2's 200", got)
		}
		if got := statuses(1); got[429] != 1 {
			t.Errorf("after a damaged push: %v, want the empty bucket's 429", got)
		}
		if got := e.Stat(t, admin, releaseGauge); got != 2 {
			t.Errorf("%s = %d after a damaged push, want 2", releaseGauge, got)
		}
		// A good file in between, so that the second damaged one is an update again.
		e.Push(t, stand.BuildBundle(t, rules, keyring.File(), 2))
		e.Until(t, "takes a good bundle again", func() error {
			now, _ := e.Updates(t, admin)
			return unless(now > taken, "%d taken", now)
		})
	}
	if got := e.Stat(t, admin, rejectedCounter); got < 1 {
		t.Errorf("%s = %d, want the damage counted", rejectedCounter, got)
	}

	e.Push(t, stand.BuildBundle(t, fmt.Sprintf(tinyRules, 8), keyring.File(), 3))
	runs(3)
	calls := api.Calls()
	if got := statuses(1, "X-Api-Key: "+alice); got[200] != 1 || api.Calls() != calls+1 {
		t.Errorf("release 3 after damaged ones: %v", got)
	}
}
