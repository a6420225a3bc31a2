package main

import (
	"github.com/weirproject/weir/edge"
	"github.com/weirproject/weir/plugin/abi"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/limit"
)

// Paths of properties; NUL separates their elements.
var (
	addressPath       = []byte("source\x00address")
	authorizationPath = []byte("request\x00headers\x00authorization")
	markPath          = []byte("weir_verdict") // Envoy adds "wasm.", and the guard behind us looks for that
	mark              = []byte("1")
)

const keyHeaderPath = "request\x00headers\x00"

// filter is one VM's state. The zero value is ready for start.
type filter struct {
	slots   sharedSlots
	engine  *edge.Engine // nil until the first start
	release uint64
	keyPath []byte // property of the key header; nil: keys are not looked at
	metrics metrics
	reply   reply
	fault   fault
}

// start puts a configuration in force: a bundle, or nothing for the built-in default limits. It is a function of the
// bytes alone, so that what passed on one worker passes on all. A bad bundle is refused whole, with the reason in the
// log, and the last good one stays.
func (f *filter) start(configuration []byte) (ok bool) {
	defer func() {
		if recover() != nil {
			f.metrics.recovered()
			abi.Log(abi.Critical, "weir: recovered while starting; the last good release stays")
			ok = false
		}
	}()
	f.metrics.define()
	var b bundle.Bundle
	if len(configuration) > 0 {
		var err error
		if b, err = bundle.Decode(configuration); err != nil {
			f.metrics.rejected()
			abi.Log(abi.Error, "weir: refused a bundle, the last good release stays: "+err.Error())
			return false
		}
	}
	if f.engine == nil {
		f.engine = edge.New(f.fault.slots(&f.slots), sharedSeed())
	}
	if len(configuration) > 0 {
		f.engine.Install(b)
	} else {
		f.engine.InstallDefault()
	}
	f.release = b.Release
	f.keyPath = nil
	if name, ok := f.engine.KeyHeader(); ok {
		f.keyPath = []byte(keyHeaderPath + name)
	}
	rule := f.engine.Rule()
	f.reply.prepare(rule.Name)
	f.metrics.defineRule(rule.Name)
	f.metrics.record(f.release, max(edge.LeaseMax(rule.Anonymous), edge.LeaseMax(rule.Valid)))
	return true
}

// requestHeaders answers one request. A request that it lets on is marked; the guard behind it refuses whatever is
// not. So a fault in here closes the door with 503 instead of opening it.
func (f *filter) requestHeaders() (action abi.Action) {
	defer func() {
		if recover() != nil {
			f.metrics.recovered()
			action = abi.Continue // unmarked
		}
	}()
	f.fault.request()
	if f.engine == nil {
		return abi.Continue // no start has succeeded: unmarked
	}
	request := edge.Request{Now: limit.Micros(abi.Monotonic() / 1000)}
	request.Address, _ = abi.Property(addressPath)
	if f.keyPath != nil {
		var status abi.Status
		request.Key, status = abi.Property(f.keyPath)
		if request.HasKey = status == abi.OK; !request.HasKey {
			request.Authorization, _ = abi.Property(authorizationPath)
		}
	}
	verdict := f.engine.Decide(request)
	f.metrics.count(&verdict)
	if verdict.Allowed {
		abi.SetProperty(markPath, mark)
		return abi.Continue
	}
	f.reply.send(&verdict, f.engine.Rule(), f.release)
	return abi.Pause
}
