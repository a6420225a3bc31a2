package valkey

import (
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/valkeytest"
)

// listener is a store that gives what it is told to forget to a channel.
func listener(t *testing.T, o Options) (*Store, <-chan limiter.Counter, <-chan struct{}) {
	t.Helper()
	forgotten, subscribed := make(chan limiter.Counter, 1000), make(chan struct{}, 16)
	o.OnForget = func(c limiter.Counter) { forgotten <- c }
	o.onSubscribed = func() { subscribed <- struct{}{} }
	s := start(t, o)
	awaitEvent(t, "a subscription", subscribed)
	return s, forgotten, subscribed
}

func awaitEvent[T any](t *testing.T, what string, events <-chan T) (event T) {
	t.Helper()
	within(t, what, func() bool {
		select {
		case event = <-events:
			return true
		default:
			return false
		}
	})
	return event
}

func TestHintsReachOtherProcesses(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	a := start(t, Options{Addrs: []string{server.Addr}})
	b, forgotten, subscribed := listener(t, Options{Addrs: []string{server.Addr}})

	var all []limiter.Counter
	for n := range 2*maxAnnounced + 1 {
		all = append(all, name(n))
	}
	a.Announce(all)
	for _, want := range all {
		if got := awaitEvent(t, "a hint", forgotten); got != want {
			t.Fatalf("told to forget %s, want %s", got[:], want[:])
		}
	}
	// What is no list of names is nobody's hint.
	long := make([]byte, (maxAnnounced+1)*limiter.CounterSize)
	for _, message := range []string{"", "x", string(all[0][:]) + "x", string(long)} {
		if err := server.Do("PUBLISH", forgetChannel, message).Error(); err != nil {
			t.Fatal(err)
		}
	}
	a.Announce(all[:1])
	if got := awaitEvent(t, "a hint", forgotten); got != all[0] {
		t.Errorf("told to forget %q", got[:])
	}
	// A lost connection is made anew.
	if err := server.Do("CLIENT", "KILL", "TYPE", "PUBSUB").Error(); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, "the next subscription", subscribed)
	a.Announce(all[:1])
	if got := awaitEvent(t, "a hint", forgotten); got != all[0] {
		t.Errorf("told to forget %q", got[:])
	}
	_ = b
}

// Announcing waits for nobody, and holds no more than its bound.
func TestAnnouncingWithoutAServerIsBounded(t *testing.T) {
	t.Parallel()
	server := valkeytest.Start(t)
	s := start(t, Options{Addrs: []string{server.Addr}})
	server.Stop()
	defer server.Continue()
	for range 10 * maxWaiting {
		s.Announce([]limiter.Counter{name(1)})
	}
	if n := len(s.hints.out); n > maxWaiting {
		t.Errorf("%d messages wait", n)
	}
}

// In a cluster a message reaches those who listen on any server.
func TestHintsReachListenersOfEveryServer(t *testing.T) {
	t.Parallel()
	c := valkeytest.StartCluster(t, 3)
	s := openCluster(t, c)
	_, forgotten, _ := listener(t, Options{Addrs: []string{c.Nodes[0].Addr}, Cluster: true})
	for _, n := range c.Nodes {
		want := on(1, 1)
		if err := n.Do("PUBLISH", forgetChannel, string(want[:])).Error(); err != nil {
			t.Fatal(err)
		}
		if got := awaitEvent(t, "a hint", forgotten); got != want {
			t.Errorf("told to forget %q", got[:])
		}
	}
	s.Announce([]limiter.Counter{on(2, 2)})
	if got := awaitEvent(t, "a hint", forgotten); got != on(2, 2) {
		t.Errorf("told to forget %q", got[:])
	}
}
