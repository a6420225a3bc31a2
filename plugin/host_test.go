package main

import (
	"encoding/binary"
	"testing"

	"github.com/weirproject/weir/plugin/abi"
)

// host stands in for Envoy: shared data, metrics and properties by its rules, for one stream at a time.
type host struct {
	t          *testing.T
	properties map[string]string
	shared     map[string]*sharedValue
	cas        uint32
	metrics    []string // names by id
	counts     map[string]uint64
	now        int64
	logs       []string
	reply      *localReply
	calls      int
	headers    map[string]string // of the response, or of the answer to a call
	body       string            // of the answer to a call
	sent       []sentCall
	noCluster  bool // calls go nowhere
	period     uint32
	wall       int64
	broken     bool // every property read panics
	noMetrics  bool
}

type sharedValue struct {
	value []byte
	cas   uint32
}

// sentCall is a request that the filter made.
type sentCall struct {
	cluster string
	headers map[string]string
	timeout uint32
}

type localReply struct {
	status  uint32
	details string
	body    string
	headers map[string]string
	grpc    int32
}

func newHost(t *testing.T) *host {
	h := &host{t: t, properties: map[string]string{}, shared: map[string]*sharedValue{}, cas: 1, counts: map[string]uint64{}, now: 1e9}
	abi.Connect(h)
	return h
}

// request sends one request through f; properties are by dotted path.
func (h *host) request(f *filter, properties map[string]string) (action abi.Action, marked bool, reply *localReply) {
	h.properties, h.reply = map[string]string{}, nil
	for path, value := range properties {
		h.properties[path] = value
	}
	action = f.requestHeaders(1)
	_, marked = h.properties["wasm.weir_verdict"]
	return action, marked, h.reply
}

func (h *host) Property(path []byte) ([]byte, abi.Status) {
	h.calls++
	if h.broken {
		panic("broken host")
	}
	name := make([]byte, len(path))
	for i, c := range path {
		if name[i] = c; c == 0 {
			name[i] = '.'
		}
	}
	value, ok := h.properties[string(name)]
	if !ok {
		return nil, abi.NotFound
	}
	return []byte(value), abi.OK
}

func (h *host) SetProperty(path, value []byte) abi.Status {
	h.calls++
	h.properties["wasm."+string(path)] = string(value)
	return abi.OK
}

func (h *host) SharedData(key []byte) ([]byte, uint32, abi.Status) {
	h.calls++
	v, ok := h.shared[string(key)]
	if !ok {
		return nil, 0, abi.NotFound
	}
	return v.value, v.cas, abi.OK
}

func (h *host) SetSharedData(key, value []byte, cas uint32) abi.Status {
	h.calls++
	v, ok := h.shared[string(key)]
	if ok && cas != 0 && cas != v.cas {
		return abi.CASMismatch
	}
	h.shared[string(key)] = &sharedValue{value: append([]byte(nil), value...), cas: h.cas}
	h.cas++
	return abi.OK
}

func (h *host) LocalReply(status uint32, details, body, pairs []byte, grpcStatus int32) abi.Status {
	h.calls++
	r := &localReply{status: status, details: string(details), body: string(body), grpc: grpcStatus}
	r.headers = readPairs(pairs)
	h.reply = r
	return abi.OK
}

func readPairs(pairs []byte) map[string]string {
	n := int(binary.LittleEndian.Uint32(pairs))
	at, headers := 4+8*n, map[string]string{}
	for i := range n {
		var text [2]string
		for j := range text {
			size := int(binary.LittleEndian.Uint32(pairs[4+8*i+4*j:]))
			text[j] = string(pairs[at : at+size])
			at += size + 1
		}
		headers[text[0]] = text[1]
	}
	return headers
}

func (h *host) DefineMetric(_ abi.MetricKind, name string) (uint32, abi.Status) {
	if h.noMetrics {
		return 0, 10
	}
	for id, known := range h.metrics {
		if known == name {
			return uint32(id), abi.OK
		}
	}
	h.metrics = append(h.metrics, name)
	return uint32(len(h.metrics) - 1), abi.OK
}

func (h *host) Increment(id uint32, by int64) abi.Status {
	h.calls++
	if by <= 0 || int(id) >= len(h.metrics) {
		h.t.Errorf("counter %d incremented by %d", id, by)
		return 2
	}
	h.counts[h.metrics[id]] += uint64(by)
	return abi.OK
}

func (h *host) Record(id uint32, value uint64) abi.Status {
	h.counts[h.metrics[id]] = value
	return abi.OK
}

func (h *host) Monotonic() int64 {
	h.calls++
	return h.now
}

func (h *host) Wall() int64 { return h.wall }

func (h *host) HeaderValue(_ abi.HeaderMap, name []byte) ([]byte, abi.Status) {
	h.calls++
	value, ok := h.headers[string(name)]
	if !ok {
		return nil, abi.NotFound
	}
	return []byte(value), abi.OK
}

func (h *host) CallBody(size int) ([]byte, abi.Status) {
	return []byte(h.body[:min(size, len(h.body))]), abi.OK
}

func (h *host) SetTickPeriod(milliseconds uint32) abi.Status {
	h.period = milliseconds
	return abi.OK
}

func (h *host) Call(cluster string, pairs []byte, timeout uint32) abi.Status {
	if h.noCluster {
		return 2
	}
	h.sent = append(h.sent, sentCall{cluster, readPairs(pairs), timeout})
	return abi.OK
}

func (h *host) Log(_ abi.Level, message string) { h.logs = append(h.logs, message) }
