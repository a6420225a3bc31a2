package wasmhost

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// vm is one instance of the module.
type vm struct {
	host     *Host
	base     *base
	number   int
	thread   int    // noThread: a base or a canary
	token    uint32 // of the last call-out
	mod      api.Module
	fn       map[string]api.Function
	alloc    string
	failed   bool
	starting bool // inside _initialize, where Envoy restricts the host calls
	contexts map[uint32]*wasmContext
	roots    map[string]*wasmContext // by plugin key
	pending  map[string]*wasmContext // roots that answered false to proxy_on_done
	nextID   uint32
	metrics  metricIDs
	after    []func() // what Envoy defers until the VM has returned
	stop     bool     // a local response was sent: whatever the callback returns, iteration stops
}

// wasmContext is a context in the sense of the ABI: the VM's own (id 0), a root, or a stream.
type wasmContext struct {
	vm      *vm
	id      uint32
	root    *wasmContext
	plugin  *plugin
	config  *plugin // readable configuration: only inside context_create of a start and proxy_on_configure
	stream  *Stream
	created bool
	period  time.Duration
	due     time.Duration

	answer     *callAnswer // readable only inside proxy_on_http_call_response
	status     uint32      // of the last call-out that was reset
	statusText string
}

// newVM instantiates the module and calls _initialize, and main where a module has it.
func (h *Host) newVM(b *base, thread int) *vm {
	h.created++
	v := &vm{
		host: h, base: b, number: h.created, thread: thread, fn: map[string]api.Function{}, nextID: 1, metrics: newMetricIDs(),
		contexts: map[uint32]*wasmContext{}, roots: map[string]*wasmContext{}, pending: map[string]*wasmContext{},
		alloc: "proxy_on_memory_allocate",
	}
	if h.exports["malloc"] {
		v.alloc = "malloc"
	}
	own := &wasmContext{vm: v}
	v.contexts[0] = own
	v.starting = true
	defer func() { v.starting = false }()
	outer := h.current
	h.current = own
	defer func() { h.current = outer }()
	mod, err := h.runtime.InstantiateModule(context.Background(), h.module,
		wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		v.fail("instantiate: " + err.Error())
		return v
	}
	v.mod = mod
	if v.call(own, "_initialize"); h.exports["_initialize"] && h.exports["main"] {
		v.call(own, "main", 0, 0)
	} else if !h.exports["_initialize"] {
		v.call(own, "_start")
	}
	return v
}

// isFailed tells whether a trap ended this VM.
func (v *vm) isFailed() bool { return v.failed }

func (v *vm) fail(why string) {
	v.failed = true
	v.host.log(4, "Wasm VM failed "+firstLines(why, 3))
}

