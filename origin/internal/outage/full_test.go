package outage_test

import (
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

// A process that finds no room among a server's clients falls back, as if it was not there, and is let in once there is.
func TestAServerThatHasNoRoomForAnotherClient(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	const text = "version: 1\nrules:\n- {name: r, where: origin, by: [key], algorithm: fixed-window, limit: 40/24h}\n"
	in := start(t, server.Addr, text, 10*time.Second, 4)
	for range 100 { // each takes one of a few connections by chance, which is made by the first one on it
		in.ask(t, "a", "/", peek)
	}
	if err := server.Do("CONFIG", "SET", "maxclients", "1").Error(); err != nil {
		t.Fatal(err)
	}
	out := start(t, server.Addr, text, 10*time.Second, 4)
	if passed := out.passes(t, 20, "a", "/"); passed != 10 {
		t.Errorf("%d passed without a connection, want the share of 10", passed)
	}
	if v := in.check(t, "a", "/"); v.Degraded || v.Views[0].Decision.Remaining != 39 {
		t.Errorf("one who is in: %+v", v)
	}
	if err := server.Do("CONFIG", "SET", "maxclients", "1000").Error(); err != nil {
		t.Fatal(err)
	}
	out.awaitStore(t)
	if left := out.left(t, "a"); left != 39 {
		t.Errorf("%d left, want 39: what the fallback admitted is no charge", left)
	}
}
