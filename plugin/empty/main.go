// Package main is an Envoy filter that does nothing: what it costs, any filter costs that is built as Weir's is.
//
// It has the exports of Weir's filter, so that Envoy calls it as often.
package main

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/weirproject/weir/plugin/abi"
)

// main never runs: a c-shared module is a library to its host.
func main() {}

func init() {
	proxywasm.SetVMContext(&types.DefaultVMContext{})
	abi.Register(abi.Callbacks{
		RequestHeaders:  func(uint32) abi.Action { return abi.Continue },
		ResponseHeaders: func(uint32) {},
		Tick:            func(uint32) {},
		CallResponse:    func(bool, int) {},
	})
}
