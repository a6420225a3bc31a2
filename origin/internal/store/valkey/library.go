package valkey

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
)

//go:embed library.lua
var body string

// serverClock is the clock of the library: TIME stands still within a call.
const serverClock = `local function clock()
  local t = server.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end
`

// library is the text of a function library with the names of its functions.
type library struct {
	name, check, peek, refund, code string
}

// newLibrary makes a library with a clock, a Lua function of that name. Library and function are named by the hash of
// their text, so that two versions of Weir live beside each other in one server: no two libraries may register one
// function name.
func newLibrary(prefix, clock string) library {
	sum := sha256.Sum256([]byte(clock + body))
	l := library{name: prefix + hex.EncodeToString(sum[:4])}
	l.check, l.peek, l.refund = l.name+"_check", l.name+"_peek", l.name+"_refund"
	l.code = "#!lua name=" + l.name + "\n" + clock + body + "server.register_function('" + l.check + "', check)\n"
	return l
}

var production = newLibrary("weir_", serverClock)
