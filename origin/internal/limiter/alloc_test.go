//go:build !race

// The race detector makes sync.Pool forget at random, so this is counted without it.

package limiter_test

import (
	"fmt"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
)

// One allocation is the verdict's views, which outlive the check.
func TestACheckAllocatesItsVerdictAlone(t *testing.T) {
	l, check := benchmarked(t, nil)
	for _, path := range []string{"/one", "/two", "/three", "/shadow", "/none"} {
		check(l, path)
		if n := testing.AllocsPerRun(1000, func() { check(l, path) }); n != 1 {
			t.Errorf("%s: %v allocations, want 1", path, n)
		}
	}
}

func TestAChangeOfSecretsAllocatesNothing(t *testing.T) {
	l, check := benchmarked(t, &limiter.Rotation{Former: make([]byte, 32)})
	check(l, "/three")
	if n := testing.AllocsPerRun(1000, func() { check(l, "/three") }); n != 1 {
		t.Errorf("%v allocations, want 1", n)
	}
}

// The name that overrides have for a user is put together for each other user.
func TestAUserAllocatesItsName(t *testing.T) {
	w := newWorld(t, "version: 1\nrules:\n- {name: r, where: origin, by: [user], limit: 9007199254740991/1h}\n", onMemory)
	users := make([]limiter.Request, 2)
	for i := range users {
		users[i] = limiter.Request{Caller: user("https://id", "t", fmt.Sprint(i)), Method: "GET", Path: "/"}
		w.check(users[i])
	}
	n := 0
	if got := testing.AllocsPerRun(1000, func() { n++; w.check(users[n%2]) }); got != 2 {
		t.Errorf("%v allocations, want 2", got)
	}
	if got := testing.AllocsPerRun(1000, func() { w.check(users[0]) }); got != 1 {
		t.Errorf("%v allocations of a user who comes again, want 1", got)
	}
}
