// Package abi calls the proxy-wasm host on the request's hot path without the SDK's per-request dispatch.
//
// Slices that a call returns lie in memory which the next request callback uses again: consume or copy them before the
// callback ends. Nothing here allocates, save results larger than the arena. On wasip1 the calls reach Envoy; on every
// other target they reach the [Host] given to [Connect], for tests.
package abi

// Status is the host's answer to a call.
type Status uint32

// The answers that callers tell apart; every other value is a failure.
const (
	OK          Status = 0
	NotFound    Status = 1
	CASMismatch Status = 8
)

// Action tells the host what to do with the request after the callback.
type Action uint32

// The actions. After [LocalReply] the callback returns Pause.
const (
	Continue Action = 0
	Pause    Action = 1
)

// MetricKind is a kind of metric.
type MetricKind uint32

// The kinds in use.
const (
	Counter MetricKind = 0
	Gauge   MetricKind = 1
)

// Level is the severity of a log line.
type Level uint32

// The levels in use.
const (
	Info     Level = 2
	Error    Level = 4
	Critical Level = 5
)

// onRequestHeaders is the callback of every request's headers; it must not panic.
var onRequestHeaders func() Action

// OnRequestHeaders registers the one callback of the hot path. Call it in init: in a c-shared module main never runs.
func OnRequestHeaders(f func() Action) { onRequestHeaders = f }
