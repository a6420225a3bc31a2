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
// for a bucket of capacity B and rate r, and W workers started within a lease's life: [Engine.OverAdmission] is the last
// term. A lease is debited before it is spent and dies unspent, so tokens refused falsely are bounded by it as well.
package edge

import (
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/header"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
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
	// Route reads what the origin's rules match by. It is asked only while hints are in memory that may refuse this very
	// client; nil: hints are not applied.
	Route func() rule.Request
}

// Class is what a request that goes on was taken for.
type Class uint8

// The classes.
const (
	Anonymous  Class = iota // no key: the plain bucket of its address paid
	Valid                   // a key that the edge knows: the address's bucket for those paid
	Unverified              // an unknown key while the bundle is too old to say so
	Exempt                  // an address that nothing limits
	Classes
)

var classNames = [Classes]string{"anonymous", "valid", "unverified", "exempt"}

// String is the class as metrics spell it.
func (c Class) String() string {
	if c < Classes {
		return classNames[c]
	}
	return "unknown"
}

// Verdict is the answer to one request.
type Verdict struct {
	Allowed bool
	Class   Class
	Code    header.Code // why not; empty when allowed
	// Rule and Headers name the rule behind a refusal by limit, and how much a client may know of it; Limit and Decision
	// are what it said. By a hint, only the wait is known, and Limit is zero.
	Rule     string
	Headers  rule.Headers
	Limit    limit.Limit
	Decision limit.Decision
	// Hinted: refused by what the origin had said; Hint is the index of its rule among [bundle.Bundle].Origin.
	Hinted bool
	Hint   int
	// Forged: the request showed a key that was never issued, whatever it was answered.
	Forged bool
	// Exhausted: refused since other workers won every try to write the slot, not since the bucket was empty.
	Exhausted bool
	// Created and Evicted count buckets that this request made in shared slots, and those that it dropped before they were
	// full again.
	Created, Evicted uint8
	// Caller is who asked, for [Engine.Hint].
	Caller Caller
}

// Engine decides for one worker. Make it with [New].
type Engine struct {
	slots Slots
	seed  keyfilter.HashKey

	release   uint64
	gate      bundle.Gate
	hasGate   bool
	changes   keyfilter.Changes // since the bundle, by deltas
	confirmed limit.Micros      // when control last confirmed what this edge knows of keys
	rule      bundle.EdgeRule
	unruled   bool // the bundle has no rule: only forged keys pay
	networks  bundle.Networks
	origin    bundle.OriginRules
	key       keyfilter.HashKey
	capped    uint64 // tag of the bucket of unverified keys
	policies  policies
	before    policies // of the release before, where its limits were others

	slotCount uint32
	was       oldTable
	local     table
	hints     hints
	scratch   [setSize]byte
}

// New makes an engine under the built-in [DefaultRule]. All workers that share slots must be given the same seed, and
// nobody outside may know it: who knows it can aim at another client's set.
func New(slots Slots, seed keyfilter.HashKey) *Engine {
	e := &Engine{slots: slots, seed: seed}
	e.hints.key = deriveKey(seed, "hints")
	e.InstallDefault()
	return e
}

// Install puts a bundle in force at now, when it is of the given age. Buckets in shared slots stay, clamped to the new
// limits; leases and remembered refusals of this worker go if the rule changed, since they were granted under the old
// one, and so do all hints. Where the size of the table changes, buckets move as they are asked for, so that a worker of
// the old size and one of the new may each admit what a bucket held at the push. b must have come from [bundle.Decode],
// and the bytes it reads from must not change.
func (e *Engine) Install(b bundle.Bundle, now, age limit.Micros) {
	e.release = b.Release
	e.gate, e.hasGate = b.Gate, b.HasGate
	e.confirmed = now - max(0, age)
	e.networks, e.origin = b.Networks, b.Origin
	e.local.resize(b.TableEntries)
	e.hints.clear()
	e.unruled = !b.HasRule
	if !b.HasRule {
		b.Rule = DefaultRule
	}
	if b.Rule != e.rule || e.gate.Unverified != e.policies.of[unverified].limit {
		e.local.clear()
	}
	e.rule = b.Rule
	e.key = deriveKey(e.seed, e.rule.Name)
	e.capped = tag(e.key, address{}, unverified)
	was := e.policies
	e.policies.set([kinds]limit.Limit{
		plain: e.rule.Anonymous, valid: e.rule.Valid,
		plainOuter: e.rule.OuterAnonymous, validOuter: e.rule.OuterValid,
		unverified: e.gate.Unverified,
	})
	if was.print != e.policies.print {
		e.before = was
	}
	if count := max(1, b.TableEntries/sharedWays); count != e.slotCount {
		if e.slotCount != 0 {
			e.was = oldTable{slotCount: e.slotCount, until: now + max(was.longest(), e.policies.longest())}
		}
		e.slotCount = count
	}
}

// oldTable is where buckets lie that were made before a release changed the size of the table.
type oldTable struct {
	slotCount uint32
	until     limit.Micros // from here on all of them are full
}

// InstallDefault puts the built-in [DefaultRule] in force, as if no bundle had ever come: keys are not looked at.
func (e *Engine) InstallDefault() {
	e.Install(bundle.Bundle{HasRule: true, Rule: DefaultRule, TableEntries: bundle.DefaultTableEntries}, 0, 0)
}

// Learn puts changes of keys in force that came after the bundle. They must be all of them since its [bundle.Gate].Seq,
// and the bytes they are read from must not change. The next Install keeps them; Learn with the zero value drops them.
func (e *Engine) Learn(c keyfilter.Changes) { e.changes = c }

