package limit_test

import (
	"fmt"

	"github.com/weirproject/weir/shared/limit"
)

// Whoever holds the state reads the clock, once a call, and keeps what Take returns.
func ExampleTokenBucket() {
	l := limit.Limit{Count: 1, Window: limit.Second, Burst: 2} // 1 a second, 2 at once
	if err := l.Check(); err != nil {
		fmt.Println(err)
		return
	}
	s := limit.FullTokenBucket(l, 0)
	for _, now := range []limit.Micros{0, 0, 250_000, 1_000_000} {
		var d limit.Decision
		s, d = s.Take(l, now, 1)
		fmt.Println(now, d.Allowed, d.Remaining, d.RetryAfter)
	}
	// Output:
	// 0 true 1 0
	// 0 true 0 0
	// 250000 false 0 750000
	// 1000000 true 0 0
}

func ExampleSlidingWindow() {
	l := limit.Limit{Count: 100, Window: limit.Minute}
	var s limit.SlidingWindow // never used
	s, _ = s.Take(l, 30*limit.Second, 42)
	s, _ = s.Take(l, 70*limit.Second, 18)
	d := s.Peek(l, 75*limit.Second, 1) // 18 and three quarters of 42 are in view
	fmt.Println(d.Remaining, "of", d.Limit)
	// Output: 50 of 100
}
