package wasmhost

import (
	"context"
	_ "embed" // the table of imports
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero/api"
)

// offered lists every import that Envoy 1.40.0 resolves for a module of ABI 0.2.0, one a line with its type, as
// Envoy itself prints them when a module asks for another type. A test compares it with a real Envoy.
//
//go:embed offered.txt
var offered string

// Import is a function that Envoy offers to a module.
type Import struct {
	Module, Name    string
	Params, Results []api.ValueType
}

// Offered returns Envoy's imports in the order of the table.
func Offered() []Import {
	var all []Import
	for line := range strings.Lines(offered) {
		fields := strings.Fields(line)
		module, name, _ := strings.Cut(fields[0], ".")
		im := Import{Module: module, Name: name}
		results := false
		for _, f := range fields[1:] {
			switch {
			case f == "->":
				results = true
			case results:
				im.Results = append(im.Results, valueType(f))
			default:
				im.Params = append(im.Params, valueType(f))
			}
		}
		all = append(all, im)
	}
	return all
}

func valueType(name string) api.ValueType {
	if name == "i64" {
		return api.ValueTypeI64
	}
	return api.ValueTypeI32
}

// inInitialize tells whether a module may make a host call from _initialize; others trap there. The list is what Envoy
// 1.40.0 does, tried one by one: all of WASI but six functions, and of proxy-wasm only the log.
func inInitialize(im Import) bool {
	if im.Module == "env" {
		return im.Name == "proxy_log" || im.Name == "emscripten_notify_memory_growth"
	}
	switch im.Name {
	case "fd_close", "fd_read", "fd_seek", "path_open", "proc_exit", "sched_yield":
		return false
	}
	return true
}

// hostCall is the body of an import: arguments in, status or errno out.
type hostCall func(v *vm, args []uint64) uint64

// link makes the imports that the module asks for. All that Envoy lacks, or has in another type, are named in one
// error, where Envoy would name the first.
func (h *Host) link(ctx context.Context) error {
	table := map[string]Import{}
	for _, im := range Offered() {
		table[im.Module+"."+im.Name] = im
	}
	bodies := hostCalls()
	wanted := map[string][]Import{}
	var faults []error
	for _, f := range h.module.ImportedFunctions() {
		module, name, _ := f.Import()
		im, known := table[module+"."+name]
		switch {
		case !known:
			faults = append(faults, fmt.Errorf("load the module: missing import %s.%s: Envoy does not offer it", module, name))
		case string(im.Params) != string(f.ParamTypes()) || string(im.Results) != string(f.ResultTypes()):
			faults = append(faults, fmt.Errorf("load the module: import %s.%s has another type than Envoy's", module, name))
		default:
			wanted[module] = append(wanted[module], im)
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	for module, imports := range wanted {
		b := h.runtime.NewHostModuleBuilder(module)
		for _, im := range imports {
			b.NewFunctionBuilder().WithGoFunction(h.bind(im, bodies[im.Module+"."+im.Name]), im.Params, im.Results).Export(im.Name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("link %s: %w", module, err)
		}
	}
	return nil
}

// bind wraps a body with what holds for every host call: who calls, whether it may, and the count.
func (h *Host) bind(im Import, body hostCall) api.GoFunc {
	full, allowed := im.Module+"."+im.Name, inInitialize(im)
	return func(_ context.Context, stack []uint64) {
		c := h.current
		if c.vm.starting && !allowed {
			panic(fmt.Errorf("function %s failed: not allowed from _initialize", full))
		}
		if body == nil {
			panic(fmt.Errorf("function %s: offered by Envoy, not modelled here", full))
		}
		if c.stream != nil {
			c.stream.calls[im.Name]++
		}
		args := make([]uint64, len(im.Params))
		for i, kind := range im.Params {
			args[i] = stack[i]
			if kind == api.ValueTypeI32 {
				args[i] = uint64(uint32(stack[i])) // the upper half holds whatever the machine register held
			}
		}
		result := body(c.vm, args)
		if len(im.Results) > 0 {
			stack[0] = result
		}
	}
}

func hostCalls() map[string]hostCall {
	all := map[string]hostCall{}
	for name, body := range proxyCalls {
		all["env."+name] = func(v *vm, a []uint64) uint64 { return uint64(body(v, a)) }
	}
	for name, errno := range wasiConstants {
		all["wasi_snapshot_preview1."+name] = func(*vm, []uint64) uint64 { return errno }
	}
	for name, body := range wasiCalls {
		all["wasi_snapshot_preview1."+name] = body
	}
	return all
}
