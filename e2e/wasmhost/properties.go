package wasmhost

import (
	"encoding/binary"
	"net/netip"
	"strings"
)

// statePrefix is what Envoy puts before the name of a property that a filter sets; the guard reads the whole.
const statePrefix = "wasm."

// getProperty resolves a path whose parts have a NUL between them. Modelled are the paths a filter for HTTP has a
// use for; all else is "not found", as an unknown path is in Envoy.
func getProperty(v *vm, a []uint64) status {
	path, in := v.read(uint32(a[0]), uint32(a[1]))
	if !in {
		return invalidMemoryAccess
	}
	value, found := v.context().property(strings.Split(strings.TrimSuffix(path, "\x00"), "\x00"))
	if !found {
		return notFound
	}
	return v.copyIn(value, uint32(a[2]), uint32(a[3]))
}

func (c *wasmContext) property(path []string) (string, bool) {
	switch strings.Join(path, ".") {
	case "plugin_name":
		return PluginName, c.plugin != nil
	case "plugin_root_id":
		return RootID, true
	case "plugin_vm_id":
		return VMID, true
	}
	s := c.stream
	if s == nil {
		return "", false
	}
	if value, set := s.request.Properties[strings.Join(path, ".")]; set {
		return value, true
	}
	switch path[0] {
	case "source":
		return s.source(path[1:])
	case "request":
		if len(path) == 2 && path[1] == "protocol" {
			return "HTTP/1.1", true
		}
		if !s.inRequest && !s.logging { // as the map of its headers
			return "", false
		}
		return s.request.property(path[1:])
	case "response":
		return s.responseProperty(path[1:])
	case "xds": // known from the request on, by its route
		return UpstreamCluster, len(path) == 2 && path[1] == "cluster_name"
	}
	value, found := s.state[statePrefix+path[0]]
	return value, found && len(path) == 1
}

func (s *Stream) responseProperty(path []string) (string, bool) {
	if !s.inResponse && !s.logging {
		return "", false
	}
	switch strings.Join(path, ".") {
	case "code":
		return string(binary.LittleEndian.AppendUint64(nil, uint64(s.response.Status))), true
	case "code_details":
		return s.response.Details, s.response.Details != ""
	}
	if len(path) == 2 && path[0] == "headers" {
		return s.response.Headers.Joined(path[1])
	}
	return "", false
}

// source gives the address as "ip:port" and "[ip]:port", as Envoy prints it, and the port as eight bytes.
func (s *Stream) source(path []string) (string, bool) {
	if len(path) != 1 {
		return "", false
	}
	switch path[0] {
	case "address":
		return s.request.From, true
	case "port":
		at, err := netip.ParseAddrPort(s.request.From)
		if err != nil {
			return "", false
		}
		return string(binary.LittleEndian.AppendUint64(nil, uint64(at.Port()))), true
	}
	return "", false
}

func (r *Request) property(path []string) (string, bool) {
	if len(path) == 2 && path[0] == "headers" {
		return r.Headers.Joined(path[1])
	}
	if len(path) != 1 {
		return "", false
	}
	switch path[0] {
	case "path":
		return r.Headers.Get(":path")
	case "url_path":
		value, found := r.Headers.Get(":path")
		value, _, _ = strings.Cut(value, "?")
		return value, found
	case "method":
		return r.Headers.Get(":method")
	case "host":
		return r.Headers.Get(":authority")
	case "scheme":
		return r.Headers.Get(":scheme")
	case "useragent":
		return r.Headers.Get("user-agent")
	}
	return "", false
}

// setProperty writes the stream's filter state, where native filters and the access log read it. Outside a stream
// there is nothing to write to.
func setProperty(v *vm, a []uint64) status {
	name, ok1 := v.read(uint32(a[0]), uint32(a[1]))
	value, ok2 := v.read(uint32(a[2]), uint32(a[3]))
	if !ok1 || !ok2 {
		return invalidMemoryAccess
	}
	s := v.context().stream
	if s == nil {
		return notFound
	}
	s.state[statePrefix+name] = value
	return ok
}
