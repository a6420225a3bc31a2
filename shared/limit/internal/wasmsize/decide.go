//go:build decide

package main

import (
	"unsafe"

	"github.com/weirproject/weir/shared/limit"
)

// What a module has to have of each algorithm in order to decide by it.
var (
	limitCheck        = limit.Limit.Check
	checkCost         = limit.CheckCost
	fullTokenBucket   = limit.FullTokenBucket
	tokenBucketTake   = limit.TokenBucket.Take
	fullGCRA          = limit.FullGCRA
	gCRATake          = limit.GCRA.Take
	slidingWindowTake = limit.SlidingWindow.Take
	fixedWindowTake   = limit.FixedWindow.Take
	leakyBucketTake   = limit.LeakyBucket.Take
	leakyQueueTake    = limit.LeakyQueue.Take
	slidingLogTake    = limit.SlidingLog.Take
)

func use() {
	keep(
		unsafe.Pointer(&limitCheck),
		unsafe.Pointer(&checkCost),
		unsafe.Pointer(&fullTokenBucket),
		unsafe.Pointer(&tokenBucketTake),
		unsafe.Pointer(&fullGCRA),
		unsafe.Pointer(&gCRATake),
		unsafe.Pointer(&slidingWindowTake),
		unsafe.Pointer(&fixedWindowTake),
		unsafe.Pointer(&leakyBucketTake),
		unsafe.Pointer(&leakyQueueTake),
		unsafe.Pointer(&slidingLogTake),
	)
}
