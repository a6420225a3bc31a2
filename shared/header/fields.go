package header

import (
	"strconv"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// View is one rule's decision as a client may see it.
type View struct {
	Rule     string
	Mode     rule.Headers
	Limit    limit.Limit
	Decision limit.Decision
}

// RetryAfterSeconds is a wait as Retry-After tells it: whole seconds, rounded up, at least 1, so that a client that
// obeys is never early (RFC 9110 section 10.2.3).
func RetryAfterSeconds(wait limit.Micros) int64 {
	return int64(max(1, roundUp(wait, limit.Second)))
}

// Each emits the fields of a view, names in lower case. Mode Full gives RateLimit and RateLimit-Policy as structured
// fields of draft-ietf-httpapi-ratelimit-headers-10 and the older X-RateLimit-*; RetryOnly gives Retry-After alone;
// None gives nothing. Retry-After stands only in a refusal that waiting can cure. Seconds until a reset are rounded up.
func Each(v View, emit func(name, value string)) {
	d := v.Decision
	if v.Mode == rule.None {
		return
	}
	if !d.Allowed && d.RetryAfter != limit.Never {
		emit("retry-after", strconv.FormatInt(RetryAfterSeconds(d.RetryAfter), 10))
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
	window := v.Limit.Window
	if v.Limit.Count > 0 && v.Decision.Limit != v.Limit.Count {
		// The quota of a bucket is its burst; float is near enough for a hint in whole seconds.
		window = limit.Micros(float64(window) / float64(v.Limit.Count) * float64(v.Decision.Limit))
	}
	return max(1, roundUp(window, limit.Second))
}

// Tightest is the index of the view that limits a client most: a refusal before an admission, among refusals the
// longest wait, among admissions the smallest remaining share of its quota; -1 for none.
func Tightest(views []View) int {
	best := -1
	for i := range views {
		if best < 0 || tighter(views[i].Decision, views[best].Decision) {
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
	// a.Remaining/a.Limit < b.Remaining/b.Limit; counts to 2^53 need the float only to rank what is shown.
	left, right := float64(a.Remaining)*float64(b.Limit), float64(b.Remaining)*float64(a.Limit)
	if left != right {
		return left < right
	}
	return a.Remaining < b.Remaining
}
