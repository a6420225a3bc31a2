package edge

import (
	"bytes"

	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
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

// classify looks at the key header, and only without one at Authorization. hash is the fingerprint of a key that has the
// form of one: known or unknown.
func (e *Engine) classify(r *Request) (c credential, hash uint64) {
	if !e.hasGate {
		return none, 0
	}
	if r.HasKey {
		return e.judge(r.Key, r.Now)
	}
	prefix := e.gate.Format.Prefix // never empty in a decoded bundle
	if token, ok := bearer(r.Authorization); ok && len(token) >= len(prefix) && string(token[:len(prefix)]) == prefix {
		return e.judge(token, r.Now)
	}
	return none, 0 // a user's token, basic credentials, garbage: not an API key, not ours to judge
}

// maxForeignKey is the longest imported key that is looked up: longer ones are nobody's, and hashing costs by the byte.
const maxForeignKey = 512

// judge tells what a value in a key's place is. A key that is known needs no second look: the checksum is for telling
// nonsense from what may have been issued. No issued key holds a comma, so a comma is two headers joined into one.
func (e *Engine) judge(key []byte, now limit.Micros) (c credential, hash uint64) {
	foreign := e.gate.Foreign && len(key) > 0 && len(key) <= maxForeignKey
	if foreign || len(key) == e.gate.Format.Len() {
		if hash = keyfilter.Hash(e.gate.HashKey, key); e.knows(hash, now) {
			return known, hash
		}
	}
	switch {
	case bytes.IndexByte(key, ',') >= 0:
		return conflicting, 0
	case foreign || e.gate.Format.Check(key):
		return unknown, hash
	}
	return malformed, 0
}

// knows tells whether a key is issued as far as this edge has heard: by the latest change of it, else by what the origin
// said, else by the bundle.
func (e *Engine) knows(hash uint64, now limit.Micros) bool {
	if op, changed := e.changes.Find(hash); changed {
		return op == keyfilter.Issued
	}
	return !e.toldUnknown(now, hash) && e.gate.Knows(hash)
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
