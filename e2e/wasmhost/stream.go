package wasmhost

import (
	"strconv"
	"strings"
)

// UpstreamCluster is the cluster that the route names.
const UpstreamCluster = "weir_origin"

// headerLimit is Envoy's default bound on a request's headers; beyond it a request is 431 before any filter.
const headerLimit = 60 << 10

// Request is one request as Envoy has it before the first filter.
type Request struct {
	// From is the downstream address as Envoy prints it: "192.0.2.1:4711", "[2001:db8::1]:4711", or a pipe's path.
	From string
	// Method, Path, Authority default to GET, / and weir.test; they become pseudo headers in front of Headers.
	Method, Path, Authority string
	Headers                 Headers
	// Properties stand in for what Envoy would answer, by path with dots: "source.address", "request.headers.x-api-key".
	// They are for values that this host would not come to by itself.
	Properties map[string]string
}

// Answer is what the upstream says.
type Answer struct {
	Status  int
	Headers Headers
	Body    string
}

// From tells which part answered.
type From string

// The parts that can answer.
const (
	Filter   From = "filter"   // a local response of the module
	Guard    From = "guard"    // the native filter behind it
	Upstream From = "upstream" // the upstream
	Envoy    From = "envoy"    // Envoy itself: a failed VM, too large headers
)

// Response is the answer with what the tests count.
type Response struct {
	Status  int
	Headers Headers
	Body    string
	From    From
	// Details are %RESPONSE_CODE_DETAILS%, white space as "_".
	Details string
	// GRPC is the grpc-status given with a local response, -1 where none was.
	GRPC int32
	// Callbacks counts the calls into the module for this stream, Calls those out of it, by the names of the ABI.
	Callbacks, Calls map[string]int
	// State is the stream's filter state.
	State map[string]string
}

type localReply struct {
	status  int
	headers Headers
	body    string
	details string
	grpc    int32
	from    From
}

// Stream is a request whose answer is not there yet.
type Stream struct {
	host      *Host
	handle    *handle
	ctx       *wasmContext
	request   Request
	response  Response
	state     map[string]string
	callbacks map[string]int
	calls     map[string]int

	inRequest, inResponse, logging bool
	paused, answered, forwarded    bool
	resumed                        bool // proxy_continue_stream came
	ended                          bool
}

// Send runs one request on a worker (0 to Workers-1) to its end.
func (h *Host) Send(worker int, r Request) Response {
	s := h.Begin(worker, r)
	if !s.forwarded || s.answered {
		return s.End()
	}
	answer := Answer{Status: 200}
	if h.opts.Upstream != nil {
		answer = h.opts.Upstream(s.request)
	}
	s.Answer(answer)
	return s.End()
}

// Begin runs the request part: up to the upstream, or to a local answer.
func (h *Host) Begin(worker int, r Request) *Stream {
	s := &Stream{
		host: h, request: r.withPseudoHeaders(), state: map[string]string{},
		callbacks: map[string]int{}, calls: map[string]int{}, response: Response{GRPC: -1},
	}
	h.inFlight[s] = struct{}{}
	if s.request.Headers.size() > headerLimit {
		s.reply(localReply{status: 431, details: "http1.headers_too_large", grpc: -1, from: Envoy})
		return s
	}
	s.handle = h.threads[worker+1].usable()
	if s.handle != nil { // else no filter is in the chain
		s.handle.users++
		s.filter()
	}
	if !s.answered && !s.paused {
		s.proceed()
	}
	return s
}

// proceed takes the request on behind the filter.
func (s *Stream) proceed() {
	h := s.host
	if h.opts.Guard && s.state[statePrefix+"weir_verdict"] != "1" {
		s.reply(localReply{
			status: 503, details: "rbac_access_denied_matched_policy[none]", grpc: -1, from: Guard,
			body: unavailable, headers: unavailableHeaders,
		})
		return
	}
	s.forwarded = true
	h.reached++
}

// resume is proxy_continue_stream for a request that the module held; before it is held there is nothing to resume,
// but the callback's "pause" is then void.
func (s *Stream) resume() {
	if s.answered || s.forwarded {
		return
	}
	s.resumed = true
	if s.paused {
		s.paused, s.inRequest = false, false
		s.proceed()
	}
}

