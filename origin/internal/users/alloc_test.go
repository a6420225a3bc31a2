//go:build !race

// The race detector allocates itself.

package users

import (
	"testing"

	"github.com/weirproject/weir/origin/internal/users/userstest"
)

func TestARememberedTokenCostsNoAllocation(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world, p *userstest.Provider) {
		token := p.Token(t, "alice")
		w.want("at first", token, "alice", good)
		if n := testing.AllocsPerRun(1000, func() { _, _ = w.Verify(t.Context(), token) }); n != 0 {
			t.Errorf("%v allocations, want 0", n)
		}
	})
}
