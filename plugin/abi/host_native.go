//go:build !wasip1

package abi

// Host is what a test puts in the host's place; its methods mean what the functions of the same name do.
type Host interface {
	Property(path []byte) ([]byte, Status)
	SetProperty(path, value []byte) Status
	SharedData(key []byte) (value []byte, cas uint32, status Status)
	SetSharedData(key, value []byte, cas uint32) Status
	LocalReply(status uint32, details, body, pairs []byte, grpcStatus int32) Status
	DefineMetric(kind MetricKind, name string) (id uint32, status Status)
	Increment(id uint32, by int64) Status
	Record(id uint32, value uint64) Status
	Monotonic() int64
	Wall() int64
	HeaderValue(kind HeaderMap, name []byte) ([]byte, Status)
	CallBody(size int) ([]byte, Status)
	SetTickPeriod(milliseconds uint32) Status
	Call(cluster string, pairs []byte, timeoutMilliseconds uint32) Status
	Log(level Level, message string)
}

var host Host

// Connect puts h in the host's place. It exists for tests, on targets other than wasip1.
func Connect(h Host) { host = h }

// Registered are the callbacks as the host would call them.
func Registered() Callbacks { return callbacks }

// Property reads a property of the stream; path elements are separated by NUL.
func Property(path []byte) ([]byte, Status) { return host.Property(path) }

// SetProperty sets a filter-state property of the stream.
func SetProperty(path, value []byte) Status { return host.SetProperty(path, value) }

// SharedData reads a shared value with its compare-and-set number.
func SharedData(key []byte) (value []byte, cas uint32, status Status) { return host.SharedData(key) }

// SetSharedData writes a shared value under the host's compare-and-set rules.
func SetSharedData(key, value []byte, cas uint32) Status { return host.SetSharedData(key, value, cas) }

// LocalReply answers the request here.
func LocalReply(status uint32, details, body, pairs []byte, grpcStatus int32) Status {
	return host.LocalReply(status, details, body, pairs, grpcStatus)
}

// DefineMetric makes a metric known by its id.
func DefineMetric(kind MetricKind, name string) (id uint32, status Status) {
	return host.DefineMetric(kind, name)
}

// Increment adds to a counter.
func Increment(id uint32, by int64) Status { return host.Increment(id, by) }

// Record sets a gauge.
func Record(id uint32, value uint64) Status { return host.Record(id, value) }

// Monotonic is the host's monotonic clock in nanoseconds.
func Monotonic() int64 { return host.Monotonic() }

// Wall is the host's wall clock in nanoseconds since the Unix epoch.
func Wall() int64 { return host.Wall() }

// HeaderValue is the first value of a header.
func HeaderValue(kind HeaderMap, name []byte) ([]byte, Status) { return host.HeaderValue(kind, name) }

// CallBody is up to size bytes of the body that answers a call.
func CallBody(size int) ([]byte, Status) { return host.CallBody(size) }

// SetTickPeriod makes the host tick.
func SetTickPeriod(milliseconds uint32) Status { return host.SetTickPeriod(milliseconds) }

// Call sends a request to a cluster.
func Call(cluster string, pairs []byte, timeoutMilliseconds uint32) Status {
	return host.Call(cluster, pairs, timeoutMilliseconds)
}

// Log writes one line to the host's log.
func Log(level Level, message string) { host.Log(level, message) }
