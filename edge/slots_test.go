package edge

import (
	"strconv"
	"testing"

	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// testSlots is the number of slots of a table of the default size.
const testSlots = bundle.DefaultTableEntries / sharedWays

// envoySlots keeps slots by Envoy's rules for shared data: one counter of compare-and-set numbers for all keys, 0
// overwrites, any other number creates a missing key.
type envoySlots struct {
	values     map[uint32]*stored
	next       uint32
	gets, sets int
	// before, if set, runs in front of each Set; true makes another worker win the race.
	before func() (lose bool)
}

type stored struct {
	value []byte
	cas   uint32
}

func newSlots() *envoySlots { return &envoySlots{values: map[uint32]*stored{}, next: 1} }

func (s *envoySlots) Get(slot uint32) ([]byte, uint32, bool) {
	if slot >= testSlots {
		panic("slot " + strconv.Itoa(int(slot)) + " is out of range")
	}
	s.gets++
	v, ok := s.values[slot]
	if !ok {
		return nil, 0, false
	}
	return v.value, v.cas, true
}

func (s *envoySlots) Set(slot uint32, value []byte, cas uint32) bool {
	s.sets++
	v, ok := s.values[slot]
	if s.before != nil && s.before() {
		if ok {
			v.cas = s.number()
		} else {
			// Another worker creates the slot, empty, in front of us.
			empty := set{}
			var b [setSize]byte
			s.values[slot] = &stored{value: append([]byte(nil), empty.encode(&b)...), cas: s.number()}
		}
		v, ok = s.values[slot]
	}
	if ok && cas != 0 && cas != v.cas {
		return false
	}
	if !ok {
		v = &stored{}
		s.values[slot] = v
	}
	v.value, v.cas = append(v.value[:0], value...), s.number()
	return true
}

func (s *envoySlots) number() uint32 {
	s.next++
	return s.next - 1
}

var testSeed = keyfilter.HashKey{1, 2, 3, 4}

// per is count per second with a burst.
func per(count, burst int64) limit.Limit {
	return limit.Limit{Count: count, Window: limit.Second, Burst: burst}
}

func testRule(anonymous, valid limit.Limit) bundle.Bundle {
	return bundle.Bundle{Release: 1, TableEntries: bundle.DefaultTableEntries, HasRule: true, Rule: bundle.EdgeRule{
		Name: "flood", Headers: rule.Full, PrefixV4: 32, PrefixV6: 64, Anonymous: anonymous, Valid: valid,
	}}
}

// gated adds a key gate in which the given keys are known.
func gated(t testing.TB, b bundle.Bundle, keys ...string) bundle.Bundle {
	t.Helper()
	var hashes []uint64
	for _, key := range keys {
		hashes = append(hashes, keyfilter.Hash(testHashKey, []byte(key)))
	}
	return gatedBy(t, b, hashes)
}

var testHashKey = keyfilter.HashKey{9}

// gatedBy is gated with keys by their hashes.
func gatedBy(t testing.TB, b bundle.Bundle, hashes []uint64) bundle.Bundle {
	t.Helper()
	encoded, err := keyfilter.EncodeFilter(hashes)
	if err != nil {
		t.Fatal(err)
	}
	filter, err := keyfilter.ReadFilter(encoded)
	if err != nil {
		t.Fatal(err)
	}
	b.HasGate = true
	b.Gate = bundle.Gate{KeyHeader: "x-api-key", Format: keyfilter.Format{Prefix: "wk_"}, HashKey: testHashKey, Filter: filter}
	return b
}

// worker is an engine over slots with b in force.
func worker(slots Slots, b bundle.Bundle) *Engine {
	e := New(slots, testSeed)
	e.Install(b, 0, 0)
	return e
}

func from(address string, now limit.Micros) Request {
	return Request{Now: now, Address: []byte(address)}
}

func decide(e *Engine, r Request) Verdict { return e.Decide(&r) }

// plainTag is the tag of an address's plain bucket.
func (e *Engine) plainTag(address string) uint64 {
	return tag(e.key, e.principal(parseAddress([]byte(address))), plain)
}

func (e *Engine) slotOf(address string) uint32 {
	return uint32(e.plainTag(address)>>kindBits) % e.slotCount
}
