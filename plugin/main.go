// Package main is Weir's Envoy filter: host callbacks in, edge decisions, host calls out.
package main

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/weirproject/weir/plugin/abi"
)

// main never runs: a c-shared module is a library to its host.
func main() {}

func init() {
	proxywasm.SetVMContext(&vm{})
	abi.OnRequestHeaders(func() abi.Action {
		abi.SetProperty([]byte("weir_verdict"), []byte("1"))
		return abi.Continue
	})
}

type vm struct{ types.DefaultVMContext }

func (*vm) NewPluginContext(uint32) types.PluginContext { return &types.DefaultPluginContext{} }
