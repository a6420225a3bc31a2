package header

import (
	"math/bits"
	"strconv"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// View is one rule's decision as a client may see it.
type View struct {
	Rule     string
	Mode     rule.Headers
	Shadow   bool // a shadow rule's decision is shown to nobody
	Limit    limit.Limit
	Decision limit.Decision
	// Jitter, 0 or more, is added to the wait that Retry-After tells: see [Jitter].
	Jitter limit.Micros
}

// Jitter is a principal's own part of spread, 0 to spread, so that a herd that is refused in one moment does not come
// back in one moment. principal is any hash of it: the same principal gets the same part each time, so that asking again
// gains nothing. A wait only grows by it, so that a client who obeys is never early.
func Jitter(principal uint64, spread limit.Micros) limit.Micros {
	if spread <= 0 {
		return 0
	}
	part, _ := bits.Mul64(principal, uint64(spread)+1)
	return limit.Micros(part)
}

// RetryAfterSeconds is a wait as Retry-After tells it: whole seconds, rounded up, at least 1, so that a client that
// obeys is never early (RFC 9110 section 10.2.3).
func RetryAfterSeconds(wait limit.Micros) int64 {
	return int64(max(1, roundUp(wait, limit.Second)))
}

// OfMany emits the fields of the verdict that several rules give together: those of the view that limits the client
// most, as Each does. A refusal shows the refusing rule with the longest wait, or nothing if that rule hides itself: the
// others' shorter waits would send the client into it. An admission shows the tightest of the rules in mode Full.
func OfMany(views []View, emit func(name, value string)) {
	best := Tightest(views)
	if best >= 0 && views[best].Decision.Allowed {
		best = tightest(views, func(v View) bool { return !v.Shadow && v.Mode == rule.Full })
	}
	if best >= 0 {
		Each(views[best], emit)
	}
}

// Each emits the fields of a view, names in lower case. Mode Full gives RateLimit and RateLimit-Policy as structured
// fields of draft-ietf-httpapi-ratelimit-headers-10 and the older X-RateLimit-*; RetryOnly gives Retry-After alone;
// None gives nothing. Retry-After stands only in a refusal that waiting can cure. Seconds until a reset are rounded up.
func Each(v View, emit func(name, value string)) {
	d := v.Decision
	if v.Mode == rule.None || v.Shadow {
		return
	}
	if !d.Allowed && d.RetryAfter != limit.Never {
		wait := min(d.RetryAfter, limit.Never-max(0, v.Jitter)) + max(0, v.Jitter)
		emit("retry-after", strconv.FormatInt(RetryAfterSeconds(wait), 10))
	}
	if v.Mode != rule.Full {
		return
	}
	quota, remaining := integer(d.Limit), integer(d.Remaining)
	name := `"` + v.Rule + `"`
	reset := ""
	if d.ResetAfter != limit.Never {
		reset = integer(int64(roundUp(d.ResetAfter, limit.Second)))
	}
	current := name + ";r=" + remaining
	if reset != "" {
		current += ";t=" + reset
	}
	emit("ratelimit", current)
	emit("ratelimit-policy", name+";q="+quota+";w="+integer(int64(policyWindow(v))))
	emit("x-ratelimit-limit", quota)
	emit("x-ratelimit-remaining", remaining)
	if reset != "" {
		emit("x-ratelimit-reset", reset)
	}
}

// integer is n as a structured field can hold it: at most 15 digits (RFC 9651 section 3.3.1), where a count may have 16.
func integer(n int64) string {
	return strconv.FormatInt(min(n, 999_999_999_999_999), 10)
}

// policyWindow is the window of the quota in whole seconds: how long it takes to earn Decision.Limit, rounded up.
func policyWindow(v View) limit.Micros {
	window, count := v.Limit.Window, v.Limit.Count
	if count <= 0 || v.Decision.Limit == count || v.Decision.Limit < 0 || window <= 0 {
		return max(1, roundUp(window, limit.Second))
	}
	// The quota of a bucket is its burst, earned in burst·window/count.
	hi, lo := bits.Mul64(uint64(window), uint64(v.Decision.Limit))
	if hi >= uint64(count) {
		return roundUp(limit.Never, limit.Second)
	}
	earned, rest := bits.Div64(hi, lo, uint64(count))
	if rest > 0 {
		earned++
	}
	return max(1, roundUp(limit.Micros(min(earned, uint64(limit.Never))), limit.Second))
}

// Tightest is the index of the view that limits a client most: a refusal before an admission, among refusals the
// longest wait, among admissions the smallest remaining share of its quota; -1 for none. Shadow rules do not count.
func Tightest(views []View) int {
	return tightest(views, func(v View) bool { return !v.Shadow })
}

func tightest(views []View, counts func(View) bool) int {
	best := -1
	for i, v := range views {
		if counts(v) && (best < 0 || tighter(v.Decision, views[best].Decision)) {
			best = i
		}
	}
	return best
}

func tighter(a, b limit.Decision) bool {
	if a.Allowed != b.Allowed {
		return !a.Allowed
	}
	if !a.Allowed {
		return a.RetryAfter > b.RetryAfter
	}
	// a.Remaining/a.Limit < b.Remaining/b.Limit, by products of 128 bits.
	leftHi, leftLo := bits.Mul64(uint64(max(0, a.Remaining)), uint64(max(0, b.Limit)))
	rightHi, rightLo := bits.Mul64(uint64(max(0, b.Remaining)), uint64(max(0, a.Limit)))
	if leftHi != rightHi || leftLo != rightLo {
		return leftHi < rightHi || leftHi == rightHi && leftLo < rightLo
	}
	return a.Remaining < b.Remaining
}
