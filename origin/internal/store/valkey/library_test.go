package valkey

import (
	"context"
	"strconv"

	"github.com/weirproject/weir/shared/limit"
)

// spare is what the tests' library adds to every time to live, ms: real time passes while a test's clock stands still.
const spare = 10_000_000_000

// withClock decides at the instant that its caller passes as the last argument.
var withClock = newLibrary("weirtest_", `local SPARE = `+strconv.Itoa(spare)+`
local function clock(args)
  return tonumber(args[#args])
end
`)

// testNow is the context key of that instant.
type testNow struct{}

func passNow(ctx context.Context) string {
	now, _ := ctx.Value(testNow{}).(limit.Micros)
	return strconv.FormatInt(int64(now), 10)
}
