package main

import (
	"github.com/weirproject/weir/edge"
	"github.com/weirproject/weir/plugin/abi"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/rule"
)

// codes are the reasons this filter refuses for, in the order of the arrays that they index.
var codes = [...]header.Code{header.RateLimited, header.KeyUnknown, header.KeyMalformed, header.KeyConflict, header.AddressDenied}

// codeIndex is the place of a code in codes.
func codeIndex(code header.Code) int {
	for i, c := range codes {
		if c == code {
			return i
		}
	}
	return 0
}

// gRPC status codes of a refusal. Envoy uses them for gRPC requests only, and on its own would map 429 to UNAVAILABLE,
// which clients retry at once.
const (
	grpcFromHTTP          = -1
	grpcResourceExhausted = 8
	grpcPermissionDenied  = 7
	grpcUnauthenticated   = 16
)

func grpcStatus(status int) int32 {
	switch status {
	case 429:
		return grpcResourceExhausted
	case 401:
		return grpcUnauthenticated
	case 403:
		return grpcPermissionDenied
	}
	return grpcFromHTTP
}

// reply builds local replies in memory that it uses again and again.
type reply struct {
	details []byte // weir_<code>.<rule>, for Envoy's access log
	pairs   abi.Pairs
	body    []byte
}

// send answers the request with a refusal.
func (r *reply) send(v *edge.Verdict, e *edge.Engine) {
	status := v.Code.Status()
	name, mode := v.Rule, v.Headers
	if name == "" { // refused by the gate or a network, not by a rule
		name, mode = e.Rule().Name, e.Rule().Headers
	}
	r.details = append(append(append(append(r.details[:0], "weir_"...), v.Code...), '.'), name...)
	problem := header.Problem{Code: v.Code, Mode: mode, Where: "edge", Release: e.Release()}
	r.pairs.Reset()
	r.pairs.Add("content-type", header.ProblemType)
	r.pairs.Add("cache-control", "no-store") // an answer to one caller is none to the next
	switch {
	case v.Code == header.RateLimited:
		problem.Rule, problem.RetryAfter = name, v.Decision.RetryAfter
		view := header.View{Rule: name, Mode: mode, Limit: v.Limit, Decision: v.Decision}
		if v.Hinted && mode == rule.Full { // by a hint, which tells the wait alone
			view.Mode = rule.RetryOnly
		}
		header.Each(view, r.pairs.Add)
	case status == 401:
		r.pairs.Add("www-authenticate", "Bearer") // RFC 9110 section 11.6.1 wants a challenge with every 401
	}
	r.body = problem.Append(r.body[:0])
	abi.LocalReply(uint32(status), r.details, r.body, r.pairs.Bytes(), grpcStatus(status))
}
