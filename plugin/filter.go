package main

import (
	"runtime"

	"github.com/weirproject/weir/edge"
	"github.com/weirproject/weir/plugin/abi"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Paths of properties; NUL separates their elements.
var (
	addressPath       = []byte("source\x00address")
	authorizationPath = []byte("request\x00headers\x00authorization")
	markPath          = []byte("weir_verdict") // Envoy adds "wasm.", and the guard behind us looks for that
	mark              = []byte("1")
	classPath         = []byte("weir_class") // for the origin; Envoy writes it into x-weir-class
	unverified        = []byte("unverified")
)

const headersPath = "request\x00headers\x00"

// filter is one VM's state. The zero value is ready for start.
type filter struct {
	slots   sharedSlots
	engine  *edge.Engine // nil until the first start
	keyPath []byte       // property of the key header; nil: keys are not looked at
	metrics metrics
	reply   reply
	control control
	callers callers
	fault   fault
	toRoute func() rule.Request // f.route, made once
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
		age := limit.Micros(abi.Wall()/1000) - b.Built
		f.engine.Install(b, now(), age)
	} else {
		f.engine.InstallDefault()
	}
	f.catchUp()
	f.toRoute = f.route
	f.keyPath = nil
	if name, ok := f.engine.KeyHeader(); ok {
		f.keyPath = []byte(headersPath + name)
	}
	f.metrics.defineRules(f.engine.Rule().Name, b.Origin.Len())
	f.metrics.record(f.engine)
	runtime.GC() // here, where nobody waits: what a start leaves behind would else be collected in somebody's request
	return true
}

// requestHeaders answers one request. A request that it lets on is marked; the guard behind it refuses whatever is
// not. So a fault in here closes the door with 503 instead of opening it.
func (f *filter) requestHeaders(stream uint32) (action abi.Action) {
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
	request := f.read()
	verdict := f.engine.Decide(&request)
	f.metrics.count(&verdict, f.engine.Rule().Name)
	if verdict.Allowed {
		f.callers.keep(stream, verdict.Caller)
		if verdict.Class == edge.Unverified {
			abi.SetProperty(classPath, unverified)
		}
		abi.SetProperty(markPath, mark)
		return abi.Continue
	}
	f.reply.send(&verdict, f.engine)
	return abi.Pause
}

// read is the request that the host shows. It lies in memory that the next callback uses again.
func (f *filter) read() edge.Request {
	request := edge.Request{Now: now(), Route: f.toRoute}
	request.Address, _ = abi.Property(addressPath)
	if f.keyPath != nil {
		var status abi.Status
		request.Key, status = abi.Property(f.keyPath)
		if request.HasKey = status == abi.OK; !request.HasKey {
			request.Authorization, _ = abi.Property(authorizationPath)
		}
	}
	return request
}
