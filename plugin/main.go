// Package main is Weir's Envoy filter: host callbacks in, edge decisions, host calls out.
package main

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/weirproject/weir/plugin/abi"
)

// main never runs: a c-shared module is a library to its host.
func main() {}

// here is this VM's filter. Package memory outlives a configuration push: Envoy starts the living VM again with a new
// plugin context, while requests in flight finish.
var here filter

func init() {
	proxywasm.SetVMContext(&vm{})
	abi.Register(abi.Callbacks{
		RequestHeaders:  here.requestHeaders,
		ResponseHeaders: here.responseHeaders,
		Tick:            here.tick,
		CallResponse:    here.answered,
	})
}

type vm struct{ types.DefaultVMContext }

// OnVMStart runs at the start of a VM and again at each configuration push.
func (*vm) OnVMStart(size int) types.OnVMStartStatus {
	configuration, err := read(size, proxywasm.GetVMConfiguration)
	if err != nil {
		abi.Log(abi.Error, "weir: read the VM configuration: "+err.Error())
		return types.OnVMStartStatusFailed
	}
	if !here.fault.start(configuration) {
		return types.OnVMStartStatusFailed
	}
	return types.OnVMStartStatusOK
}

func (*vm) NewPluginContext(id uint32) types.PluginContext { return &plugin{id: id} }

type plugin struct {
	types.DefaultPluginContext
	id uint32
}

// OnPluginStart runs for each configuration that Envoy tries on this VM.
func (p *plugin) OnPluginStart(size int) types.OnPluginStartStatus {
	configuration, err := read(size, proxywasm.GetPluginConfiguration)
	if err != nil {
		abi.Log(abi.Error, "weir: read the bundle: "+err.Error())
		return types.OnPluginStartStatusFailed
	}
	if !here.start(configuration) {
		return types.OnPluginStartStatusFailed
	}
	here.begin(p.id)
	return types.OnPluginStartStatusOK
}

// read fetches a configuration of size bytes. It copies, since a small one lies in memory that the next request uses;
// a bundle that is kept must not.
func read(size int, get func() ([]byte, error)) ([]byte, error) {
	if size == 0 {
		return nil, nil // Envoy has no buffer for an empty one, which is no error
	}
	configuration, err := get()
	if err != nil {
		return nil, err
	}
	return abi.Own(configuration), nil
}
