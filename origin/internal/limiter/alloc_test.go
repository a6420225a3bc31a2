//go:build !race

// The race detector makes sync.Pool forget at random, so this is counted without it.

package limiter_test

import "testing"

// One allocation is the verdict's views, which outlive the check.
func TestACheckAllocatesItsVerdictAlone(t *testing.T) {
	l, check := benchmarked(t)
	for _, path := range []string{"/x", "/none"} {
		check(l, path)
		if n := testing.AllocsPerRun(1000, func() { check(l, path) }); n > 1 {
			t.Errorf("%s: %v allocations, want 1", path, n)
		}
	}
}
