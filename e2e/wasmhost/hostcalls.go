package wasmhost

import (
	"strings"
	"time"
)

// status is the result of a proxy-wasm host call.
type status uint32

const (
	ok                  status = 0
	notFound            status = 1
	badArgument         status = 2
	invalidMemoryAccess status = 6
	casMismatch         status = 8
	internalFailure     status = 10
)

// Buffer types of proxy_get_buffer_bytes that hold something here. The bodies of a stream are not modelled: they read
// as empty, as they do in Envoy's callbacks for headers.
const (
	bufferCallBody            = 4
	bufferVMConfiguration     = 6
	bufferPluginConfiguration = 7
	bufferLast                = 8
)

// context is who a host call acts for: the running context, or the one chosen by proxy_set_effective_context.
func (v *vm) context() *wasmContext {
	if p := v.host.pinned; p != nil && v.contexts[p.id] == p {
		return p
	}
	return v.host.current
}

// proxyCalls are the host calls of the ABI that this host models.
var proxyCalls = map[string]func(v *vm, a []uint64) status{
	"proxy_log": func(v *vm, a []uint64) status {
		if a[0] > 6 {
			return badArgument
		}
		text, in := v.read(uint32(a[1]), uint32(a[2]))
		if !in {
			return invalidMemoryAccess
		}
		v.host.log(int(a[0]), text)
		return ok
	},
	"proxy_get_current_time_nanoseconds": func(v *vm, a []uint64) status {
		return v.writeUint64(uint32(a[0]), uint64(v.host.clock.Wall().UnixNano()))
	},
	"proxy_set_tick_period_milliseconds": func(v *vm, a []uint64) status {
		root := v.context().root
		if root == nil {
			return badArgument
		}
		root.period = time.Duration(uint32(a[0])) * time.Millisecond
		root.due = v.host.clock.mono + root.period
		return ok
	},
	"proxy_set_effective_context": func(v *vm, a []uint64) status {
		c := v.contexts[uint32(a[0])]
		if c == nil {
			return badArgument
		}
		v.host.pinned = c
		return ok
	},
	"proxy_done": func(v *vm, _ []uint64) status {
		c := v.context()
		if c.plugin == nil || v.pending[c.plugin.key] != c {
			return notFound
		}
		delete(v.pending, c.plugin.key)
		v.after = append(v.after, func() { v.remove(c) })
		return ok
	},
	"proxy_http_call":  httpCall,
	"proxy_get_status": getStatus,
	"proxy_continue_stream": func(v *vm, a []uint64) status {
		if a[0] > 1 {
			return badArgument
		}
		if s := v.context().stream; s != nil && a[0] == 0 {
			v.after = append(v.after, s.resume)
		}
		return ok
	},
	"proxy_get_property":             getProperty,
	"proxy_set_property":             setProperty,
	"proxy_send_local_response":      sendLocalResponse,
	"proxy_get_buffer_bytes":         getBufferBytes,
	"proxy_get_shared_data":          getSharedData,
	"proxy_set_shared_data":          setSharedData,
	"proxy_define_metric":            defineMetric,
	"proxy_increment_metric":         func(v *vm, a []uint64) status { return v.metrics.increment(uint32(a[0]), int64(a[1])) },
	"proxy_record_metric":            func(v *vm, a []uint64) status { return v.metrics.record(uint32(a[0]), a[1]) },
	"proxy_get_metric":               getMetric,
	"proxy_get_header_map_value":     getHeader,
	"proxy_get_header_map_pairs":     getHeaderPairs,
	"proxy_get_header_map_size":      getHeaderSize,
	"proxy_set_header_map_pairs":     setHeaderPairs,
	"proxy_add_header_map_value":     changeHeader(true, (*Headers).Add),
	"proxy_replace_header_map_value": changeHeader(true, (*Headers).Set),
	"proxy_remove_header_map_value":  changeHeader(false, func(h *Headers, name, _ string) { h.Remove(name) }),
}

// sendLocalResponse defers the answer until the VM returns, and stops the stream whatever the callback returns. It
// answers "ok" also where no stream is there to answer.
func sendLocalResponse(v *vm, a []uint64) status {
	details, ok1 := v.read(uint32(a[1]), uint32(a[2]))
	body, ok2 := v.read(uint32(a[3]), uint32(a[4]))
	pairs, ok3 := v.read(uint32(a[5]), uint32(a[6]))
	if !ok1 || !ok2 || !ok3 {
		return invalidMemoryAccess
	}
	v.stop = true
	s := v.context().stream
	if s == nil {
		return ok
	}
	r := localReply{
		status: int(uint32(a[0])), details: strings.Join(strings.Fields(details), "_"), body: body,
		headers: decodePairs(pairs), grpc: int32(uint32(a[7])), from: Filter,
	}
	v.after = append(v.after, func() { s.reply(r) })
	return ok
}

func getBufferBytes(v *vm, a []uint64) status {
	if a[0] > bufferLast {
		return badArgument
	}
	content := ""
	switch c := v.context(); {
	case a[0] == bufferVMConfiguration:
		content = v.base.config.VM
	case a[0] == bufferPluginConfiguration && c.config != nil:
		content = c.config.config
	case a[0] == bufferCallBody && c.called() != nil:
		content = c.called().body
	case a[0] == bufferPluginConfiguration, a[0] == bufferCallBody:
		return notFound
	}
	start, length := uint32(a[1]), uint32(a[2])
	if start > start+length { // the same overflow check as Envoy's, in 32 bits
		return badArgument
	}
	if uint64(start)+uint64(length) > uint64(len(content)) {
		length = uint32(max(0, len(content)-int(start)))
	}
	if length == 0 {
		return ok // pointers stay untouched
	}
	return v.copyIn(content[start:start+length], uint32(a[3]), uint32(a[4]))
}

func getSharedData(v *vm, a []uint64) status {
	key, in := v.read(uint32(a[0]), uint32(a[1]))
	if !in {
		return invalidMemoryAccess
	}
	value, cas, found := v.host.shared.Get(key)
	if !found {
		return notFound
	}
	if s := v.copyIn(value, uint32(a[2]), uint32(a[3])); s != ok {
		return s
	}
	return v.writeUint32(uint32(a[4]), cas)
}

func setSharedData(v *vm, a []uint64) status {
	key, ok1 := v.read(uint32(a[0]), uint32(a[1]))
	value, ok2 := v.read(uint32(a[2]), uint32(a[3]))
	if !ok1 || !ok2 {
		return invalidMemoryAccess
	}
	if !v.host.shared.Set(key, value, uint32(a[4])) {
		return casMismatch
	}
	return ok
}

func defineMetric(v *vm, a []uint64) status {
	name, in := v.read(uint32(a[1]), uint32(a[2]))
	if !in {
		return invalidMemoryAccess
	}
	id, s := v.metrics.define(v.host.stats, uint32(a[0]), name)
	if s != ok {
		return s
	}
	return v.writeUint32(uint32(a[3]), id)
}

func getMetric(v *vm, a []uint64) status {
	value, s := v.metrics.get(uint32(a[0]))
	if s != ok {
		return s
	}
	return v.writeUint64(uint32(a[1]), value)
}