// filter runs the module's request callbacks.
func (s *Stream) filter() {
	v := s.handle.vm
	if v.isFailed() {
		s.failStream()
		return
	}
	s.ctx = v.newContext(s.handle.root, s.handle.plugin)
	s.ctx.stream = s
	v.call(s.ctx, "proxy_on_context_create", uint64(s.ctx.id), uint64(s.handle.root.id))
	s.inRequest = true
	action, _ := v.call(s.ctx, "proxy_on_request_headers", uint64(s.ctx.id), uint64(len(s.request.Headers)), 1)
	if v.isFailed() {
		s.failStream()
		return
	}
	s.paused = action != 0 && !s.answered && !s.resumed
	// The module's own local reply has stopped it too, so that the headers are still there for its response callback.
	s.inRequest = s.paused || s.answered
}

// failStream is what Envoy answers for a stream whose VM has trapped, under failure policy FAIL_RELOAD.
func (s *Stream) failStream() {
	s.inRequest, s.inResponse = false, false
	dead := localReply{status: 503, details: "wasm_fail_stream", grpc: 14, from: Envoy}
	if s.host.opts.Guard {
		dead.body, dead.headers = unavailable, unavailableHeaders
	}
	s.reply(dead)
}

// What Weir's bootstrap makes of Envoy's own 503, with a guard: the mapper of local_reply_config.
const unavailable = `{"status":503,"code":"limiter_unavailable"}`

var unavailableHeaders = Headers{{"content-type", "application/problem+json"}, {"retry-after", "1"}}

// reply answers from inside Envoy. The response callback runs on local answers too, the module's own included.
func (s *Stream) reply(r localReply) {
	if s.answered {
		return
	}
	s.response.From, s.response.Details, s.response.GRPC = r.from, r.details, r.grpc
	s.respond(Answer{Status: r.status, Headers: r.headers, Body: r.body})
}

// Answer delivers the upstream's answer to a stream that was forwarded.
func (s *Stream) Answer(a Answer) {
	if s.answered {
		return
	}
	s.response.From, s.response.Details = Upstream, "via_upstream"
	s.respond(a)
}

func (s *Stream) respond(a Answer) {
	s.answered, s.paused = true, false
	s.response.Status, s.response.Body = a.Status, a.Body
	s.response.Headers = Headers{{":status", strconv.Itoa(a.Status)}}
	for _, h := range a.Headers {
		s.response.Headers.Add(h.Name, h.Value)
	}
	if s.ctx == nil || s.handle.vm.isFailed() {
		if s.ctx != nil && s.response.From == Upstream { // its VM trapped under another stream meanwhile
			s.response = Response{
				Status: 503, From: Envoy, Details: "wasm_fail_stream", GRPC: 14, Headers: Headers{{":status", "503"}},
			}
		}
		return
	}
	s.inResponse = true
	v := s.handle.vm
	v.call(s.ctx, "proxy_on_response_headers", uint64(s.ctx.id), uint64(len(s.response.Headers)), 0)
	s.inResponse = false
	if v.isFailed() && s.response.From == Upstream {
		s.response = Response{
			Status: 503, From: Envoy, Details: "wasm_fail_stream", GRPC: 14, Headers: Headers{{":status", "503"}},
		}
	}
}

// End closes the stream: log, done, delete. A stream without an answer was reset by its client and has the status 0.
func (s *Stream) End() Response {
	if s.ended {
		return s.response
	}
	s.ended = true
	delete(s.host.inFlight, s)
	if s.ctx != nil {
		v := s.handle.vm
		s.logging = true
		v.call(s.ctx, "proxy_on_log", uint64(s.ctx.id))
		s.logging, s.inRequest = false, false
		v.call(s.ctx, "proxy_on_done", uint64(s.ctx.id))
		v.remove(s.ctx)
	}
	if s.handle != nil {
		s.handle.release()
	}
	s.response.Headers.Remove(":status")
	s.response.Callbacks, s.response.Calls, s.response.State = s.callbacks, s.calls, s.state
	return s.response
}

// Forwarded tells whether the request passed filter and guard, and shows it as the upstream gets it.
func (s *Stream) Forwarded() (Request, bool) { return s.request, s.forwarded }

func (r Request) withPseudoHeaders() Request {
	or := func(value, usual string) string {
		if value == "" {
			return usual
		}
		return value
	}
	all := Headers{
		{":method", or(r.Method, "GET")}, {":path", or(r.Path, "/")},
		{":authority", or(r.Authority, "weir.test")}, {":scheme", "http"},
	}
	for _, h := range r.Headers {
		all.Add(h.Name, strings.TrimSpace(h.Value))
	}
	r.Headers = all
	return r
}
