// Package header writes a verdict as the HTTP fields that a client reads: Retry-After, the rate limit fields, the
// problem body.
package header

import (
	"strconv"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Code names why a request was not passed on; it is the `code` member of a problem body.
type Code string

// The codes. A client over its limit is RateLimited, never Overloaded, which is Weir's own trouble.
const (
	RateLimited        Code = "rate_limited"
	KeyUnknown         Code = "key_unknown"
	KeyMalformed       Code = "key_malformed"
	KeyConflict        Code = "key_conflict"
	TokenInvalid       Code = "token_invalid"
	AddressDenied      Code = "address_denied"
	Overloaded         Code = "overloaded"
	LimiterUnavailable Code = "limiter_unavailable"
	UpstreamDown       Code = "upstream_unreachable"
	UpstreamSlow       Code = "upstream_timeout"
	BadRequest         Code = "bad_request"
)

// about is the fixed part of a code's answer.
type about struct {
	status int
	title  string
}

var codes = map[Code]about{
	RateLimited:        {429, "Too many requests"},
	KeyUnknown:         {401, "This API key was never issued or has been revoked"},
	KeyMalformed:       {401, "This is not an API key"},
	KeyConflict:        {400, "The request carries more than one API key"},
	TokenInvalid:       {401, "This token is not valid"},
	AddressDenied:      {403, "Requests from this address are not accepted"},
	Overloaded:         {503, "The service is overloaded"},
	LimiterUnavailable: {503, "The rate limiter is unavailable"},
	UpstreamDown:       {502, "The API behind the gateway cannot be reached"},
	UpstreamSlow:       {504, "The API behind the gateway did not answer in time"},
	BadRequest:         {400, "The request cannot be understood"},
}

// Status is the HTTP status of a code; 500 for a code that does not exist.
func (c Code) Status() int {
	if a, ok := codes[c]; ok {
		return a.status
	}
	return 500
}

// ProblemType is the media type of [Problem.Append].
const ProblemType = "application/problem+json"

// Problem is a refusal as a problem body (RFC 9457).
type Problem struct {
	Code       Code
	Mode       rule.Headers // of the rule that refused; Full where none did
	Rule       string       // shown in mode Full
	Where      string       // "edge" or "origin": who refused; shown in mode Full
	Release    uint64       // shown in mode Full
	RetryAfter limit.Micros // 0 or [limit.Never]: no time is told
	Field      string       // what of the request is to blame: a header's name, or a word as method; empty: not told
}

// Append appends the body to dst: one line of JSON that ends in a newline. It needs no room beyond dst's when that
// has about 256 bytes.
func (p Problem) Append(dst []byte) []byte {
	a := codes[p.Code]
	dst = append(dst, `{"type":"about:blank","title":`...)
	dst = appendString(dst, a.title)
	dst = append(dst, `,"status":`...)
	dst = strconv.AppendInt(dst, int64(p.Code.Status()), 10)
	dst = append(dst, `,"code":`...)
	dst = appendString(dst, string(p.Code))
	if p.Field != "" {
		dst = append(dst, `,"field":`...)
		dst = appendString(dst, p.Field)
	}
	if p.Mode != rule.None && p.RetryAfter > 0 && p.RetryAfter != limit.Never {
		dst = append(dst, `,"retry_after_ms":`...)
		dst = strconv.AppendInt(dst, int64(roundUp(p.RetryAfter, limit.Millisecond)), 10)
	}
	if p.Mode == rule.Full {
		if p.Rule != "" {
			dst = append(dst, `,"rule":`...)
			dst = appendString(dst, p.Rule)
		}
		if p.Where != "" {
			dst = append(dst, `,"where":`...)
			dst = appendString(dst, p.Where)
		}
		dst = append(dst, `,"release":`...)
		dst = strconv.AppendUint(dst, p.Release, 10)
	}
	return append(dst, "}\n"...)
}

// appendString appends text as a JSON string. Titles, codes and rule names are plain ASCII; whatever else comes is
// shown as `?`, so that no text can break out of its quotes.
func appendString(dst []byte, text string) []byte {
	dst = append(dst, '"')
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			dst = append(dst, '?')
		} else {
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// roundUp is d in units, rounded up.
func roundUp(d, unit limit.Micros) limit.Micros {
	n := d / unit
	if d%unit > 0 {
		n++
	}
	return n
}
