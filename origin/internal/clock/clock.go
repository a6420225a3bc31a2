// Package clock tells the time that limits are decided by.
package clock

import (
	"time"

	"github.com/weirproject/weir/shared/limit"
)

// Anchored makes a wall clock that never steps: read once, in microseconds since the Unix epoch, then moved on by the
// monotonic clock. It is safe for concurrent use.
func Anchored() func() limit.Micros {
	began := time.Now()
	base := limit.Micros(began.UnixMicro())
	return func() limit.Micros { return base + limit.Micros(time.Since(began).Microseconds()) }
}
