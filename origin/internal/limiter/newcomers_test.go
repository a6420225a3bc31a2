package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/origin/internal/store/memory"
	"github.com/weirproject/weir/shared/limit"
)

// newcomersOf is a world with room for many counters, so that what bounds them is the limiter.
func newcomersOf(t *testing.T, text string) (*world, *memory.Store) {
	w := newWorld(t, text)
	counters := memory.New(1_000_000, nil)
	w.hang = counters
	return w, counters
}

const perAddress = "version: 1\nrules:\n- {name: r, where: origin, by: [address], limit: 5/1h}\n"

// Clients choose their addresses, v6 ones freely: a flood of them must neither fill the store nor refuse who was there
// before.
func TestAFloodOfAddressesMakesFewCountersAndLeavesKnownCallersTheirs(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	anyV4 := func() netip.Addr {
		n := r.Uint32()
		return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	anyV6 := func() netip.Addr {
		var b [16]byte
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return netip.AddrFrom16(b)
	}
	for name, address := range map[string]func() netip.Addr{"v4": anyV4, "v6": anyV6} {
		t.Run(name, func(t *testing.T) {
			w, counters := newcomersOf(t, perAddress)
			known := make([]netip.Addr, 100)
			for i := range known {
				known[i] = address()
				w.get(identity.Caller{Address: known[i]}, "/")
			}
			for second := range 2 {
				w.now += limit.Second
				before := counters.Len()
				passed := 0
				for range 5_000 {
					if w.get(identity.Caller{Address: address()}, "/").Allowed {
						passed++
					}
				}
				made := counters.Len() - before
				// One more is everybody's, made once.
				if made > 1001 || made < 990 {
					t.Errorf("second %d: 5,000 addresses made %d counters, want 1,000 at most", second, made)
				}
				if passed < 1000 || passed > 1000*5+5 {
					t.Errorf("second %d: %d calls passed", second, passed)
				}
				// In the middle of it, one who was here has its own limit of 5.
				if v := w.get(identity.Caller{Address: known[second]}, "/"); !v.Allowed || v.Views[0].Decision.Remaining != 3 {
					t.Errorf("second %d: a known caller: %+v", second, v.Views)
				}
			}
			if n := w.admitted(9, identity.Caller{Address: known[9]}, "/"); n != 4 {
				t.Errorf("a known caller got %d of its other 4", n)
			}
		})
	}
}

func TestACallerThatComesTooLateSharesACounterWithItsNetwork(t *testing.T) {
	w, _ := newcomersOf(t, perAddress)
	for i := range 750 { // the room that single callers have
		w.get(from(fmt.Sprintf("10.1.%d.%d", i/250, i%250)), "/")
	}
	passed := 0
	for i := range 100 {
		passed += w.admitted(1, from(fmt.Sprintf("192.0.2.%d", i)), "/")
	}
	if passed != 5 {
		t.Errorf("100 neighbours passed %d times, want their network's 5", passed)
	}
	if w.admitted(9, from("198.51.100.1"), "/") != 5 {
		t.Error("another network has not its own 5")
	}
	passed = 0
	for i := range 100 {
		passed += w.admitted(1, from(fmt.Sprintf("2001:db8:0:%x::1", i)), "/")
	}
	if passed != 5 {
		t.Errorf("100 networks of one /48 passed %d times, want its 5", passed)
	}
	// A wider counter's refusal is not the address's own: no edge is told.
	if v := w.get(from("192.0.2.200"), "/"); v.Allowed || v.Hint != (limiter.Hint{}) {
		t.Errorf("%+v", v)
	}
	w.now += limit.Second
	if w.admitted(9, from("192.0.2.200"), "/") != 5 {
		t.Error("in the next second it has not a counter of its own")
	}
}

func TestCallersAtOnceMakeNoMoreCounters(t *testing.T) {
	w, counters := newcomersOf(t, perAddress)
	var wg sync.WaitGroup
	for part := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				w.get(from(fmt.Sprintf("10.%d.%d.%d", part, i/250, i%250)), "/")
			}
		})
	}
	wg.Wait()
	if n := counters.Len(); n > 1001 {
		t.Errorf("8,000 addresses at once made %d counters, want 1,000 at most", n)
	}
}

func TestKeysAreNotCountedAsNewcomers(t *testing.T) {
	w, counters := newcomersOf(t, "version: 1\nrules:\n- {name: r, where: origin, by: [key], limit: 5/1h}\n")
	for i := range 3000 {
		if !w.get(key(fmt.Sprint(i), ""), "/").Allowed {
			t.Fatal("a key was refused")
		}
	}
	if n := counters.Len(); n != 3000 {
		t.Errorf("%d counters of 3,000 keys", n)
	}
}

// Everybody's counter has one name, whatever the secrets: as its own former one it would be taken over for ever.
func TestEverybodysCounterHasNoFormerName(t *testing.T) {
	w := newWorld(t, perAddress, func(o *limiter.Options) { o.Rotation = &limiter.Rotation{Former: []byte(strings.Repeat("f", 32))} })
	w.hang = memory.New(1_000_000, nil)
	shared := 0
	for i := range 2_000 {
		w.get(from(fmt.Sprintf("10.%d.%d.1", i/250, i%250)), "/")
		for _, c := range w.asked {
			if everybodys := c.Counter == c.Counter.Overflow(); everybodys {
				shared++
			} else if c.Former == (limiter.Counter{}) {
				t.Fatalf("%s has no former name", c.Counter)
			} else {
				continue
			}
			if c.Former != (limiter.Counter{}) {
				t.Fatalf("everybody's counter %s has the former name %s", c.Counter, c.Former)
			}
		}
	}
	if shared == 0 {
		t.Error("nobody was counted with everybody")
	}
}
