package valkey

import (
	"context"
	"strconv"

	"github.com/weirproject/weir/shared/limit"
)

// withClock decides at the instant that its caller passes as the last argument.
var withClock = newLibrary("weirtest_", `local function clock(args)
  return tonumber(args[#args])
end
`)

// testNow is the context key of that instant.
type testNow struct{}

func passNow(ctx context.Context) string {
	now, _ := ctx.Value(testNow{}).(limit.Micros)
	return strconv.FormatInt(int64(now), 10)
}
