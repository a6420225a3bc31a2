// Package wasmhost runs a proxy-wasm filter by the rules of Envoy 1.40 on a clock that tests move.
//
// It exists because the SDK's own test host has one VM, never calls _initialize and keeps shared data by other
// rules than Envoy. Each rule here is a fact about Envoy 1.40.0 with V8; where a rule would surprise, its comment
// says what Envoy does and why it matters to a rate limiter.
//
// A host belongs to one goroutine.
package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
)

// DefaultReload is Envoy's default base interval between two loads of a plugin whose VM trapped. Envoy adds up to
// half of it at random; this host adds nothing, so that a test can name the instant.
const DefaultReload = time.Second

// Options describe one Envoy. The zero value is one worker, a clock at [Epoch] and an upstream that answers 200.
type Options struct {
	// Workers is the number of worker threads, 1 if zero. The main thread's VM comes on top, as in Envoy.
	Workers int
	// Clock is the clock that the VMs read, [NewClock] if nil.
	Clock *Clock
	// Shared is the process-wide shared data, empty if nil. Two hosts with one Shared model a second VM generation.
	Shared *SharedData
	// Seed makes what random_get returns repeatable. The zero seed is a seed like any other.
	Seed uint64
	// Reload is the base interval of failure policy FAIL_RELOAD, [DefaultReload] if zero.
	Reload time.Duration
	// Upstream answers what passes filter and guard; nil answers 200 with an empty body.
	Upstream func(Request) Answer
	// Clusters are whom the module can call out to, by name; Envoy refuses a call to any other.
	Clusters map[string]Cluster
	// Guard switches on the native filter behind the module that lets a request on only with the filter state
	// wasm.weir_verdict = "1".
	Guard bool
}

// Config is what one push brings: the Wasm filter's own configuration.
type Config struct {
	// Plugin is the plugin configuration (Weir's bundle).
	Plugin []byte
	// VM is vm_config.configuration. Another value makes new VMs; shared data stays, since vm_id does.
	VM string
	// Env is vm_config.environment_variables as "NAME=value".
	Env []string
}

// Names that the filter's configuration carries in Envoy.
const (
	PluginName = "weir"
	RootID     = "weir"
	VMID       = "weir"
)

// ErrPush is the kind of error that [Host.Push] returns for a configuration that Envoy would NACK.
var ErrPush = errors.New("unable to create Wasm plugin " + PluginName)

// Host is one Envoy process with its threads. Make it with [New], end it with [Host.Close].
type Host struct {
	opts     Options
	clock    *Clock
	shared   *SharedData
	runtime  wazero.Runtime
	module   wazero.CompiledModule
	exports  map[string]bool
	random   *source
	bases    map[string]*base
	threads  []*thread // 0 is the main thread
	stats    stats
	logs     []LogLine
	reached  int
	current  *wasmContext
	pinned   *wasmContext // effective context, nil = the current one
	created  int          // VMs instantiated so far
	inFlight map[*Stream]struct{}
	calls    []Call
	callOuts []*callOut // under way, oldest first
}

// cache is shared by all hosts of a process: compiling the filter takes seconds, using it again milliseconds.
var cache = wazero.NewCompilationCache()

// New compiles module and checks that it can run in Envoy 1.40: it names the ABI version 0.2.0 or 0.2.1, it has an
// allocator, and it imports nothing but what Envoy offers, in Envoy's types. No VM starts before [Host.Push].
func New(module []byte, opts Options) (*Host, error) {
	if opts.Workers == 0 {
		opts.Workers = 1
	}
	if opts.Clock == nil {
		opts.Clock = NewClock()
	}
	if opts.Shared == nil {
		opts.Shared = NewSharedData()
	}
	if opts.Reload == 0 {
		opts.Reload = DefaultReload
	}
	ctx := context.Background()
	h := &Host{
		opts: opts, clock: opts.Clock, shared: opts.Shared, random: newSource(opts.Seed),
		bases: map[string]*base{}, stats: stats{}, exports: map[string]bool{}, inFlight: map[*Stream]struct{}{},
		runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache)),
	}
	if err := h.compile(ctx, module); err != nil {
		return nil, errors.Join(err, h.runtime.Close(ctx))
	}
	for i := range opts.Workers + 1 {
		h.threads = append(h.threads, &thread{host: h, number: i, vms: map[string]*vm{}, handles: map[string]*handle{}})
	}
	return h, nil
}

