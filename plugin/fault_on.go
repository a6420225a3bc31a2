//go:build weirfault

package main

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/weirproject/weir/edge"
	"github.com/weirproject/weir/plugin/abi"
)

// fault breaks the filter in the ways that vm_config.configuration asks for, space-separated. This build is for tests
// and is never shipped.
//
//	start-fails-after=N  the N+1st and later VM starts of this Envoy fail: the canary passes, a worker does not
//	trap-on-path=/path   a request of this path crashes the VM
//	no-shared-data       each VM keeps its own buckets: W workers admit W bursts
type fault struct {
	trapPath string
	alone    bool
}

func (f *fault) start(configuration []byte) bool {
	*f = fault{}
	for _, word := range strings.Fields(string(configuration)) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "start-fails-after":
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				abi.Log(abi.Error, "weir fault: start-fails-after: want a number, got "+value)
				return false
			}
			if started := countStart(); started > n {
				abi.Log(abi.Error, "weir fault: start "+strconv.FormatUint(started, 10)+" fails as asked")
				return false
			}
		case "trap-on-path":
			f.trapPath = value
		case "no-shared-data":
			f.alone = true
		default:
			abi.Log(abi.Error, "weir fault: unknown fault "+word+": want start-fails-after=N, trap-on-path=/path, no-shared-data")
			return false
		}
	}
	return true
}

var startsKey = []byte("weir.fault.starts")

// countStart numbers the VM starts of this Envoy, from 1.
func countStart() uint64 {
	for {
		value, cas, status := abi.SharedData(startsKey)
		n := uint64(1)
		if status != abi.OK {
			cas = edge.CreateCAS
		} else if len(value) == 8 {
			n += binary.LittleEndian.Uint64(value)
		}
		if abi.SetSharedData(startsKey, binary.LittleEndian.AppendUint64(nil, n), cas) != abi.CASMismatch {
			return n
		}
	}
}

func (f *fault) slots(shared edge.Slots) edge.Slots {
	if f.alone {
		return ownSlots{}
	}
	return shared
}

// request crashes the VM if asked to, in a way that no recover can stop.
func (f *fault) request() {
	if f.trapPath == "" {
		return
	}
	if path, _ := abi.Property([]byte("request\x00path")); string(path) == f.trapPath {
		var never chan int
		<-never // a deadlock is fatal to Go's runtime
	}
}

// ownSlots is edge.Slots in this VM's memory.
type ownSlots map[uint32][]byte

func (s ownSlots) Get(slot uint32) (value []byte, cas uint32, ok bool) {
	value, ok = s[slot]
	return value, 1, ok
}

func (s ownSlots) Set(slot uint32, value []byte, _ uint32) (ok bool) {
	s[slot] = append(s[slot][:0], value...)
	return true
}
