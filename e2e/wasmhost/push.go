package wasmhost

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"
)

// plugin is one configuration of the filter.
type plugin struct {
	key    string
	config string
	vmKey  string
}

// base is the VM that Envoy keeps to clone others from; one per vm_id, vm_config.configuration and code. It is
// initialised and never started.
type base struct {
	key      string
	config   Config
	vm       *vm
	failed   bool            // a start failed on a thread: all later pushes are refused
	canaries map[string]bool // what configuring each plugin said, remembered by the plugin's key
}

// noThread is the thread's number in VMs that serve none: bases and canaries.
const noThread = -1

// thread is Envoy's main thread or a worker.
type thread struct {
	host    *Host
	number  int
	vms     map[string]*vm     // by base
	handles map[string]*handle // by plugin
	active  *handle            // nil: no configuration yet, or its start failed here
	loaded  bool               // a configuration was applied
}

// handle is a plugin in a thread's VM. Streams hold it beyond the push that replaces it.
type handle struct {
	thread *thread
	vm     *vm
	root   *wasmContext
	plugin *plugin
	base   *base
	load   time.Duration // when it was last loaded, for FAIL_RELOAD
	users  int           // the thread, if active, and streams in flight
}

// Push applies a configuration as an ECDS update does. It is tried on a canary first; an error (always [ErrPush])
// means that Envoy refuses it and goes on with what it had. Then the main thread and the workers load it. A thread
// whose start fails after the canary passed has no filter at all from then on, and nothing says so but the log:
// [Host.Bypassed] counts such workers, and all later pushes are refused until [Config.VM] changes.
func (h *Host) Push(c Config) error {
	key := fingerprint(VMID, c.VM)
	b := h.bases[key]
	if b == nil {
		b = &base{key: key, config: c, canaries: map[string]bool{}}
		if b.vm = h.newVM(b, noThread); b.vm.isFailed() {
			return fmt.Errorf("%w: failed to initialize Wasm code", ErrPush)
		}
		h.bases[key] = b
	}
	p := &plugin{key: fingerprint(RootID, string(c.Plugin), key), config: string(c.Plugin), vmKey: key}
	if err := h.canary(b, p); err != nil {
		return err
	}
	if b.failed {
		return fmt.Errorf("%w: the base VM has failed on a thread; a new vm_config.configuration is needed", ErrPush)
	}
	for _, t := range h.threads {
		t.apply(b, p)
	}
	return nil
}

func fingerprint(parts ...string) string {
	sum := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(sum, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// canary starts and configures p in a VM of its own, which is dropped without proxy_on_done. Only the outcome of
// configuring is remembered, so that a plugin whose start failed is tried again.
func (h *Host) canary(b *base, p *plugin) error {
	if passed, known := b.canaries[p.key]; known {
		if !passed {
			return fmt.Errorf("%w: this configuration was refused before", ErrPush)
		}
		return nil
	}
	v := h.newVM(b, noThread)
	defer v.close()
	if v.isFailed() {
		return fmt.Errorf("%w: failed to initialize Wasm code", ErrPush)
	}
	root, started := v.start(p)
	if !started || v.isFailed() {
		return fmt.Errorf("%w: failed to start base Wasm", ErrPush)
	}
	if !v.configure(root, p) || v.isFailed() {
		b.canaries[p.key] = false
		return fmt.Errorf("%w: failed to configure base Wasm plugin", ErrPush)
	}
	b.canaries[p.key] = true
	return nil
}

func (t *thread) apply(b *base, p *plugin) {
	old := t.active
	t.loaded = true
	t.active = t.load(b, p)
	if t.active != nil && t.active != old {
		t.active.users++
	}
	if old != nil && old != t.active {
		old.release()
	}
}

// load finds or makes the plugin's handle in this thread; nil when its start failed.
func (t *thread) load(b *base, p *plugin) *handle {
	if old := t.handles[p.key]; old != nil && !old.vm.isFailed() {
		return old
	}
	v := t.vms[b.key]
	if v == nil || v.isFailed() {
		if v = t.host.newVM(b, t.number); v.isFailed() {
			b.failed = true
			t.host.log(4, "Wasm VM failed Failed to initialize Wasm code")
			return nil
		}
		t.vms[b.key] = v
	}
	root, started := v.start(p)
	if !started {
		b.failed = true
		t.host.log(4, "Wasm VM failed Failed to start thread-local Wasm")
		t.drop(v)
		return nil
	}
	if !v.configure(root, p) {
		b.failed = true
		t.host.log(4, "Wasm VM failed Failed to configure thread-local Wasm plugin")
		t.drop(v)
		return nil
	}
	made := &handle{thread: t, vm: v, root: root, plugin: p, base: b, load: t.host.clock.mono}
	t.handles[p.key] = made
	return made
}

// drop forgets a VM that no plugin of this thread runs in.
func (t *thread) drop(v *vm) {
	for _, h := range t.handles {
		if h.vm == v {
			return
		}
	}
	if t.vms[v.base.key] == v {
		delete(t.vms, v.base.key)
	}
	v.close()
}

func (h *handle) release() {
	if h.users--; h.users > 0 {
		return
	}
	if h.thread.handles[h.plugin.key] == h {
		delete(h.thread.handles, h.plugin.key)
	}
	h.vm.retire(h.plugin.key)
	h.thread.drop(h.vm)
}

// usable returns the handle that a new stream runs on, loading the plugin again where its VM trapped and the base
// interval since the last load is over. A handle with a failed VM answers 503; a nil handle is no filter at all.
func (t *thread) usable() *handle {
	h := t.active
	if h == nil || !h.vm.isFailed() || t.host.clock.mono-h.load < t.host.opts.Reload {
		return h
	}
	h.load = t.host.clock.mono
	fresh := t.load(h.base, h.plugin)
	if fresh == nil || fresh.vm.isFailed() {
		return h
	}
	fresh.users++
	t.active = fresh
	h.release()
	return fresh
}

// Bypassed counts the workers that run without the filter although a configuration was applied.
func (h *Host) Bypassed() int {
	n := 0
	for _, t := range h.threads[1:] {
		if t.loaded && t.active == nil {
			n++
		}
	}
	return n
}

// Contexts counts the living contexts of all threads' VMs, the VMs' own ones left out: what leaks when a module
// forgets its plugin contexts shows here only on Envoy's side.
func (h *Host) Contexts() int {
	n := 0
	for _, t := range h.threads {
		for _, v := range t.vms {
			n += len(v.contexts) - 1
		}
	}
	return n
}

// Memories are the sizes in bytes of the linear memories of the threads' VMs, the main thread's first, each thread's in
// the order its VMs were made in.
func (h *Host) Memories() []uint32 {
	var all []uint32
	for _, t := range h.threads {
		vms := slices.SortedFunc(maps.Values(t.vms), func(a, b *vm) int { return a.number - b.number })
		for _, v := range vms {
			all = append(all, v.mod.Memory().Size())
		}
	}
	return all
}

// MemoryBytes is the largest of [Host.Memories].
func (h *Host) MemoryBytes() uint32 { return slices.Max(h.Memories()) }
