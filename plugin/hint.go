package main

import (
	"unsafe"

	"github.com/weirproject/weir/edge"
	"github.com/weirproject/weir/plugin/abi"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

var (
	hintHeader  = []byte(edge.HintHeader)
	clusterPath = []byte("xds\x00cluster_name")
	methodPath  = []byte("request\x00method")
	pathPath    = []byte("request\x00path")
	hostPath    = []byte("request\x00host")
)

// originCluster is where hints are believed from. Another upstream, or our own local reply, has no say in it.
const originCluster = "weir_origin"

// callersKept is how many of the latest streams are remembered until they are answered. A stream that 4,096 later ones of
// its worker overtake is forgotten: its hint is not taken, which costs the origin one more call.
const callersKept = 1 << 12

// callers are who the latest streams came from, since Envoy shows no request any more when the answer comes. It is a ring by
// stream id, without pointers and of one size.
type callers [callersKept]struct {
	stream uint32
	from   edge.Caller
}

func (c *callers) keep(stream uint32, from edge.Caller) {
	place := &c[stream%callersKept]
	place.stream, place.from = stream, from
}

func (c *callers) of(stream uint32) (from *edge.Caller, ok bool) {
	place := &c[stream%callersKept]
	return &place.from, place.stream == stream
}

// responseHeaders looks for a hint of the origin's. The client never sees it: the bootstrap removes x-weir-* behind us.
func (f *filter) responseHeaders(stream uint32) {
	defer func() {
		if recover() != nil {
			f.metrics.recovered()
		}
	}()
	value, status := abi.HeaderValue(abi.ResponseHeaders, hintHeader)
	if status != abi.OK || f.engine == nil {
		return
	}
	if cluster, _ := abi.Property(clusterPath); string(cluster) != originCluster {
		return
	}
	from, ok := f.callers.of(stream)
	if ok && f.engine.Hint(value, from, now()) {
		f.metrics.hints.one()
	}
}

// now is the monotonic clock that all VMs of an Envoy share.
func now() limit.Micros { return limit.Micros(abi.Monotonic() / 1000) }

// route reads what the origin's rules match by. The texts lie in memory that the next callback uses again.
func (f *filter) route() rule.Request {
	return rule.Request{Method: property(methodPath), Path: property(pathPath), Host: property(hostPath), HasHeader: hasHeader}
}

func property(path []byte) string {
	value, _ := abi.Property(path)
	return unsafe.String(unsafe.SliceData(value), len(value))
}

// hasHeader tells whether the request has a header of this name, in lower case.
func hasHeader(name string) bool {
	_, status := abi.Property([]byte(headersPath + name))
	return status == abi.OK
}
