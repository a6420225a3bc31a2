package valkey

import (
	"os"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/limit/limittest"
	"github.com/weirproject/weir/shared/rule"
)

// Every vector, on the live function. Costs that no store is asked for are refused by package limit alone.
func TestTheFunctionAnswersTheVectors(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	files, err := limittest.ReadAll(os.DirFS("../../../../shared/limit/testdata"))
	if err != nil {
		t.Fatal(err)
	}
	cases, calls := 0, map[limittest.Op]int{}
	for name, file := range files {
		for _, c := range file {
			algorithm, ok := rule.ParseAlgorithm(c.Algorithm)
			if !ok {
				t.Fatalf("%s:%d: no algorithm %q", name, c.Line, c.Algorithm)
			}
			cases++
			if c.Steps[0].Limit.Count == 0 {
				// A store makes no counter that was never charged; this is what one has that was full before.
				f.put(keyOf(cases), algorithm, c.Steps[0].Limit, c.Steps[0].Now)
			}
			for _, step := range c.Steps {
				if limit.CheckCost(step.Cost) != nil {
					continue
				}
				calls[step.Op]++
				charge := chargeOf(cases, algorithm, step.Limit, step.Cost)
				charge.Offset = c.Offset
				var o limiter.Outcome
				switch step.Op {
				case limittest.Take:
					o = f.take(step.Now, charge)[0]
				case limittest.Peek:
					o = f.peek(step.Now, charge)[0]
				case limittest.Refund:
					f.refundOne(step.Now, charge, step.Charged)
					continue
				}
				if o.Decision != step.Want || (o.Status == limiter.Admitted) != step.Want.Allowed || o.Status > limiter.Refused {
					t.Errorf("%s:%d: case %q: status %d\n got %+v\nwant %+v", name, step.Line, c.Name, o.Status, o.Decision, step.Want)
				}
			}
		}
	}
	t.Logf("vectors: valkey function %d cases, %d calls, %d peeks, %d refunds", cases, calls[limittest.Take], calls[limittest.Peek], calls[limittest.Refund])
	if cases < 125 || calls[limittest.Take] < 400 || calls[limittest.Peek] < 20 || calls[limittest.Refund] < 20 {
		t.Errorf("%d cases, calls %v: some are missing", cases, calls)
	}
}

// put stores the state of a counter that was never used.
func (f *live) put(key string, a rule.Algorithm, l limit.Limit, now limit.Micros) {
	f.t.Helper()
	var value []byte
	switch a {
	case rule.TokenBucket:
		s := limit.FullTokenBucket(l, now)
		value = bytesOf(a, field{7, s.Tokens}, field{6, s.Part}, field{7, int64(s.Last)}, field{7, s.Count})
	case rule.GCRA:
		s := limit.FullGCRA(l, now)
		value = bytesOf(a, field{7, int64(s.Spent)}, field{7, s.Part}, field{7, s.Count}, field{6, int64(s.Window)})
	default:
		return // as good as none
	}
	if err := f.do("SET", key, string(value)).Error(); err != nil {
		f.t.Fatal(err)
	}
}

// field is a number in a value, of so many bytes.
type field struct {
	size  int
	value int64
}

func bytesOf(a rule.Algorithm, fields ...field) []byte {
	b := []byte{248 + byte(a)}
	for _, f := range fields {
		for i := range f.size {
			b = append(b, byte(f.value>>(8*i)))
		}
	}
	return b
}
