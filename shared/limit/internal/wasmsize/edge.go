//go:build edge || all

package main

import (
	"unsafe"

	"github.com/weirproject/weir/shared/limit"
)

// Every function as a variable, whose address keeps the linker from dropping it: a call would add the caller's own code to
// what is measured.
var (
	limitCheck           = limit.Limit.Check
	checkCost            = limit.CheckCost
	fullTokenBucket      = limit.FullTokenBucket
	tokenBucketTake      = limit.TokenBucket.Take
	tokenBucketPeek      = limit.TokenBucket.Peek
	tokenBucketRefund    = limit.TokenBucket.Refund
	tokenBucketFullAfter = limit.TokenBucket.FullAfter
	tokenBucketAppend    = limit.TokenBucket.Append
	readTokenBucket      = limit.ReadTokenBucket
	fullGCRA             = limit.FullGCRA
	gCRATake             = limit.GCRA.Take
	gCRAPeek             = limit.GCRA.Peek
	gCRARefund           = limit.GCRA.Refund
	gCRAFullAfter        = limit.GCRA.FullAfter
	gCRAAppend           = limit.GCRA.Append
	readGCRA             = limit.ReadGCRA
)

func use() {
	keep(
		unsafe.Pointer(&limitCheck),
		unsafe.Pointer(&checkCost),
		unsafe.Pointer(&fullTokenBucket),
		unsafe.Pointer(&tokenBucketTake),
		unsafe.Pointer(&tokenBucketPeek),
		unsafe.Pointer(&tokenBucketRefund),
		unsafe.Pointer(&tokenBucketFullAfter),
		unsafe.Pointer(&tokenBucketAppend),
		unsafe.Pointer(&readTokenBucket),
		unsafe.Pointer(&fullGCRA),
		unsafe.Pointer(&gCRATake),
		unsafe.Pointer(&gCRAPeek),
		unsafe.Pointer(&gCRARefund),
		unsafe.Pointer(&gCRAFullAfter),
		unsafe.Pointer(&gCRAAppend),
		unsafe.Pointer(&readGCRA),
	)
}
