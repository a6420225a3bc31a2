// Package sdkpatch carries the one file that makes the proxy-wasm SDK build with standard Go.
package sdkpatch

import _ "embed"

// Path is the file of the SDK that [HostCalls] stands in for, relative to the SDK's root. The SDK's own file has mocks
// there, since only TinyGo was meant to reach a real host.
const Path = "proxywasm/internal/abi_hostcalls_mock.go"

// HostCalls is Go source of the SDK's package internal for GOOS=wasip1. It imports the two host calls that start and
// configure need, answers "unimplemented" for all others, and exports the callbacks that are not on the hot path.
// It is text, not Go of this module: it compiles only inside the copy of the SDK that mkwasm lays out.
//
//go:embed hostcalls.go.txt
var HostCalls []byte