func (h *Host) compile(ctx context.Context, module []byte) error {
	compiled, err := h.runtime.CompileModule(ctx, module)
	if err != nil {
		return fmt.Errorf("compile the module: %w", err)
	}
	h.module = compiled
	for name := range compiled.ExportedFunctions() {
		h.exports[name] = true
	}
	if !h.exports["proxy_abi_version_0_2_0"] && !h.exports["proxy_abi_version_0_2_1"] {
		return errors.New("load the module: missing or unknown Proxy-Wasm ABI version, want an export proxy_abi_version_0_2_0")
	}
	if !h.exports["malloc"] && !h.exports["proxy_on_memory_allocate"] {
		return errors.New("load the module: no export malloc or proxy_on_memory_allocate")
	}
	return h.link(ctx)
}

// Close ends all VMs. Streams still in flight end with them.
func (h *Host) Close() error { return h.runtime.Close(context.Background()) }

// Clock is the clock that the VMs read.
func (h *Host) Clock() *Clock { return h.clock }

// Shared is the shared data that the VMs use.
func (h *Host) Shared() *SharedData { return h.shared }

// Workers is the number of worker threads; [Host.Send] takes 0 to Workers-1.
func (h *Host) Workers() int { return len(h.threads) - 1 }

// Reached counts the requests that passed filter and guard.
func (h *Host) Reached() int { return h.reached }

// Created counts the VMs that were made so far: base, canary, main thread and workers count one each.
func (h *Host) Created() int { return h.created }

// Exports tells whether the module exports a function of that name.
func (h *Host) Exports(name string) bool { return h.exports[name] }

// VMs counts the living VMs as Envoy's gauge wasm.wasm_vm_count does: the base, the main thread's and the workers'.
// Fewer than [Host.Workers] + 2 under one [Config.VM] tell of a worker without a filter.
func (h *Host) VMs() int {
	n := len(h.bases)
	for _, t := range h.threads {
		n += len(t.vms)
	}
	return n
}

// Advance moves the clock by d, runs the ticks that fall due on the way and tells the module of call-outs that end,
// in the order of their instants; of two at one instant, the call-out first.
func (h *Host) Advance(d time.Duration) {
	until := h.clock.mono + d
	for {
		next := (*wasmContext)(nil)
		for _, t := range h.threads {
			for _, v := range t.vms {
				for _, c := range v.contexts {
					if c.period > 0 && c.due <= until && !v.isFailed() && (next == nil || c.before(next)) {
						next = c
					}
				}
			}
		}
		if o := h.nextCallOut(until); o != nil && (next == nil || o.due <= next.due) {
			h.clock.set(max(o.due, h.clock.mono))
			h.callOuts = slices.DeleteFunc(h.callOuts, func(other *callOut) bool { return other == o })
			o.deliver()
			continue
		}
		if next == nil {
			break
		}
		h.clock.set(max(next.due, h.clock.mono))
		next.due += next.period
		next.vm.call(next, "proxy_on_tick", uint64(next.id))
	}
	h.clock.set(until)
}

// before orders ticks that are due at one instant by the order their VMs were made in, so that runs repeat.
func (c *wasmContext) before(o *wasmContext) bool {
	if c.due != o.due {
		return c.due < o.due
	}
	if c.vm != o.vm {
		return c.vm.number < o.vm.number
	}
	return c.id < o.id
}

// LogLine is one line that a VM wrote through proxy_log, or through stdout (info) or stderr (error).
type LogLine struct {
	Level int // 0 trace, 1 debug, 2 info, 3 warn, 4 error, 5 critical
	Text  string
}

// Logs are all lines so far, oldest first, together with what Envoy itself says about failing VMs.
func (h *Host) Logs() []LogLine { return h.logs }

// LogText joins the lines of [Host.Logs] for a test's failure message.
func (h *Host) LogText() string {
	var b strings.Builder
	for _, l := range h.logs {
		fmt.Fprintf(&b, "[%d] %s\n", l.Level, l.Text)
	}
	return b.String()
}

func (h *Host) log(level int, text string) {
	h.logs = append(h.logs, LogLine{Level: level, Text: text})
}
