//go:build all

package main

import (
	"unsafe"

	"github.com/weirproject/weir/shared/limit"
)

var (
	limitCheckLog           = limit.Limit.CheckLog
	tokenBucketIntegers     = limit.TokenBucket.Integers
	tokenBucketOf           = limit.TokenBucketOf
	gCRAIntegers            = limit.GCRA.Integers
	gCRAOf                  = limit.GCRAOf
	slidingWindowTake       = limit.SlidingWindow.Take
	slidingWindowPeek       = limit.SlidingWindow.Peek
	slidingWindowRefund     = limit.SlidingWindow.Refund
	slidingWindowFreshAfter = limit.SlidingWindow.FreshAfter
	slidingWindowAppend     = limit.SlidingWindow.Append
	slidingWindowIntegers   = limit.SlidingWindow.Integers
	readSlidingWindow       = limit.ReadSlidingWindow
	slidingWindowOf         = limit.SlidingWindowOf
	fixedWindowTake         = limit.FixedWindow.Take
	fixedWindowPeek         = limit.FixedWindow.Peek
	fixedWindowRefund       = limit.FixedWindow.Refund
	fixedWindowFreshAfter   = limit.FixedWindow.FreshAfter
	fixedWindowAppend       = limit.FixedWindow.Append
	fixedWindowIntegers     = limit.FixedWindow.Integers
	readFixedWindow         = limit.ReadFixedWindow
	fixedWindowOf           = limit.FixedWindowOf
	leakyBucketTake         = limit.LeakyBucket.Take
	leakyBucketPeek         = limit.LeakyBucket.Peek
	leakyBucketRefund       = limit.LeakyBucket.Refund
	leakyBucketEmptyAfter   = limit.LeakyBucket.EmptyAfter
	leakyBucketAppend       = limit.LeakyBucket.Append
	leakyBucketIntegers     = limit.LeakyBucket.Integers
	readLeakyBucket         = limit.ReadLeakyBucket
	leakyBucketOf           = limit.LeakyBucketOf
	leakyQueueTake          = limit.LeakyQueue.Take
	leakyQueuePeek          = limit.LeakyQueue.Peek
	leakyQueueRefund        = limit.LeakyQueue.Refund
	leakyQueueEmptyAfter    = limit.LeakyQueue.EmptyAfter
	leakyQueueAppend        = limit.LeakyQueue.Append
	leakyQueueIntegers      = limit.LeakyQueue.Integers
	readLeakyQueue          = limit.ReadLeakyQueue
	leakyQueueOf            = limit.LeakyQueueOf
	slidingLogTake          = limit.SlidingLog.Take
	slidingLogPeek          = limit.SlidingLog.Peek
	slidingLogRefund        = limit.SlidingLog.Refund
	slidingLogFreshAfter    = limit.SlidingLog.FreshAfter
	slidingLogAppend        = limit.SlidingLog.Append
	slidingLogIntegers      = limit.SlidingLog.Integers
	readSlidingLog          = limit.ReadSlidingLog
	slidingLogOf            = limit.SlidingLogOf
)

func useRest() {
	keep(
		unsafe.Pointer(&limitCheckLog),
		unsafe.Pointer(&tokenBucketIntegers),
		unsafe.Pointer(&tokenBucketOf),
		unsafe.Pointer(&gCRAIntegers),
		unsafe.Pointer(&gCRAOf),
		unsafe.Pointer(&slidingWindowTake),
		unsafe.Pointer(&slidingWindowPeek),
		unsafe.Pointer(&slidingWindowRefund),
		unsafe.Pointer(&slidingWindowFreshAfter),
		unsafe.Pointer(&slidingWindowAppend),
		unsafe.Pointer(&slidingWindowIntegers),
		unsafe.Pointer(&readSlidingWindow),
		unsafe.Pointer(&slidingWindowOf),
		unsafe.Pointer(&fixedWindowTake),
		unsafe.Pointer(&fixedWindowPeek),
		unsafe.Pointer(&fixedWindowRefund),
		unsafe.Pointer(&fixedWindowFreshAfter),
		unsafe.Pointer(&fixedWindowAppend),
		unsafe.Pointer(&fixedWindowIntegers),
		unsafe.Pointer(&readFixedWindow),
		unsafe.Pointer(&fixedWindowOf),
		unsafe.Pointer(&leakyBucketTake),
		unsafe.Pointer(&leakyBucketPeek),
		unsafe.Pointer(&leakyBucketRefund),
		unsafe.Pointer(&leakyBucketEmptyAfter),
		unsafe.Pointer(&leakyBucketAppend),
		unsafe.Pointer(&leakyBucketIntegers),
		unsafe.Pointer(&readLeakyBucket),
		unsafe.Pointer(&leakyBucketOf),
		unsafe.Pointer(&leakyQueueTake),
		unsafe.Pointer(&leakyQueuePeek),
		unsafe.Pointer(&leakyQueueRefund),
		unsafe.Pointer(&leakyQueueEmptyAfter),
		unsafe.Pointer(&leakyQueueAppend),
		unsafe.Pointer(&leakyQueueIntegers),
		unsafe.Pointer(&readLeakyQueue),
		unsafe.Pointer(&leakyQueueOf),
		unsafe.Pointer(&slidingLogTake),
		unsafe.Pointer(&slidingLogPeek),
		unsafe.Pointer(&slidingLogRefund),
		unsafe.Pointer(&slidingLogFreshAfter),
		unsafe.Pointer(&slidingLogAppend),
		unsafe.Pointer(&slidingLogIntegers),
		unsafe.Pointer(&readSlidingLog),
		unsafe.Pointer(&slidingLogOf),
	)
}
