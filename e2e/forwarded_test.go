package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/e2e/stand"
)

// peer stands for the address of the connection's other end.
const peer = "peer"

// Case 19. What a client may write into X-Forwarded-For, with whom the request is then taken to come from behind no,
// one and two proxies of one's own. %d makes each row's addresses its own.
var forwarded = []struct {
	name  string
	lines []string
	from  [3]string // by hops
}{
	{"nothing", nil, [3]string{peer, peer, peer}},
	{"empty", []string{""}, [3]string{peer, peer, peer}},
	{"one entry", []string{"203.0.113.%d"}, [3]string{peer, "203.0.113.%d", peer}},
	{"leftmost spoofed", []string{"198.51.100.%d, 203.0.113.%d"}, [3]string{peer, "203.0.113.%d", "198.51.100.%d"}},
	{"three entries", []string{"192.0.2.%d,198.51.100.%d,203.0.113.%d"}, [3]string{peer, "203.0.113.%d", "198.51.100.%d"}},
	{"two lines", []string{"198.51.100.%d", "203.0.113.%d"}, [3]string{peer, "203.0.113.%d", "198.51.100.%d"}},
	{"garbage first", []string{"garbage, 203.0.113.%d"}, [3]string{peer, "203.0.113.%d", peer}},
	{"garbage last", []string{"198.51.100.%d, garbage"}, [3]string{peer, peer, "198.51.100.%d"}},
	{"unknown", []string{"unknown"}, [3]string{peer, peer, peer}},
	{"a name", []string{"localhost"}, [3]string{peer, peer, peer}},
	{"with a port", []string{"203.0.113.%d:80"}, [3]string{peer, peer, peer}},
	{"a trailing comma", []string{"203.0.113.%d,"}, [3]string{peer, peer, "203.0.113.%d"}},
	{"spaces", []string{"  203.0.113.%d  "}, [3]string{peer, "203.0.113.%d", peer}},
	{"v4 in v6", []string{"::ffff:203.0.113.%d"}, [3]string{peer, "203.0.113.%d", peer}},
	{"v6", []string{"2001:db8:0:%d::1"}, [3]string{peer, "2001:db8:0:%d::1", peer}},
	{"v6 in brackets", []string{"[2001:db8:0:%d::1]"}, [3]string{peer, peer, peer}},
	{"v6 with a port", []string{"[2001:db8:0:%d::1]:443"}, [3]string{peer, peer, peer}},
	{"v6 with a zone", []string{"fe80:0:0:%d::1%%nowhere"}, [3]string{peer, peer, peer}},
	{"200 entries", []string{strings.Repeat("198.51.100.%d, ", 199) + "203.0.113.%d"}, [3]string{peer, "203.0.113.%d", "198.51.100.%d"}},
}

// numbered puts n wherever the text has %d.
func numbered(text string, n int) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "%d", fmt.Sprint(n)), "%%", "%")
}

// TestOnlyTheTrustedHopSaysWhoseRequestItIs shows both what Envoy took a request's address for and what the filter did:
// whose bucket of 1 it has emptied.
func TestOnlyTheTrustedHopSaysWhoseRequestItIs(t *testing.T) {
	stand.Need(t, stand.Wasm, stand.Weir, stand.Envoy)
	for hops := range 3 {
		t.Run(fmt.Sprint("hops ", hops), func(t *testing.T) {
			e, api := behind(t, stand.EdgeSettings{
				Rules: fmt.Sprintf(tinyRules, 1), Workers: 1, Flags: []string{"--hops", fmt.Sprint(hops)},
			})
			var table strings.Builder
			for i, row := range forwarded {
				n := i + 1
				own := fmt.Sprintf("127.%d.%d.1", 63+hops, n)
				var headers []string
				for _, line := range row.lines {
					headers = append(headers, "X-Forwarded-For: "+numbered(line, n))
				}
				first := stand.NewClient(t, own).Get(t, fmt.Sprintf("%s/%d", e.URL, n), headers...)
				if first.Status != 200 {
					t.Errorf("%s: %d: an address that nobody has used before", row.name, first.Status)
					continue
				}
				saw := api.Last().Get("X-Weir-Address")

				// The address that is wanted, told the plain way, has nothing left.
				want, again := own, stand.NewClient(t, own)
				plain := []string(nil)
				if row.from[hops] != peer {
					want = numbered(row.from[hops], n)
					again = stand.NewClient(t, fmt.Sprintf("127.%d.%d.2", 63+hops, n))
					plain = []string{"X-Forwarded-For: " + want + strings.Repeat(", 192.0.2.250", hops-1)}
				}
				second := again.Get(t, e.URL+"/", plain...)
				fmt.Fprintf(&table, "%-18s %-42.42s envoy %-22s bucket of %-18s %d\n", row.name, strings.Join(headers, " | "), saw, want, second.Status)
				if second.Status != 429 {
					t.Errorf("%s: the filter did not charge %s", row.name, want)
				}
				if saw != want && saw != "::ffff:"+want {
					t.Errorf("%s: Envoy took the address for %s, want %s", row.name, saw, want)
				}
				e.Until(t, "logs the request", func() error { return logged(e.Access(t), fmt.Sprint("/", n), saw) })
			}
			t.Logf("hops %d:\n%s", hops, table.String())
		})
	}
}

// logged finds the access log's line about a path, which has to name the address.
func logged(log, path, address string) error {
	for line := range strings.Lines(log) {
		var entry struct{ Path, Address string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Path == path {
			return unless(entry.Address == address, "%s is logged as from %s, not %s", path, entry.Address, address)
		}
	}
	return fmt.Errorf("no line about %s", path)
}