func firstLines(s string, n int) string {
	lines := strings.SplitN(s, "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], " | ")
}

func (v *vm) close() {
	v.host.forget(func(root *wasmContext) bool { return root.vm == v })
	if v.mod != nil {
		_ = v.mod.Close(context.Background()) // only a second close could fail
	}
}

// call runs an export with c as the current context, then what the call deferred. It returns 0 and false when the
// module has no such export or the VM has failed; a trap fails the VM.
func (v *vm) call(c *wasmContext, name string, args ...uint64) (uint64, bool) {
	if v.failed || !v.host.exports[name] {
		return 0, false
	}
	h := v.host
	outer := h.current
	h.current = c
	if c.stream != nil {
		c.stream.callbacks[name]++
	}
	results, err := v.function(name).Call(context.Background(), args...)
	h.current = outer
	if outer == nil {
		h.pinned = nil
	}
	if err != nil {
		v.fail(name + ": " + err.Error())
	}
	v.stop = false
	after := v.after
	v.after = nil
	for _, f := range after {
		f()
	}
	if err != nil {
		return 0, false
	}
	if len(results) == 0 {
		return 0, true
	}
	return results[0] & 0xffffffff, true
}

func (v *vm) function(name string) api.Function {
	f := v.fn[name]
	if f == nil {
		f = v.mod.ExportedFunction(name)
		v.fn[name] = f
	}
	return f
}

// copyIn puts s into the VM's memory and its address and size at the two pointers. Nothing is allocated for an
// empty value, whose address is then 0.
func (v *vm) copyIn(s string, ptrPtr, sizePtr uint32) status {
	ptr := uint32(0)
	if len(s) > 0 {
		if c := v.host.current; c != nil && c.stream != nil {
			c.stream.callbacks[v.alloc]++
		}
		results, err := v.function(v.alloc).Call(context.Background(), uint64(len(s)))
		if err != nil {
			panic(fmt.Errorf("%s(%d): %w", v.alloc, len(s), err))
		}
		ptr = uint32(results[0])
		if ptr == 0 || !v.mod.Memory().WriteString(ptr, s) {
			return invalidMemoryAccess
		}
	}
	if !v.mod.Memory().WriteUint32Le(ptrPtr, ptr) || !v.mod.Memory().WriteUint32Le(sizePtr, uint32(len(s))) {
		return invalidMemoryAccess
	}
	return ok
}

// read copies a piece of the VM's memory.
func (v *vm) read(ptr, size uint32) (string, bool) {
	b, ok := v.mod.Memory().Read(ptr, size)
	return string(b), ok
}

func (v *vm) writeUint32(ptr, value uint32) status {
	if !v.mod.Memory().WriteUint32Le(ptr, value) {
		return invalidMemoryAccess
	}
	return ok
}

func (v *vm) writeUint64(ptr uint32, value uint64) status {
	if !v.mod.Memory().Write(ptr, binary.LittleEndian.AppendUint64(nil, value)) {
		return invalidMemoryAccess
	}
	return ok
}

// newContext takes the next free id; ids of streams and later roots come from one counter.
func (v *vm) newContext(root *wasmContext, p *plugin) *wasmContext {
	c := &wasmContext{vm: v, id: v.nextID, plugin: p, root: root}
	if root == nil {
		c.root = c
	}
	v.nextID++
	v.contexts[c.id] = c
	return c
}

// start makes the root context of p, or starts p again in its living root.
func (v *vm) start(p *plugin) (*wasmContext, bool) {
	c := v.roots[p.key]
	if c == nil {
		c = v.newContext(nil, p)
		v.roots[p.key] = c
	}
	c.config = p
	if !c.created {
		v.call(c, "proxy_on_context_create", uint64(c.id), 0)
		c.created = true
	}
	// The configuration of the plugin is not readable in proxy_on_vm_start, only that of the VM.
	c.config = nil
	if !v.host.exports["proxy_on_vm_start"] {
		return c, true
	}
	started, _ := v.call(c, "proxy_on_vm_start", uint64(c.id), uint64(len(v.base.config.VM)))
	return c, started != 0
}

func (v *vm) configure(c *wasmContext, p *plugin) bool {
	if !v.host.exports["proxy_on_configure"] {
		return true
	}
	c.config = p
	defer func() { c.config = nil }()
	configured, _ := v.call(c, "proxy_on_configure", uint64(c.id), uint64(len(p.config)))
	return configured != 0
}

// retire ends the root of a plugin that no configuration and no stream uses any more.
func (v *vm) retire(key string) {
	c := v.roots[key]
	if c == nil {
		return
	}
	delete(v.roots, key)
	if done, called := v.call(c, "proxy_on_done", uint64(c.id)); called && done == 0 {
		v.pending[key] = c
		return
	}
	v.remove(c)
}

func (v *vm) remove(c *wasmContext) {
	v.call(c, "proxy_on_delete", uint64(c.id))
	delete(v.contexts, c.id)
	if c.root == c {
		v.host.forget(func(root *wasmContext) bool { return root == c })
	}
}
