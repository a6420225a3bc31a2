package main

import (
	"github.com/weirproject/weir/edge"
	"github.com/weirproject/weir/plugin/abi"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/header"
)

// codes are the reasons this filter refuses for, in the order of the arrays that they index.
var codes = [...]header.Code{header.RateLimited, header.KeyUnknown, header.KeyMalformed, header.KeyConflict}

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
	grpcUnauthenticated   = 16
)

func grpcStatus(status int) int32 {
	switch status {
	case 429:
		return grpcResourceExhausted
	case 401:
		return grpcUnauthenticated
	}
	return grpcFromHTTP
}

// reply builds local replies in memory that it uses again and again.
type reply struct {
	details [len(codes)][]byte // weir_<code>.<rule>, for Envoy's access log
	pairs   abi.Pairs
	body    []byte
}

// prepare makes what a rule's replies have in common.
func (r *reply) prepare(ruleName string) {
	for i, code := range codes {
		r.details[i] = []byte("weir_" + string(code) + "." + ruleName)
	}
}

// send answers the request with a refusal.
func (r *reply) send(v *edge.Verdict, edgeRule bundle.EdgeRule, release uint64) {
	status := v.Code.Status()
	problem := header.Problem{Code: v.Code, Mode: edgeRule.Headers, Where: "edge", Release: release}
	r.pairs.Reset()
	r.pairs.Add("content-type", header.ProblemType)
	switch {
	case v.Code == header.RateLimited: // the other codes are the gate's, not the rule's
		problem.Rule, problem.RetryAfter = edgeRule.Name, v.Decision.RetryAfter
		header.Each(header.View{Rule: edgeRule.Name, Mode: edgeRule.Headers, Limit: v.Limit, Decision: v.Decision}, r.pairs.Add)
	case status == 401:
		r.pairs.Add("www-authenticate", "Bearer") // RFC 9110 section 11.6.1 wants a challenge with every 401
	}
	r.body = problem.Append(r.body[:0])
	abi.LocalReply(uint32(status), r.details[codeIndex(v.Code)], r.body, r.pairs.Bytes(), grpcStatus(status))
}