// Confirm tells that at the instant at, control had nothing newer to say of keys than this edge knows.
func (e *Engine) Confirm(at limit.Micros) { e.confirmed = max(e.confirmed, at) }

// Age is how long ago what this edge knows of keys was last known to be all there is.
func (e *Engine) Age(now limit.Micros) limit.Micros { return max(0, now-e.confirmed) }

// stale tells whether a key that is unknown here may have been issued since.
func (e *Engine) stale(now limit.Micros) bool {
	return e.gate.StaleAfter > 0 && e.Age(now) > e.gate.StaleAfter
}

// Rule is the rule in force: the bundle's, else [DefaultRule].
func (e *Engine) Rule() bundle.EdgeRule { return e.rule }

// Gate is what the bundle in force tells of keys.
func (e *Engine) Gate() *bundle.Gate { return &e.gate }

// Changes are those that [Engine.Learn] was given last.
func (e *Engine) Changes() keyfilter.Changes { return e.changes }

// Release is the number of the release in force.
func (e *Engine) Release() uint64 { return e.release }

// KeyHeader is the header to read a request's key from; ok is false when keys are not looked at.
func (e *Engine) KeyHeader() (name string, ok bool) { return e.gate.KeyHeader, e.hasGate }

// LargestLease is the most that this worker holds in advance of any bucket, that of a v6 address's wider network included.
func (e *Engine) LargestLease() (largest int64) {
	for _, p := range e.policies.of {
		largest = max(largest, p.lease)
	}
	return largest
}

// OverAdmission is what the given number of workers may admit of one bucket beyond B + r·t.
func (e *Engine) OverAdmission(workers int) int64 { return int64(workers) * e.LargestLease() }

// Decide answers one request and charges it.
//
// A denied network is refused, an exempt one pays nothing. Two keys at once are refused without charge, since nothing
// then says who pays. What the origin said to refuse is refused without charge. A known key pays the valid bucket of its
// address, all else the plain one. An unknown or malformed key is refused for what it is only while there is room in
// the plain bucket, and as over the limit afterwards: the gate is no oracle at line rate, and a forger behind a NAT
// does not starve its neighbours' valid keys. While the bundle is stale, unknown keys go on as long as one bucket that
// they all share has room.
func (e *Engine) Decide(r *Request) (v Verdict) {
	a := parseAddress(r.Address)
	treatment := e.networks.Find(a.family == ipv6, a.high, a.low)
	if a.family == other {
		treatment = bundle.NoTreatment
	}
	if treatment == bundle.Deny {
		v.Code = header.AddressDenied
		return v
	}
	credential, hash := e.classify(r)
	v.Caller = Caller{hash: hash, hashed: credential == known || credential == unknown, address: a}
	switch credential {
	case conflicting:
		v.Code = header.KeyConflict
		return v
	case known:
		v.Class = Valid
	case unknown:
		v.Code, v.Forged = header.KeyUnknown, true
	case malformed:
		v.Code, v.Forged = header.KeyMalformed, true
	}
	if credential == unknown && e.stale(r.Now) {
		v.Code, v.Forged, v.Class = "", false, Unverified
	}
	if treatment == bundle.Exempt {
		if v.Code == "" {
			v.Allowed, v.Class = true, Exempt
		}
		return v
	}
	if index, wait, ok := e.hinted(r, &v.Caller); ok {
		v.Code, v.Hinted, v.Hint = header.RateLimited, true, index
		v.Rule, v.Headers, v.Decision.RetryAfter = e.origin.Name(index), e.origin.Headers(index), wait
		return v
	}
	if e.unruled && v.Code == "" && v.Class != Unverified {
		v.Allowed = true
		return v
	}
	e.pay(&v, a, r.Now)
	v.Allowed = v.Code == ""
	return v
}

// unverifiedRule names the refusals of unknown keys that are one too many while the bundle is stale.
const unverifiedRule = "unverified"

// pay charges all buckets of a request, or none. The later ones are asked before the first one is charged: what that gave
// could be returned to a lease only, which dies, and who is refused for long would be out of tokens by then. Still, another
// worker may come between.
func (e *Engine) pay(v *Verdict, a address, now limit.Micros) {
	var paid bill
	inner, outer := plain, plainOuter
	if v.Class == Valid {
		inner, outer = valid, validOuter
	}
	wide := uint64(0)
	if a.family == ipv6 && e.rule.OuterV6 > 0 {
		wide = tag(e.key, a.cut(0, e.rule.OuterV6), outer)
	}
	if !e.chargeBeyond(v, nil, outer, wide, now) {
		return
	}
	if !e.charge(v, &paid, inner, tag(e.key, e.principal(a), inner), now) || !e.chargeBeyond(v, &paid, outer, wide, now) {
		paid.giveBack(now)
	}
}

// chargeBeyond charges what a request pays besides its address's bucket: that of the wider network, if any, and that of
// unverified keys.
func (e *Engine) chargeBeyond(v *Verdict, paid *bill, outer kind, wide uint64, now limit.Micros) bool {
	if wide != 0 && !e.charge(v, paid, outer, wide, now) {
		return false
	}
	if v.Class == Unverified && !e.charge(v, paid, unverified, e.capped, now) {
		v.Rule, v.Headers = unverifiedRule, rule.RetryOnly
		return false
	}
	return true
}

// principal is the network that an address pays as.
func (e *Engine) principal(a address) address {
	return a.cut(e.rule.PrefixV4, e.rule.PrefixV6)
}
