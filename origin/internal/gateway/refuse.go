package gateway

import (
	"net/http"
	"strconv"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// degradedHeader tells that a rule was answered without its counter.
const degradedHeader = "X-Ratelimit-Degraded"

// overloaded answers a request that there is no room for.
func (g *Gateway) overloaded(w http.ResponseWriter, r *http.Request) {
	g.o.Metrics.Overloaded.Inc()
	refuse(w, r, header.Problem{Code: header.Overloaded, RetryAfter: overloadRetry})
}

// unknown answers a request whose credential does not hold. tell says that it is an edge's, and that its key is to blame,
// not a token beside a key that holds.
func (g *Gateway) unknown(w http.ResponseWriter, r *http.Request, why *identity.Refusal, tell bool) {
	if why.OfKey() {
		g.o.Metrics.KeysRejected.WithLabelValues(string(why.Code)).Inc()
	}
	if why.Challenge != "" {
		w.Header().Set("WWW-Authenticate", why.Challenge)
	}
	if tell && why.Code == header.KeyUnknown {
		hint(w.Header(), limiter.Hint{Scope: unknownKey, Wait: unknownKeyWait}, g.o.Limiter.Release().Number)
	}
	refuse(w, r, header.Problem{Code: why.Code, Field: why.Field})
}

// denied answers a request that its rules do not admit. A client that has closed its side is answered too: one that only
// half-closed still reads, and would be told 200.
func (g *Gateway) denied(w http.ResponseWriter, r *http.Request, v *limiter.Verdict, believed bool) {
	p := header.Problem{Code: v.Code, Release: v.Release.Number}
	show(w.Header(), v, &shown{})
	if believed && v.Code == header.RateLimited && v.Hint.Wait > 0 {
		hint(w.Header(), v.Hint, v.Release.Number)
	}
	if v.Deciding >= 0 {
		decided := &v.Views[v.Deciding]
		p.Mode, p.Rule, p.RetryAfter = decided.Mode, decided.Rule, decided.Decision.RetryAfter
		if p.RetryAfter > 0 && p.RetryAfter < limit.Never-decided.Jitter {
			p.RetryAfter += decided.Jitter // as the header tells it
		}
	}
	refuse(w, r, p)
}

// limitFields are the fields that tell a client its limits, by the names that [header.Each] emits: made canonical here,
// since [http.Header.Set] would make them anew for each answer.
var limitFields = map[string]string{}

func init() {
	for _, name := range []string{"retry-after", "ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"} {
		limitFields[name] = http.CanonicalHeaderKey(name)
	}
}

// shown are the values of those fields, with one more for the degraded field.
type shown [7]string

// show sets the fields that a client sees of its limits; values is where they are kept.
func show(h http.Header, v *limiter.Verdict, values *shown) {
	n := 0
	set := func(name, value string) {
		values[n] = value
		h[name] = values[n : n+1 : n+1]
		n++
	}
	header.OfMany(v.Views, func(name, value string) { set(limitFields[name], value) })
	if v.TellsDegraded && (v.Allowed || v.Views[v.Deciding].Mode == rule.Full) { // a refusal is told as its rule tells
		set(degradedHeader, "true")
	}
}

// refuse answers r with a problem. What waiting cures tells for how long, but for a rule that tells nothing.
func refuse(w http.ResponseWriter, r *http.Request, p header.Problem) {
	p.Where = rule.Origin.String()
	if callsGRPC(r) {
		refuseGRPC(w, p)
		return
	}
	h := w.Header()
	h.Set("Content-Type", header.ProblemType)
	h.Set("Cache-Control", "no-store")
	if p.Code.Status() == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		h.Set("Retry-After", strconv.FormatInt(header.RetryAfterSeconds(overloadRetry), 10))
	}
	w.WriteHeader(p.Code.Status())
	_, _ = w.Write(p.Append(make([]byte, 0, 256))) // a client that is gone reads nothing
}
