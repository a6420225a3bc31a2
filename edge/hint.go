package edge

import (
	"bytes"
	"encoding/binary"

	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// HintHeader is the response header that an origin tells its refusal in. It never names whom it refused: it is about the
// request that it answers.
const HintHeader = "x-weir-hint"

const (
	// hintVersion begins every hint that this edge understands.
	hintVersion = "v1"
	// maxHint bounds how long an edge refuses by a hint, so that an edge which missed a release asks again soon.
	maxHint = 30 * limit.Second
	// hintWays and hintSets make 4,096 hints of 24 bytes, 96 KiB a worker: hints are for floods, and a flood of more
	// principals than that still costs the origin one call each while theirs are out of memory.
	hintWays = 4
	hintSets = 1 << 10
)

// scope is what a hint is about.
type scope uint8

const (
	keyScope scope = iota + 1
	addressScope
	unknownKeyScope
)

// hint is a decoded hint.
type hint struct {
	rule    []byte
	scope   scope
	wait    limit.Micros
	release uint64
}

// parseHint reads `v1;rule=NAME;scope=key|address|unknown-key;ms=N;release=N`. Fields may stand in any order; fields of a
// newer origin are skipped.
func parseHint(text []byte) (h hint, ok bool) {
	field, rest, _ := bytes.Cut(text, []byte(";"))
	if string(field) != hintVersion {
		return hint{}, false
	}
	var seen uint8
	for len(rest) > 0 {
		field, rest, _ = bytes.Cut(rest, []byte(";"))
		name, value, _ := bytes.Cut(field, []byte("="))
		var bit uint8
		valid := true
		switch string(name) {
		case "rule":
			h.rule, bit = value, 1
		case "scope":
			bit = 2
			h.scope, valid = parseScope(value)
		case "ms":
			var ms uint64
			ms, valid = parseNumber(value)
			h.wait, bit = limit.Micros(min(ms, uint64(maxHint/limit.Millisecond)))*limit.Millisecond, 4
		case "release":
			h.release, valid = parseNumber(value)
			bit = 8
		}
		if !valid || seen&bit != 0 {
			return hint{}, false
		}
		seen |= bit
	}
	return h, seen == 1|2|4|8
}

func parseScope(text []byte) (s scope, ok bool) {
	switch string(text) {
	case "key":
		return keyScope, true
	case "address":
		return addressScope, true
	case "unknown-key":
		return unknownKeyScope, true
	}
	return 0, false
}

// parseNumber reads 1 to 18 decimal digits, which cannot overflow.
func parseNumber(text []byte) (n uint64, ok bool) {
	if len(text) == 0 || len(text) > 18 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + uint64(c-'0')
	}
	return n, true
}

// hintEntry is one hint in memory: who is refused, until when, by which of the origin's rules.
type hintEntry struct {
	tag   uint64 // 0: free
	until limit.Micros
	rule  int32 // -1 for an unknown key
}

// hints is a worker's memory of hints: bounded, and without pointers.
type hints struct {
	key    keyfilter.HashKey
	latest limit.Micros // until of the last one to end: later than that, nothing is looked up
	sets   [hintSets][hintWays]hintEntry
}

func (h *hints) clear() {
	if h.latest != 0 {
		h.latest = 0
		clear(h.sets[:])
	}
}

// tag names whom a hint is about, by a hash that the whole Envoy keeps to itself.
func (h *hints) tag(s scope, principal []byte) uint64 {
	var text [1 + addressSize]byte
	text[0] = byte(s)
	n := copy(text[1:], principal)
	return max(keyfilter.Hash(h.key, text[:1+n]), 1)
}

func (h *hints) keyTag(s scope, hash uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], hash)
	return h.tag(s, b[:])
}

// addressTag names the client that the origin takes an address for, which has nothing to do with the edge's rule.
func (h *hints) addressTag(a address) uint64 {
	b := a.cut(rule.DefaultPrefixV4, rule.DefaultPrefixV6).encode()
	return h.tag(addressScope, b[:])
}

func (h *hints) put(tag uint64, ruleIndex int32, now, until limit.Micros) {
	set := &h.sets[tag%hintSets]
	victim := &set[0]
	for i := range set {
		e := &set[i]
		if e.tag == tag && e.rule == ruleIndex {
			victim = e
			break
		}
		if e.until < victim.until {
			victim = e
		}
	}
	*victim = hintEntry{tag: tag, until: until, rule: ruleIndex}
	h.latest = max(h.latest, until)
}

// find is the hint that refuses tag for longest, among those whose rule applies.
func (h *hints) find(tag uint64, now limit.Micros, applies func(rule int) bool) (found hintEntry, ok bool) {
	for _, e := range h.sets[tag%hintSets] {
		if e.tag == tag && now < e.until && e.until > found.until && (e.rule < 0 || applies(int(e.rule))) {
			found, ok = e, true
		}
	}
	return found, ok
}

// Caller is who a request came from, as a hint about it has to know: a shell keeps it from the request until its answer. It
// holds no pointers.
type Caller struct {
	hash    uint64 // fingerprint of the key
	hashed  bool   // there is a key that has the form of one
	address address
}

// Hint takes up what the origin told about a request of caller's that it refused, if it means a rule of this release: until
// then the edge refuses the same credential, or address, for requests that the rule applies to. It reports whether the hint
// was taken. An origin that reads its rules from a file says release 0, whatever number the bundle was built with.
func (e *Engine) Hint(value []byte, caller *Caller, now limit.Micros) bool {
	h, ok := parseHint(value)
	if !ok || h.release != 0 && h.release != e.release || h.wait <= 0 || h.scope != addressScope && !caller.hashed {
		return false
	}
	until := now.After(h.wait)
	if h.scope == unknownKeyScope {
		e.hints.put(e.hints.keyTag(unknownKeyScope, caller.hash), -1, now, until)
		return true
	}
	index, ok := e.origin.Find(string(h.rule))
	if !ok {
		return false
	}
	tag := e.hints.keyTag(keyScope, caller.hash)
	if h.scope == addressScope {
		tag = e.hints.addressTag(caller.address)
	}
	e.hints.put(tag, int32(index), now, until)
	return true
}

// hinted tells whether a hint refuses a request, and for how long still.
func (e *Engine) hinted(r *Request, caller *Caller) (index int, wait limit.Micros, ok bool) {
	if r.Now >= e.hints.latest || r.Route == nil {
		return 0, 0, false
	}
	var route rule.Request
	asked := false
	applies := func(index int) bool {
		if !asked {
			route, asked = r.Route(), true
		}
		return e.origin.Covers(index, &route)
	}
	found, ok := e.hints.find(e.hints.addressTag(caller.address), r.Now, applies)
	if caller.hashed {
		if byKey, hit := e.hints.find(e.hints.keyTag(keyScope, caller.hash), r.Now, applies); hit && byKey.until > found.until {
			found, ok = byKey, true
		}
	}
	return int(found.rule), r.Now.Until(found.until), ok
}

// toldUnknown tells whether the origin has said of a key that it was never issued.
func (e *Engine) toldUnknown(now limit.Micros, hash uint64) bool {
	if now >= e.hints.latest {
		return false
	}
	_, ok := e.hints.find(e.hints.keyTag(unknownKeyScope, hash), now, nil)
	return ok
}
