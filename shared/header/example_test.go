package header_test

import (
	"fmt"

	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
)

func ExampleEach() {
	l := limit.Limit{Count: 1, Window: limit.Minute}
	_, d := limit.SlidingWindow{}.Take(l, 0, 1)
	header.Each(header.View{Rule: "per-key", Limit: l, Decision: d}, func(name, value string) {
		fmt.Printf("%s: %s\n", name, value)
	})
	// The counter forgets the call when that is out of the window before the next one as well.

	// Output:
	// ratelimit: "per-key";r=0;t=120
	// ratelimit-policy: "per-key";q=1;w=60
	// x-ratelimit-limit: 1
	// x-ratelimit-remaining: 0
	// x-ratelimit-reset: 120
}
