package rule

import (
	"fmt"
	"testing"
)

// Index probes are counted, not timed: one slot and one comparison each, as many for 10,000 rules as for 10.
func TestAMatchProbesTheIndexEquallyOftenWhateverTheNumberOfRules(t *testing.T) {
	const want = 3 // four forms of patterns, of which /accounts/N has another length than the path
	for _, n := range []int{10, 1000, 10_000} {
		specs := make([]Spec, n)
		for i := range specs {
			path := [...]string{"/service/%d/**", "/tenants/*/%d", "/accounts/%d", "/a/b/%d"}[i%4]
			specs[i] = Spec{Name: Scalar{Text: fmt.Sprintf("r%d", i), Set: true}, Where: Scalar{Text: "origin", Set: true}, Limit: Scalar{Text: "1/1s", Set: true},
				By: []Scalar{{Text: "key", Set: true}}, Paths: []Scalar{{Text: fmt.Sprintf(path, i), Set: true}}}
		}
		set, faults := Compile(Draft{Rules: specs})
		if faults.Err() != nil {
			t.Fatal(faults)
		}
		dst, probes := set.match(Origin, &Request{Method: "GET", Path: "/service/4/x"}, nil)
		if probes != want || len(dst) != 1 {
			t.Errorf("%d rules: %d probes for %d matches, want %d for 1", n, probes, len(dst), want)
		}
		if _, probes := set.match(Origin, &Request{Method: "GET", Path: "/nothing/of/it"}, nil); probes != want {
			t.Errorf("%d rules: %d probes for no match, want %d", n, probes, want)
		}
	}
}
