package limit_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
)

// counter is a state of any algorithm, for tests that treat them alike.
type counter interface {
	take(l limit.Limit, now limit.Micros, cost int64) limit.Decision
	peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision
	copy() counter
}

type bucketCounter struct{ s limit.TokenBucket }

func (c *bucketCounter) take(l limit.Limit, now limit.Micros, cost int64) (d limit.Decision) {
	c.s, d = c.s.Take(l, now, cost)
	return d
}

func (c *bucketCounter) peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	return c.s.Peek(l, now, cost)
}
func (c *bucketCounter) copy() counter { d := *c; return &d }

type windowCounter struct{ s limit.SlidingWindow }

func (c *windowCounter) take(l limit.Limit, now limit.Micros, cost int64) (d limit.Decision) {
	c.s, d = c.s.Take(l, now, cost)
	return d
}

func (c *windowCounter) peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	return c.s.Peek(l, now, cost)
}
func (c *windowCounter) copy() counter { d := *c; return &d }

// algorithms by their name in a rule; each makes a fresh counter.
var algorithms = map[string]func(l limit.Limit, now limit.Micros) counter{
	"token-bucket": func(l limit.Limit, now limit.Micros) counter {
		return &bucketCounter{limit.FullTokenBucket(l, now)}
	},
	"sliding-window": func(limit.Limit, limit.Micros) counter { return &windowCounter{} },
}

func TestVectorsHoldOnNativeCode(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < len(algorithms) {
		t.Fatalf("found %d vector files for %d algorithms: %v", len(files), len(algorithms), err)
	}
	cases, steps := 0, 0
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		read, err := limittest.Read(file)
		file.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range read {
			fresh, ok := algorithms[c.Algorithm]
			if !ok || len(c.Steps) == 0 {
				t.Fatalf("%s:%d: case %q: no algorithm %q, or no steps", name, c.Line, c.Name, c.Algorithm)
			}
			state := fresh(c.Steps[0].Limit, c.Steps[0].Now)
			for _, step := range c.Steps {
				if got := state.take(step.Limit, step.Now, step.Cost); got != step.Want {
					t.Errorf("%s:%d: case %q:\n got %+v\nwant %+v", name, step.Line, c.Name, got, step.Want)
				}
				steps++
			}
			cases++
		}
	}
	t.Logf("vectors: native %d cases, %d calls", cases, steps)
}
