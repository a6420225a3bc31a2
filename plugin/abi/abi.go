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

// HeaderMap is a set of headers that the host holds.
type HeaderMap uint32

// The maps in use.
const (
	ResponseHeaders     HeaderMap = 2
	CallResponseHeaders HeaderMap = 6 // of the answer to a [Call]
)

// Callbacks are what the host calls, save start and configure, which go through the SDK. None of them may panic.
//
// A stream has one id from its request to its answer; ids go up by one, and start over after 2^32.
type Callbacks struct {
	RequestHeaders  func(stream uint32) Action
	ResponseHeaders func(stream uint32)
	// Tick comes each [SetTickPeriod] for each plugin context; root is the context's id.
	Tick func(root uint32)
	// CallResponse is the answer to a [Call]; answered is false where there is none: no connection, or none in time.
	CallResponse func(answered bool, bodySize int)
}

var callbacks Callbacks

// Register takes the callbacks. Call it in init: in a c-shared module main never runs.
func Register(c Callbacks) { callbacks = c }
