package valkey

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/limit"
)

// The arithmetic alone, against math/big: products to 2^107, every remainder.
func TestTheArithmeticIsExact(t *testing.T) {
	t.Parallel()
	f := newLive(t, withClock)
	r := newRand(t)
	// Like the library: ARGV in fours, the answer as text, since a reply's integers are cut and its tables end at a nil.
	script := constants() + "local floor, min = math.floor, math.min\n" + bodyNumbers + `
local out = {}
for i = 1, #ARGV, 4 do
  local a, b, c, d = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local q, rest = divide(a, b, c, d)
  out[#out + 1] = string.format('%.0f %.0f %.0f %s', q, rest, divide_up(a, b, c, d), tostring(at_most(a, b, math.abs(c), d)))
end
return out`
	var args []string
	var wants []string
	for range 3000 {
		a, b, d := nearBound(r), nearBound(r), max(1, nearBound(r))
		if r.IntN(3) == 0 {
			b = d // a quotient near a
		}
		c := nearBound(r) % d // what is carried over is less than the divisor
		if r.IntN(2) == 0 {
			c = -r.Int64N(limit.MaxCount)
		}
		product := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		sum := new(big.Int).Add(product, big.NewInt(c))
		if sum.Sign() < 0 {
			continue
		}
		q, rest := new(big.Int).DivMod(sum, big.NewInt(d), new(big.Int))
		if q.BitLen() > 53 {
			q, rest = big.NewInt(1<<60), big.NewInt(0)
		}
		up := new(big.Int).Set(q)
		if rest.Sign() > 0 {
			up.Add(up, big.NewInt(1))
		}
		other := new(big.Int).Mul(new(big.Int).Abs(big.NewInt(c)), big.NewInt(d))
		for _, v := range []int64{a, b, c, d} {
			args = append(args, strconv.FormatInt(v, 10))
		}
		wants = append(wants, fmt.Sprintf("%d %d %d %t", q, rest, up, product.Cmp(other) <= 0))
	}
	got, err := f.do(append([]string{"EVAL", script, "0"}, args...)...).AsStrSlice()
	if err != nil || len(got) != len(wants) {
		t.Fatalf("%d answers, want %d: %v", len(got), len(wants), err)
	}
	for i, want := range wants {
		if got[i] != want {
			t.Errorf("%s: %s, want %s", strings.Join(args[4*i:4*i+4], " "), got[i], want)
		}
	}
}

// nearBound is a number of any size, often near 2^53.
func nearBound(r *rand.Rand) int64 {
	switch r.IntN(4) {
	case 0:
		return limit.MaxCount - r.Int64N(4)
	case 1:
		return limit.MaxCount - r.Int64N(1<<46)
	}
	return magnitude(r, limit.MaxCount)
}
