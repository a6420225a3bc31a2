//go:build wasip1

package abi

import "unsafe"

//go:wasmimport env proxy_log
//go:noescape
func hostLog(level uint32, message *byte, size uint32) uint32

//go:wasmimport env proxy_get_property
//go:noescape
func hostGetProperty(path *byte, pathSize uint32, value, valueSize *uint32) uint32

//go:wasmimport env proxy_set_property
//go:noescape
func hostSetProperty(path *byte, pathSize uint32, value *byte, valueSize uint32) uint32

//go:wasmimport env proxy_send_local_response
//go:noescape
func hostSendLocalResponse(status uint32, details *byte, detailsSize uint32, body *byte, bodySize uint32, pairs *byte, pairsSize uint32, grpcStatus int32) uint32

//go:wasmimport env proxy_get_shared_data
//go:noescape
func hostGetSharedData(key *byte, keySize uint32, value, valueSize, cas *uint32) uint32

//go:wasmimport env proxy_set_shared_data
//go:noescape
func hostSetSharedData(key *byte, keySize uint32, value *byte, valueSize, cas uint32) uint32

//go:wasmimport env proxy_define_metric
//go:noescape
func hostDefineMetric(kind uint32, name *byte, nameSize uint32, id *uint32) uint32

//go:wasmimport env proxy_increment_metric
func hostIncrementMetric(id uint32, offset int64) uint32

//go:wasmimport env proxy_record_metric
func hostRecordMetric(id uint32, value uint64) uint32

//go:wasmimport env proxy_get_header_map_value
//go:noescape
func hostGetHeaderMapValue(kind uint32, name *byte, nameSize uint32, value, valueSize *uint32) uint32

//go:wasmimport env proxy_get_buffer_bytes
//go:noescape
func hostGetBufferBytes(kind, start, maxSize uint32, data, size *uint32) uint32

//go:wasmimport env proxy_set_tick_period_milliseconds
func hostSetTickPeriod(milliseconds uint32) uint32

//go:wasmimport env proxy_http_call
//go:noescape
func hostHTTPCall(cluster *byte, clusterSize uint32, headers *byte, headersSize uint32, body *byte, bodySize uint32, trailers *byte, trailersSize, timeout uint32, id *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 clock_time_get
//go:noescape
func hostClock(id uint32, precision uint64, time *uint64) uint32

// Results land in package memory, never on a stack: the host answers with a call back into this module for memory,
// and that call may move the caller's stack before the host writes.
var result struct {
	at, size, cas, id uint32
	time              uint64
}

func taken(status uint32) ([]byte, Status) {
	if Status(status) != OK || result.at == 0 {
		return nil, Status(status)
	}
	// The address is one that exportMemoryAllocate gave out, so a Go object still stands behind it.
	address := uintptr(result.at)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&address)), int(result.size)), OK
}

// Property reads a property of the stream; path elements are separated by NUL.
func Property(path []byte) ([]byte, Status) {
	result.at, result.size = 0, 0
	return taken(hostGetProperty(unsafe.SliceData(path), uint32(len(path)), &result.at, &result.size))
}

// SetProperty sets a filter-state property of the stream; Envoy prefixes its name with "wasm.".
func SetProperty(path, value []byte) Status {
	return Status(hostSetProperty(unsafe.SliceData(path), uint32(len(path)), unsafe.SliceData(value), uint32(len(value))))
}

// SharedData reads a value that all VMs of one vm_id share, with its compare-and-set number.
func SharedData(key []byte) (value []byte, cas uint32, status Status) {
	result.at, result.size, result.cas = 0, 0, 0
	value, status = taken(hostGetSharedData(unsafe.SliceData(key), uint32(len(key)), &result.at, &result.size, &result.cas))
	return value, result.cas, status
}

// SetSharedData writes a shared value if its compare-and-set number is still cas. Envoy overwrites for 0 and accepts
// any other number for a missing key.
func SetSharedData(key, value []byte, cas uint32) Status {
	return Status(hostSetSharedData(unsafe.SliceData(key), uint32(len(key)), unsafe.SliceData(value), uint32(len(value)), cas))
}

