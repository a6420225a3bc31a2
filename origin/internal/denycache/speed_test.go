package denycache_test

import (
	"testing"

	"github.com/weirproject/weir/origin/internal/denycache"
	"github.com/weirproject/weir/shared/limit"
)

// name is as long as a counter's.
type name [43]byte

// full has one entry that stands until an hour, and one that opened at 1000.
func full() (c *denycache.Cache[name], standing, open name) {
	c = denycache.New[name](denycache.DefaultSize)
	standing, open = name{1}, name{2}
	refuse(c, standing, 1, refusal(20*limit.Second, limit.Hour), 0)
	refuse(c, open, 1, refusal(1000, limit.Hour), 0)
	return c, standing, open
}

func TestAnAnswerFromMemoryAllocatesNothing(t *testing.T) {
	c, standing, open := full()
	_, place, _ := c.Enter(open, per, 1, 1000)
	for what, do := range map[string]func() bool{
		"refused":            func() bool { _, _, refused := c.Enter(standing, per, 1, 1000); return refused },
		"refused in between": func() bool { _, _, refused := c.Enter(open, per, 1, 1000); return refused },
		"nothing known": func() bool {
			_, pass, refused := c.Enter(name{3}, per, 1, 1000)
			c.Learn(name{3}, pass, 1, left(5), limit.Decision{Allowed: true}, 0, 1000)
			return !refused
		},
		"asking": func() bool {
			c.Leave(open, place)
			d, pass, refused := c.Enter(open, per, 1, 1000)
			c.Learn(open, pass, 1, left(0), d, 0, 1000)
			_, place, _ = c.Enter(open, per, 1, 1000)
			return !refused
		},
	} {
		if n := testing.AllocsPerRun(1000, func() {
			if !do() {
				t.Errorf("%s: it was not", what)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations, want 0", what, n)
		}
	}
}

func BenchmarkHit(b *testing.B) {
	c, standing, _ := full()
	b.ReportAllocs()
	for b.Loop() {
		c.Enter(standing, per, 1, 1000)
	}
}

func BenchmarkHitOfOneKeyByAll(b *testing.B) {
	c, standing, _ := full()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Enter(standing, per, 1, 1000)
		}
	})
}

func BenchmarkMiss(b *testing.B) {
	c, _, _ := full()
	b.ReportAllocs()
	for b.Loop() {
		_, pass, _ := c.Enter(name{3}, per, 1, 1000)
		c.Learn(name{3}, pass, 1, left(5), limit.Decision{Allowed: true}, 0, 1000)
	}
}

func BenchmarkAsk(b *testing.B) {
	c, _, open := full()
	b.ReportAllocs()
	for b.Loop() {
		_, pass, _ := c.Enter(open, per, 1, 1000)
		c.Learn(open, pass, 1, left(5), limit.Decision{Allowed: true}, 0, 1000)
	}
}
