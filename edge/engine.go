// Package edge decides at the edge whether a request goes on to the origin.
//
// An [Engine] belongs to one worker and is not for concurrent use. It reads no clock, does no I/O and does not allocate
// per request: the shell passes "now" in and carries shared state through [Slots]. Cost per request and memory do not
// grow with the number of clients.
//
// # What it promises
//
// One client can reach all workers. Every admission is paid from a bucket in shared slots: a worker takes a lease of
// some tokens by compare-and-set and spends it from its own memory within [LeaseLife]. So in any interval t
//
//	admitted ≤ B + r·t + W × LeaseMax
//
// for a bucket of capacity B and rate r, and W workers started within a lease's life. A lease is debited before it is
// spent and dies unspent, so tokens refused falsely are bounded by W × LeaseMax as well.
package edge

import (
	"encoding/binary"

	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
)

// Slots is storage that all workers of one Envoy share, numbered 0 to [SlotCount]-1.
type Slots interface {
	// Get reads a slot and its compare-and-set number; ok is false for one never written. The value may be
	// overwritten by the next call.
	Get(slot uint32) (value []byte, cas uint32, ok bool)
	// Set writes a slot if its number is still cas, or if it was never written. It keeps no reference to value.
	Set(slot uint32, value []byte, cas uint32) (ok bool)
}

// CreateCAS is the compare-and-set number that creates a slot: Envoy accepts any number but 0 for a missing one, and
// refuses this one for an existing slot unless its number has run through 2^32. 0 would overwrite.
const CreateCAS uint32 = 0xFFFFFFFF

// Request is what the engine looks at. Nothing of it is kept.
type Request struct {
	Now limit.Micros // monotonic; all workers share its base
	// Address is the client's as Envoy knows it: the source.address property, in any of its forms.
	Address []byte
	// Key is the configured key header, duplicates joined by commas; HasKey tells an empty one from none.
	Key    []byte
	HasKey bool
	// Authorization is looked at only without HasKey, and only if it is a bearer token with the prefix of issued keys.
	Authorization []byte
}

// Class is the bucket of an address that a request pays from.
type Class uint8

// The classes. A request whose key is not known pays as Anonymous.
const (
	Anonymous Class = iota
	Valid
	classes
)

// String is the class as metrics spell it.
func (c Class) String() string {
	if c == Valid {
		return "valid"
	}
	return "anonymous"
}

// Verdict is the answer to one request.
type Verdict struct {
	Allowed bool
	Class   Class
	Code    header.Code // why not; empty when allowed
	// Limit and Decision are the rule's for a refusal by limit, else zero.
	Limit    limit.Limit
	Decision limit.Decision
	// Exhausted: refused since other workers won every try to write the slot, not since the bucket was empty.
	Exhausted bool
}

// policy is what one class pays by.
type policy struct {
	limit  limit.Limit
	lease  int64        // LeaseMax
	refill limit.Micros // from empty to full; Never for a limit of 0
}

// Engine decides for one worker. Make it with [New].
type Engine struct {
	slots Slots
	seed  keyfilter.HashKey

	gate     bundle.Gate
	hasGate  bool
	rule     bundle.EdgeRule
	unruled  bool // the bundle has no rule: only forged keys pay
	key      keyfilter.HashKey
	policies [classes]policy
	print    uint32 // fingerprint of all policies
	slowest  limit.Micros

	local   table
	scratch [setSize]byte
}

// New makes an engine under the built-in [DefaultRule]. All workers that share slots must be given the same seed, and
// nobody outside may know it: who knows it can aim at another client's set.
func New(slots Slots, seed keyfilter.HashKey) *Engine {
	e := &Engine{slots: slots, seed: seed}
	e.adopt(DefaultRule)
	return e
}

// Install puts a bundle in force. Buckets in shared slots stay, clamped to the new limits; leases and remembered
// refusals of this worker go if the rule changed, since they were granted under the old one. b must have come from
// [bundle.Decode], and the bytes it reads its keys from must not change.
func (e *Engine) Install(b bundle.Bundle) {
	e.gate, e.hasGate = b.Gate, b.HasGate
	e.unruled = !b.HasRule
	if b.HasRule {
		e.adopt(b.Rule)
	} else {
		e.adopt(DefaultRule)
	}
}

// InstallDefault puts the built-in [DefaultRule] in force, as if no bundle had ever come: keys are not looked at.
func (e *Engine) InstallDefault() {
	e.Install(bundle.Bundle{HasRule: true, Rule: DefaultRule})
}

func (e *Engine) adopt(r bundle.EdgeRule) {
	if r != e.rule {
		e.local.clear()
	}
	e.rule = r
	e.key = ruleKey(e.seed, r.Name)
	limits := [classes]limit.Limit{Anonymous: r.Anonymous, Valid: r.Valid}
	var text [classes * 24]byte
	e.slowest = 0
	for class, l := range limits {
		empty := limit.TokenBucket{}
		p := policy{limit: l, lease: LeaseMax(l), refill: empty.FullAfter(l, 0)}
		e.policies[class] = p
		if p.refill != limit.Never {
			e.slowest = max(e.slowest, p.refill)
		}
		binary.LittleEndian.PutUint64(text[24*class:], uint64(l.Count))
		binary.LittleEndian.PutUint64(text[24*class+8:], uint64(l.Window))
		binary.LittleEndian.PutUint64(text[24*class+16:], uint64(l.Burst))
	}
	e.print = uint32(keyfilter.Hash(keyfilter.HashKey{}, text[:]))
}

// Rule is the rule in force: the bundle's, else [DefaultRule].
func (e *Engine) Rule() bundle.EdgeRule { return e.rule }

// KeyHeader is the header to read a request's key from; ok is false when keys are not looked at.
func (e *Engine) KeyHeader() (name string, ok bool) { return e.gate.KeyHeader, e.hasGate }

// Decide answers one request and charges it.
//
// Order: two keys at once are refused without charge, since nothing then says who pays. A known key pays the valid
// bucket of its address, all else the plain one. An unknown or malformed key is refused for what it is only while
// there is room in the plain bucket, and as over the limit afterwards: the gate is no oracle at line rate, and a
// forger behind a NAT does not starve its neighbours' valid keys.
func (e *Engine) Decide(r Request) Verdict {
	var v Verdict
	switch e.classify(&r) {
	case conflicting:
		v.Code = header.KeyConflict
		return v
	case known:
		v.Class = Valid
	case unknown:
		v.Code = header.KeyUnknown
	case malformed:
		v.Code = header.KeyMalformed
	}
	if e.unruled && v.Code == "" {
		v.Allowed = true
		return v
	}
	var decision limit.Decision
	decision, v.Exhausted = e.charge(v.Class, e.tag(r.Address, v.Class), r.Now)
	if !decision.Allowed {
		v.Code = header.RateLimited
		v.Limit, v.Decision = e.policies[v.Class].limit, decision
	}
	v.Allowed = v.Code == ""
	return v
}
