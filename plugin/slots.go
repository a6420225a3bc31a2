package main

import (
	"math/rand/v2"
	"strconv"

	"github.com/weirproject/weir/edge"
	"github.com/weirproject/weir/plugin/abi"
	"github.com/weirproject/weir/shared/keyfilter"
)

// slotDigits is the length of a slot's number, in hex, at the end of its shared-data key "weir.set<layout>.<slot>".
// Shared data outlives the module, so that another layout must have other keys.
const slotDigits = 5

// sharedSlots is edge.Slots over the host's shared data.
type sharedSlots struct {
	key []byte // the key of the last slot asked for; only its digits change
}

func (s *sharedSlots) name(slot uint32) []byte {
	if s.key == nil {
		s.key = []byte("weir.set" + strconv.Itoa(edge.SetFormat) + ".00000")
	}
	for i := range slotDigits {
		s.key[len(s.key)-1-i] = "0123456789abcdef"[slot>>(4*i)&15]
	}
	return s.key
}

func (s *sharedSlots) Get(slot uint32) (value []byte, cas uint32, ok bool) {
	value, cas, status := abi.SharedData(s.name(slot))
	return value, cas, status == abi.OK
}

func (s *sharedSlots) Set(slot uint32, value []byte, cas uint32) (ok bool) {
	return abi.SetSharedData(s.name(slot), value, cas) == abi.OK
}

var seedKey = []byte("weir.seed1")

// sharedSeed is the hash seed of all workers: the first VM makes it, the others read it. It is random per Envoy, so
// that nobody outside can aim at a set. A host without shared data gives each VM its own, which only parts their buckets.
func sharedSeed() keyfilter.HashKey {
	var seed keyfilter.HashKey
	for half := range 2 {
		r := rand.Uint64() // ChaCha8, seeded by the host's random_get
		for i := range 8 {
			seed[8*half+i] = byte(r >> (8 * i))
		}
	}
	abi.SetSharedData(seedKey, seed[:], edge.CreateCAS) // fails where another VM was first
	if stored, _, status := abi.SharedData(seedKey); status == abi.OK && len(stored) == len(seed) {
		copy(seed[:], stored)
	}
	return seed
}
