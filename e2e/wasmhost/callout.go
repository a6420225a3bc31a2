package wasmhost

import (
	"slices"
	"strconv"
	"time"
)

// latency is how long an answer to a call-out takes that says nothing else. It is never 0: a module that calls again
// at once would stop the clock.
const latency = time.Millisecond

// Call is one call-out of the module (proxy_http_call) that Envoy took on.
type Call struct {
	// Thread is who called: 0 the main thread, 1 the first worker, -1 a canary, whose calls end with it.
	Thread  int
	Cluster string
	// Headers are as the module gave them, pseudo headers included, with a content-length if there is a body.
	Headers, Trailers Headers
	Body              string
	// Timeout is 0 for none.
	Timeout time.Duration
	// At is the monotonic reading at the call.
	At time.Duration
}

// Path is the call's path with its query.
func (c Call) Path() string {
	path, _ := c.Headers.Get(":path")
	return path
}

// Fault is how a call-out can go wrong. The zero value is none.
type Fault string

// The faults, with what Envoy makes of them.
const (
	NoHosts Fault = "no hosts" // the cluster is known and empty: the call itself fails with "internal failure"
	Mute    Fault = "mute"     // no answer comes: 504 once the timeout is over, nothing at all without one
	Refused Fault = "refused"  // nobody listens: 503
	Closed  Fault = "closed"   // the connection ends before the answer begins: 503
	Reset   Fault = "reset"    // it ends within the answer: a callback without headers, status 11
)

// Outcome is what comes of a call-out.
type Outcome struct {
	Answer
	Trailers Headers
	// After is how long it takes, 1 ms if 0. Beyond the call's timeout the module gets Envoy's 504 at the timeout.
	After time.Duration
	Fault Fault
}

// Cluster is what the module can call. It is asked when a call is made; the module learns of the outcome when
// [Host.Advance] comes to its instant.
type Cluster func(Call) Outcome

// callOut is a call-out under way. It belongs to the root context of whoever made it, and outlives a stream.
type callOut struct {
	root   *wasmContext
	token  uint32
	due    time.Duration
	answer *callAnswer // nil: reset
}

// callAnswer is what the module can read in proxy_on_http_call_response.
type callAnswer struct {
	headers  Headers
	body     string
	trailers *Headers // nil: none, which is another thing than an empty map
}

// tokenStep is how far apart the tokens of a VM's calls are. Envoy keeps the kind of a call in the low two bits.
const tokenStep = 4

// resetStatus is what proxy_get_status says of a call that was reset. Envoy never takes it back: it stays the root's
// status through later calls that succeed, so that a module has to tell a reset by a callback without headers.
const resetStatus = 11

func httpCall(v *vm, a []uint64) status {
	var texts [4]string // cluster, headers, body, trailers
	for i := range texts {
		var in bool
		if texts[i], in = v.read(uint32(a[2*i]), uint32(a[2*i+1])); !in {
			return invalidMemoryAccess
		}
	}
	timeout, tokenAt := int32(uint32(a[8])), uint32(a[9])
	if s := v.writeUint32(tokenAt, 0); s != ok {
		return s
	}
	root := v.context().root
	cluster := v.host.opts.Clusters[texts[0]]
	if root == nil || cluster == nil || timeout < 0 {
		return badArgument
	}
	call := Call{
		Thread: v.thread, Cluster: texts[0], Headers: decodePairs(texts[1]), Body: texts[2], Trailers: decodePairs(texts[3]),
		Timeout: time.Duration(timeout) * time.Millisecond, At: v.host.clock.mono,
	}
	for _, name := range []string{":path", ":method", ":authority"} {
		if _, found := call.Headers.Get(name); !found {
			return badArgument
		}
	}
	if call.Body != "" {
		call.Headers.Set("content-length", strconv.Itoa(len(call.Body)))
	}
	v.token += tokenStep
	outcome := cluster(call)
	if outcome.Fault == NoHosts { // it has used up a token all the same
		return internalFailure
	}
	v.host.calls = append(v.host.calls, call)
	out := &callOut{root: root, token: v.token, due: v.host.clock.mono + outcome.After}
	if outcome.After <= 0 {
		out.due += latency
	}
	switch late := call.Timeout > 0 && out.due > v.host.clock.mono+call.Timeout; {
	case call.Timeout > 0 && outcome.Fault == Mute || late:
		out.due = v.host.clock.mono + call.Timeout
		out.answer = ownAnswer(504, "upstream request timeout")
	case outcome.Fault == Mute:
		return v.writeUint32(tokenAt, v.token)
	case outcome.Fault == Refused:
		out.answer = ownAnswer(503, "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure")
	case outcome.Fault == Closed:
		out.answer = ownAnswer(503, "upstream connect error or disconnect/reset before headers. reset reason: connection termination")
	case outcome.Fault == "":
		out.answer = &callAnswer{headers: Headers{{":status", strconv.Itoa(outcome.Status)}}, body: outcome.Body}
		for _, h := range outcome.Headers {
			out.answer.headers.Add(h.Name, h.Value)
		}
		if outcome.Trailers != nil {
			out.answer.trailers = &outcome.Trailers
		}
	}
	v.host.callOuts = append(v.host.callOuts, out)
	return v.writeUint32(tokenAt, v.token)
}

// ownAnswer is an answer of Envoy itself.
func ownAnswer(code int, body string) *callAnswer {
	return &callAnswer{body: body, headers: Headers{
		{":status", strconv.Itoa(code)}, {"content-length", strconv.Itoa(len(body))}, {"content-type", "text/plain"},
	}}
}

// called is what a call-out of this context's root brought, nil outside its callback.
func (c *wasmContext) called() *callAnswer {
	if c.root == nil {
		return nil
	}
	return c.root.answer
}

// deliver tells the module the outcome.
func (o *callOut) deliver() {
	root := o.root
	root.answer = o.answer
	var headers, size, trailers int
	if o.answer == nil {
		root.status, root.statusText = resetStatus, "reset"
	} else {
		headers, size = len(o.answer.headers), len(o.answer.body)
		if o.answer.trailers != nil {
			trailers = len(*o.answer.trailers)
		}
	}
	root.vm.call(root, "proxy_on_http_call_response",
		uint64(root.id), uint64(o.token), uint64(headers), uint64(size), uint64(trailers))
	root.answer, root.statusText = nil, ""
}

// forget ends the call-outs of contexts that are gone; the module hears nothing of them.
func (h *Host) forget(gone func(root *wasmContext) bool) {
	h.callOuts = slices.DeleteFunc(h.callOuts, func(o *callOut) bool { return gone(o.root) })
}

// nextCallOut is the call-out that ends first, nil if none does before or at until.
func (h *Host) nextCallOut(until time.Duration) *callOut {
	var next *callOut
	for _, o := range h.callOuts {
		if o.due <= until && (next == nil || o.due < next.due) {
			next = o
		}
	}
	return next
}

// Calls are all call-outs that Envoy took on so far, oldest first.
func (h *Host) Calls() []Call { return h.calls }

// CallsUnderWay counts the call-outs whose outcome the module will still be told.
func (h *Host) CallsUnderWay() int { return len(h.callOuts) }

func getStatus(v *vm, a []uint64) status {
	root := v.context()
	if s := v.writeUint32(uint32(a[0]), root.status); s != ok {
		return s
	}
	return v.copyIn(root.statusText, uint32(a[1]), uint32(a[2]))
}