// LocalReply answers the request here; pairs comes from [Pairs.Bytes]. Envoy uses grpcStatus only for requests whose
// content type is gRPC; -1 leaves the mapping from the HTTP status to Envoy.
func LocalReply(status uint32, details, body, pairs []byte, grpcStatus int32) Status {
	return Status(hostSendLocalResponse(status, unsafe.SliceData(details), uint32(len(details)),
		unsafe.SliceData(body), uint32(len(body)), unsafe.SliceData(pairs), uint32(len(pairs)), grpcStatus))
}

// DefineMetric makes a metric known, or finds it by name, for use by its id.
func DefineMetric(kind MetricKind, name string) (id uint32, status Status) {
	status = Status(hostDefineMetric(uint32(kind), unsafe.StringData(name), uint32(len(name)), &result.id))
	return result.id, status
}

// Increment adds to a counter. Envoy's counters must not be incremented by 0.
func Increment(id uint32, by int64) Status { return Status(hostIncrementMetric(id, by)) }

// Record sets a gauge.
func Record(id uint32, value uint64) Status { return Status(hostRecordMetric(id, value)) }

// Monotonic is the host's monotonic clock in nanoseconds; all VMs of one Envoy share its base.
func Monotonic() int64 {
	const monotonic = 1
	hostClock(monotonic, 1, &result.time)
	return int64(result.time)
}

// Wall is the host's wall clock in nanoseconds since the Unix epoch.
func Wall() int64 {
	const realtime = 0
	hostClock(realtime, 1, &result.time)
	return int64(result.time)
}

// HeaderValue is the first value of a header, its name in lower case.
func HeaderValue(kind HeaderMap, name []byte) ([]byte, Status) {
	result.at, result.size = 0, 0
	return taken(hostGetHeaderMapValue(uint32(kind), unsafe.SliceData(name), uint32(len(name)), &result.at, &result.size))
}

// CallBody is up to size bytes of the body that answers a [Call], in its callback.
func CallBody(size int) ([]byte, Status) {
	const callResponseBody = 4
	result.at, result.size = 0, 0
	return taken(hostGetBufferBytes(callResponseBody, 0, uint32(size), &result.at, &result.size))
}

// SetTickPeriod makes the host tick the plugin context of the running callback.
func SetTickPeriod(milliseconds uint32) Status { return Status(hostSetTickPeriod(milliseconds)) }

// Call sends a request without a body to a cluster of Envoy's; pairs comes from [Pairs.Bytes]. Its answer comes to
// Callbacks.CallResponse. A cluster that Envoy does not have is a failure here.
func Call(cluster string, pairs []byte, timeoutMilliseconds uint32) Status {
	return Status(hostHTTPCall(unsafe.StringData(cluster), uint32(len(cluster)), unsafe.SliceData(pairs), uint32(len(pairs)),
		nil, 0, unsafe.SliceData(noPairs[:]), uint32(len(noPairs)), timeoutMilliseconds, &result.id))
}

// noPairs are no trailers: a count of 0.
var noPairs [4]byte

// Log writes one line to Envoy's log.
func Log(level Level, message string) {
	hostLog(uint32(level), unsafe.StringData(message), uint32(len(message)))
}

//go:wasmexport proxy_on_request_headers
func exportRequestHeaders(stream, _ uint32, _ bool) uint32 {
	memory.reset()
	return uint32(callbacks.RequestHeaders(stream))
}

//go:wasmexport proxy_on_response_headers
func exportResponseHeaders(stream, _ uint32, _ bool) uint32 {
	memory.reset()
	callbacks.ResponseHeaders(stream)
	return uint32(Continue)
}

//go:wasmexport proxy_on_tick
func exportTick(root uint32) {
	memory.reset()
	callbacks.Tick(root)
}

//go:wasmexport proxy_on_http_call_response
func exportCallResponse(_, _, headers, bodySize, _ uint32) {
	memory.reset()
	callbacks.CallResponse(headers > 0, int(bodySize))
}

//go:wasmexport proxy_on_memory_allocate
func exportMemoryAllocate(size uint32) *byte {
	return memory.allocate(size)
}
