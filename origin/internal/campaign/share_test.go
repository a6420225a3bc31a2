package campaign

import (
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

// live tells a process how many there are.
func (w *world) live(o *limiter.Options) {}

// share is what a process admits by itself of a limit.
func (w *world) share(l limit.Limit) limit.Limit { return l }
