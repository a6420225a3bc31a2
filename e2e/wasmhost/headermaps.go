package wasmhost

// Header map types of the ABI. Those of requests' and responses' trailers and of gRPC calls are not modelled.
const (
	requestHeaders  = 0
	responseHeaders = 2
	callHeaders     = 6
	callTrailers    = 7
	lastHeaderMap   = 8
)

// headerMap is the map that a host call may read or change, nil where there is none. Envoy takes the request's map
// away once the request callback has answered "continue", so that a response callback can no longer read it, nor the
// request's properties; the response to the module's own local reply still can. In proxy_on_log all maps that are gone
// are back, read-only, and those that never were as empty ones. What a call-out brought is read-only too.
func (v *vm) headerMap(kind uint64, change bool) *Headers {
	c := v.context()
	if answer := c.called(); answer != nil && !change {
		switch kind {
		case callHeaders:
			return &answer.headers
		case callTrailers:
			return answer.trailers
		}
	}
	s := c.stream
	if s == nil {
		return nil
	}
	readable := s.logging && !change
	switch {
	case kind == requestHeaders && (s.inRequest || readable):
		return &s.request.Headers
	case kind == responseHeaders && (s.inResponse || readable):
		return &s.response.Headers
	case readable:
		return &Headers{}
	}
	return nil
}

// getHeader returns the first of several lines of one name.
func getHeader(v *vm, a []uint64) status {
	if a[0] > lastHeaderMap {
		return badArgument
	}
	name, in := v.read(uint32(a[1]), uint32(a[2]))
	if !in {
		return invalidMemoryAccess
	}
	h := v.headerMap(a[0], false)
	if h == nil {
		return badArgument
	}
	value, found := h.Get(name)
	if !found {
		return notFound
	}
	return v.copyIn(value, uint32(a[3]), uint32(a[4]))
}

// getHeaderPairs lists every line, the duplicates too; a map that is not there is an empty one.
func getHeaderPairs(v *vm, a []uint64) status {
	if a[0] > lastHeaderMap {
		return badArgument
	}
	h := v.headerMap(a[0], false)
	if h == nil || len(*h) == 0 {
		return v.copyIn("", uint32(a[1]), uint32(a[2]))
	}
	return v.copyIn(encodePairs(*h), uint32(a[1]), uint32(a[2]))
}

func getHeaderSize(v *vm, a []uint64) status {
	h := v.headerMap(a[0], true)
	if h == nil {
		return badArgument
	}
	return v.writeUint32(uint32(a[1]), uint32(h.size()))
}

func setHeaderPairs(v *vm, a []uint64) status {
	pairs, in := v.read(uint32(a[1]), uint32(a[2]))
	if !in {
		return invalidMemoryAccess
	}
	h := v.headerMap(a[0], true)
	if h == nil {
		return badArgument
	}
	*h = decodePairs(pairs)
	return ok
}

// changeHeader makes a host call of a change; removing has no value among its arguments.
func changeHeader(valued bool, change func(h *Headers, name, value string)) func(v *vm, a []uint64) status {
	return func(v *vm, a []uint64) status {
		if a[0] > lastHeaderMap {
			return badArgument
		}
		name, in := v.read(uint32(a[1]), uint32(a[2]))
		value := ""
		if in && valued {
			value, in = v.read(uint32(a[3]), uint32(a[4]))
		}
		if !in {
			return invalidMemoryAccess
		}
		h := v.headerMap(a[0], true)
		if h == nil {
			return badArgument
		}
		change(h, name, value)
		return ok
	}
}
