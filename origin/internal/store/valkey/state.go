package valkey

import (
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// What is stored of a counter, in bytes: a tag, then the fields of package limit's state in 7 bytes each, those below the
// longest window in 6. A log's size is that of the digest that stands for it in a reply. Up to 28 bytes a value takes the
// server the same memory.
const (
	bucketSize  = 1 + 7 + 6 + 7 + 7
	gcraSize    = 1 + 7 + 7 + 7 + 6
	slidingSize = 1 + 7 + 7 + 7
	fixedSize   = 1 + 7 + 7
	digestSize  = 3 * (7 + 2)
)

func sizeOf(a rule.Algorithm) int {
	switch a {
	case rule.GCRA:
		return gcraSize
	case rule.SlidingWindow:
		return slidingSize
	case rule.FixedWindow:
		return fixedSize
	case rule.SlidingLog:
		return digestSize
	}
	return bucketSize
}

// answer is what package limit says of a charge to a counter with this value, "" for none: of one that was charged, with
// what it says of the next call.
func answer(c *limiter.Charge, value string, now limit.Micros, charged bool) (d, next limit.Decision) {
	switch c.Algorithm {
	case rule.TokenBucket:
		return answerOf(tokenBucketOf(value, c.Limit, now), c, now, charged)
	case rule.GCRA:
		return answerOf(gcraOf(value, c.Limit, now), c, now, charged)
	case rule.SlidingWindow:
		return answerOf(slidingWindowOf(value), c, now, charged)
	case rule.FixedWindow:
		return answerOf(fixedWindow{fixedWindowOf(value), c.Offset}, c, now, charged)
	case rule.LeakyBucket:
		return answerOf(leakyBucketOf(value), c, now, charged)
	case rule.LeakyQueue:
		return answerOf(limit.LeakyQueue(leakyBucketOf(value)), c, now, charged)
	default:
		return answerOf(digestOf(value), c, now, charged)
	}
}

// state is a state of package limit.
type state[S any] interface {
	Take(l limit.Limit, now limit.Micros, cost int64) (S, limit.Decision)
	Peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision
}

func answerOf[S state[S]](s S, c *limiter.Charge, now limit.Micros, charged bool) (d, next limit.Decision) {
	if !charged {
		return s.Peek(c.Limit, now, c.Cost), next
	}
	after, d := s.Take(c.Limit, now, c.Cost)
	return d, after.Peek(c.Limit, now, 1)
}

func tokenBucketOf(v string, l limit.Limit, now limit.Micros) limit.TokenBucket {
	if v == "" {
		return limit.FullTokenBucket(l, now)
	}
	return limit.TokenBucket{Tokens: le7(v[1:]), Part: le6(v[8:]), Last: limit.Micros(le7(v[14:])), Count: le7(v[21:])}
}

func gcraOf(v string, l limit.Limit, now limit.Micros) limit.GCRA {
	if v == "" {
		return limit.FullGCRA(l, now)
	}
	return limit.GCRA{Spent: limit.Micros(le7(v[1:])), Part: le7(v[8:]), Count: le7(v[15:]), Window: limit.Micros(le6(v[22:]))}
}

func slidingWindowOf(v string) (s limit.SlidingWindow) {
	if v == "" {
		return s
	}
	return limit.SlidingWindow{Start: limit.Micros(le7(v[1:])), Current: le7(v[8:]), Previous: le7(v[15:])}
}

// fixedWindow is a fixed window with the offset of its counter.
type fixedWindow struct {
	limit.FixedWindow
	offset limit.Micros
}

func (w fixedWindow) Take(l limit.Limit, now limit.Micros, cost int64) (fixedWindow, limit.Decision) {
	next, d := w.FixedWindow.Take(l, now, cost, w.offset)
	return fixedWindow{next, w.offset}, d
}

func (w fixedWindow) Peek(l limit.Limit, now limit.Micros, cost int64) limit.Decision {
	return w.FixedWindow.Peek(l, now, cost, w.offset)
}

func fixedWindowOf(v string) (s limit.FixedWindow) {
	if v == "" {
		return s
	}
	return limit.FixedWindow{Start: limit.Micros(le7(v[1:])), Used: le7(v[8:])}
}

func leakyBucketOf(v string) (s limit.LeakyBucket) {
	if v == "" {
		return s
	}
	return limit.LeakyBucket{Level: le7(v[1:]), Part: le6(v[8:]), Last: limit.Micros(le7(v[14:])), Count: le7(v[21:])}
}

// digestOf is a log of up to three entries that answers the call it was made for, and after that a call of cost 1, as the
// whole log does.
func digestOf(v string) (s limit.SlidingLog) {
	var entries []int64
	for ; v != ""; v = v[9:] {
		if cost := int64(v[7]) | int64(v[8])<<8; cost > 0 {
			entries = append(entries, le7(v), cost)
		}
	}
	s, _ = limit.SlidingLogOf(entries)
	return s
}
