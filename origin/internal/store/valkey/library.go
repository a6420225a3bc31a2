package valkey

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
)

//go:embed library.lua
var body string

// Clocks of a library: the server's own, and for tests one that the caller passes as the last argument.
const (
	serverClock = `local function clock()
  local t = server.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end
`
	argumentClock = `local function clock(args)
  return tonumber(args[#args])
end
`
)

// library is the text of a function library with the name of its one function.
type library struct {
	name, function, code string
}

// newLibrary names a library and its function by the hash of their text, so that two versions of Weir live beside each
// other in one server: no two libraries may register one function name.
func newLibrary(prefix, clock string) library {
	sum := sha256.Sum256([]byte(clock + body))
	l := library{name: prefix + hex.EncodeToString(sum[:4])}
	l.function = l.name + "_check"
	l.code = "#!lua name=" + l.name + "\n" + clock + body + "server.register_function('" + l.function + "', check)\n"
	return l
}

var (
	production = newLibrary("weir_", serverClock)
	// withClock is for tests alone: it decides at the instant that its caller names.
	withClock = newLibrary("weirtest_", argumentClock)
)
