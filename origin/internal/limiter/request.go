package limiter

import (
	"fmt"
	"strconv"

	"github.com/weirproject/weir/origin/internal/identity"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/limit"
)

// MaxRequestID is how long a [Request.ID] may be: a UUID has 36 bytes, a trace's ids 50; what is longer is no id.
const MaxRequestID = 128

// Request is one call to be answered.
type Request struct {
	Caller             identity.Caller
	Method, Path, Host string                 // as the client sent them; Path escaped
	HasHeader          func(name string) bool // tells of a header by its name in lower case; nil: the request has none
	// Cost is what each rule charges, 1 to [limit.MaxCount]; 0 for what the rule says itself.
	Cost int64
	// Peek asks whether such a call would pass, without charging it.
	Peek bool
	// ID, if not empty, names a call that an authenticated caller may repeat: within [IDKept] of its admission it is
	// admitted again without being charged. At most [MaxRequestID] bytes. Never what a client chose freely.
	ID string
	// Refundable asks for a [Verdict.Receipt].
	Refundable bool
}

// RequestError is a request that makes no sense. Nothing was charged.
type RequestError struct {
	Field string // cost, id
	Value string
	Want  string // what is allowed
}

// Error names the field, its value and what is allowed.
func (e *RequestError) Error() string {
	return fmt.Sprintf("%s: %q: want %s", e.Field, e.Value, e.Want)
}

func (r *Request) check() error {
	if r.Cost < 0 || r.Cost > limit.MaxCount {
		return &RequestError{"cost", strconv.FormatInt(r.Cost, 10), "1 to " + strconv.FormatInt(limit.MaxCount, 10) + ", or 0 for what each rule says"}
	}
	if len(r.ID) > MaxRequestID {
		return &RequestError{"id", r.ID[:MaxRequestID] + "…", "at most " + strconv.Itoa(MaxRequestID) + " bytes"}
	}
	if r.ID != "" && r.Caller.Key == nil && r.Caller.User == nil {
		return &RequestError{"id", r.ID, "none without an authenticated caller"}
	}
	return nil
}

// Verdict is the answer. It belongs to its caller.
type Verdict struct {
	Allowed bool
	Code    header.Code // why not: [header.RateLimited], or [header.LimiterUnavailable] for a rule that fails closed
	// Views are the decisions of the enforced rules that were asked. Rules found exhausted in memory are the only ones in it
	// then.
	Views []header.View
	// Deciding is the view that headers and body show: the refusing one with the longest wait, else the tightest; -1
	// where no rule applied.
	Deciding int
	Degraded bool // some rule was answered without its counter
	// TellsDegraded says that the client may know: one of those rules shows its headers in full.
	TellsDegraded bool
	Release       *rules.Release
	Hold          limit.Micros // an admitted call has to wait this long before it goes on
	// Receipt is what [Limiter.Refund] wants: of an admitted call that was charged, if it is Refundable or has a Hold.
	Receipt *Receipt
	Hint    Hint
}

// Hint is what an edge may remember of a refusal, for the credential or the address of that very call; zero for none.
type Hint struct {
	Rule  string
	Scope string // "key" or "address"
	Wait  limit.Micros
}
