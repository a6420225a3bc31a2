package gateway

import (
	"net/http"
	"strconv"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

const (
	// hintHeader tells an edge of a refusal, so that it answers the next such call by itself. It names nobody: it is about
	// the credential or the address of the call that it answers.
	hintHeader = internalPrefix + "Hint"
	// unknownKeyWait is how long an edge may refuse a key that was never issued: as long as it takes any hint to hold.
	unknownKeyWait = 30 * limit.Second
	unknownKey     = "unknown-key"
)

// hint writes what an edge is told: v1;rule=NAME;scope=SCOPE;ms=WAIT;release=NUMBER. The wait is rounded up, so that nobody
// whom the edge tells it is told to come back too early.
func hint(h http.Header, about limiter.Hint, release uint64) {
	b := make([]byte, 0, 128)
	b = append(b, "v1;rule="...)
	b = append(b, about.Rule...)
	b = append(b, ";scope="...)
	b = append(b, about.Scope...)
	b = append(b, ";ms="...)
	b = strconv.AppendInt(b, int64((about.Wait+limit.Millisecond-1)/limit.Millisecond), 10)
	b = append(b, ";release="...)
	b = strconv.AppendUint(b, release, 10)
	h[hintHeader] = []string{string(b)}
}
