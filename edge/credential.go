package edge

import (
	"bytes"

	"github.com/weirproject/weir/shared/keyfilter"
)

// credential is what a request shows of an API key.
type credential uint8

const (
	none credential = iota // no key, or keys are not looked at
	known
	unknown
	malformed
	conflicting
)

// classify looks at the key header, and only without one at Authorization.
func (e *Engine) classify(r *Request) credential {
	if !e.hasGate {
		return none
	}
	if r.HasKey {
		return e.judge(r.Key)
	}
	prefix := e.gate.Format.Prefix // never empty in a decoded bundle
	if token, ok := bearer(r.Authorization); ok && len(token) >= len(prefix) && string(token[:len(prefix)]) == prefix {
		return e.judge(token)
	}
	return none // a user's token, basic credentials, garbage: not an API key, not ours to judge
}

// judge tells what a value in a key's place is. No key holds a comma, so a comma is two headers joined into one.
func (e *Engine) judge(key []byte) credential {
	switch {
	case bytes.IndexByte(key, ',') >= 0:
		return conflicting
	case !e.gate.Format.Check(key):
		return malformed
	case e.gate.Knows(keyfilter.Hash(e.gate.HashKey, key)):
		return known
	}
	return unknown
}

// bearer takes the scheme off; schemes compare without case (RFC 9110 section 11.1).
func bearer(authorization []byte) (token []byte, ok bool) {
	const scheme = "bearer "
	if len(authorization) < len(scheme) {
		return nil, false
	}
	for i := range len(scheme) {
		c := authorization[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != scheme[i] {
			return nil, false
		}
	}
	return bytes.TrimLeft(authorization[len(scheme):], " "), true
}
