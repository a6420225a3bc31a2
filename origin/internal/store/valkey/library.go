package valkey

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// The library's text, in the order that it is joined in.
var (
	//go:embed library_start.lua
	bodyStart string
	//go:embed library_numbers.lua
	bodyNumbers string
	//go:embed library_windows.lua
	bodyWindows string
	//go:embed library_buckets.lua
	bodyBuckets string
	//go:embed library_log.lua
	bodyLog string
	//go:embed library.lua
	bodyFunctions string
)

// serverClock is the clock of the library: TIME stands still within a call. A test's clock stands still for longer, and
// counters must outlive it: SPARE ms.
const serverClock = `local SPARE = 0
local function clock()
  local t = server.call('TIME')
  return t[1] * 1000000 + t[2]
end
`

// constants are the numbers that Lua and Go share.
func constants() string {
	var b strings.Builder
	for _, c := range []struct {
		name  string
		value int64
	}{
		{"ADMITTED", int64(limiter.Admitted)}, {"REFUSED", int64(limiter.Refused)}, {"FOREIGN", int64(limiter.Foreign)},
		{"UNMADE", int64(limiter.Unmade)},
		{"TOKEN_BUCKET", int64(rule.TokenBucket)}, {"SLIDING_WINDOW", int64(rule.SlidingWindow)}, {"GCRA", int64(rule.GCRA)},
		{"FIXED_WINDOW", int64(rule.FixedWindow)}, {"LEAKY_BUCKET", int64(rule.LeakyBucket)},
		{"LEAKY_QUEUE", int64(rule.LeakyQueue)}, {"SLIDING_LOG", int64(rule.SlidingLog)},
		{"LARGEST", limit.MaxCount}, {"MIN_WINDOW", int64(limit.MinWindow)}, {"MAX_WINDOW", int64(limit.MaxWindow)},
		{"MAX_REFILL", int64(limit.MaxRefill)}, {"MAX_LOG", limit.MaxLogCount},
		{"ID_KEPT", int64(limiter.IDKept / limit.Millisecond)},
	} {
		fmt.Fprintf(&b, "local %s = %d\n", c.name, c.value)
	}
	return b.String()
}

// library is the text of a function library with the names of its functions.
type library struct {
	name, check, peek, refund, code string
}

// newLibrary makes a library with a clock, a Lua function of that name. Library and functions are named by the hash of
// their text, so that two versions of Weir live beside each other in one server: no two libraries may register one
// function name.
func newLibrary(prefix, clock string) library {
	body := constants() + clock + bodyStart + bodyNumbers + bodyWindows + bodyBuckets + bodyLog + bodyFunctions
	sum := sha256.Sum256([]byte(body))
	l := library{name: prefix + hex.EncodeToString(sum[:4])}
	l.check, l.peek, l.refund = l.name+"_check", l.name+"_peek", l.name+"_refund"
	l.code = "#!lua name=" + l.name + "\n" + body +
		"server.register_function('" + l.check + "', take)\n" +
		"server.register_function{function_name='" + l.peek + "', callback=peek, flags={'no-writes'}}\n" +
		"server.register_function('" + l.refund + "', refund)\n"
	return l
}

var production = newLibrary("weir_", serverClock)
