package abi

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unsafe"
)

// readPairs reads a header map as the host does.
func readPairs(t *testing.T, b []byte) [][2]string {
	t.Helper()
	n := int(binary.LittleEndian.Uint32(b))
	at := 4 + 8*n
	var out [][2]string
	for i := range n {
		var pair [2]string
		for j := range pair {
			size := int(binary.LittleEndian.Uint32(b[4+8*i+4*j:]))
			pair[j] = string(b[at : at+size])
			if b[at+size] != 0 {
				t.Fatalf("no NUL after %q", pair[j])
			}
			at += size + 1
		}
		out = append(out, pair)
	}
	if at != len(b) {
		t.Fatalf("%d bytes left over", len(b)-at)
	}
	return out
}

func TestPairsReadBackAsTheHostReadsThem(t *testing.T) {
	var p Pairs
	for range 2 { // a second reply starts from the first one's memory
		p.Reset()
		p.Add("retry-after", "1")
		p.Add("empty", "")
		p.Add("ratelimit", `"flood";r=0;t=2`)
		got := readPairs(t, p.Bytes())
		if len(got) != 3 || got[0] != [2]string{"retry-after", "1"} || got[1] != [2]string{"empty", ""} || got[2][1] != `"flood";r=0;t=2` {
			t.Errorf("got %q", got)
		}
	}
	p.Reset()
	if got := readPairs(t, p.Bytes()); len(got) != 0 {
		t.Errorf("an empty map reads as %q", got)
	}
}

func TestPairsLeaveOutWhatDoesNotFit(t *testing.T) {
	var p Pairs
	p.Add("a", "1")
	p.Add("huge", strings.Repeat("x", pairsData))
	for range maxPairs + 5 {
		p.Add("b", "2")
	}
	if got := readPairs(t, p.Bytes()); len(got) != maxPairs || got[0][0] != "a" || got[1][0] != "b" {
		t.Errorf("got %d: %q", len(got), got)
	}
}

func TestArenaStartsOverAtEachRequestAndNeverOverlapsWithinOne(t *testing.T) {
	var a arena
	first := a.allocate(100)
	for range 3 {
		a.reset()
		if a.allocate(100) != first {
			t.Fatal("a request did not start at the block's beginning")
		}
		var parts [][]byte
		for i := range 50 {
			b := unsafe.Slice(a.allocate(1000), 1000)
			for j := range b {
				b[j] = byte(i)
			}
			parts = append(parts, b)
		}
		for i, b := range parts {
			if !bytes.Equal(b, bytes.Repeat([]byte{byte(i)}, 1000)) {
				t.Fatalf("result %d was overwritten", i)
			}
		}
	}
}

func TestArenaTakesLargeResultsFromTheHeap(t *testing.T) {
	var a arena
	if a.allocate(0) == nil {
		t.Error("a result of no bytes has no address: the host takes that for failure")
	}
	if a.allocate(1<<20) == nil || len(a.overflow) != 1 {
		t.Error("a large result is not kept alive")
	}
	if a.reset(); len(a.overflow) != 0 {
		t.Error("a large result outlives its request")
	}
}

func TestOwnedBytesSurviveTheNextRequest(t *testing.T) {
	var a arena
	for _, size := range []uint32{0, 10, arenaSize - 1, arenaSize, 1 << 20} {
		a.reset()
		b := unsafe.Slice(a.allocate(size), int(size))
		for i := range b {
			b[i] = 7
		}
		owned := Own(b)
		a.reset()
		clear(a.block[:])
		if !bytes.Equal(owned, bytes.Repeat([]byte{7}, int(size))) {
			t.Errorf("%d bytes changed under their owner", size)
		}
	}
}

func TestWhatHasAnOwnerIsNotHeldTwice(t *testing.T) {
	for _, size := range []uint32{10, arenaSize, 1 << 20} {
		Own(unsafe.Slice(memory.allocate(size), int(size)))
		if memory.used != 0 || len(memory.overflow) != 0 {
			t.Errorf("after %d bytes found an owner, %d bytes of the block and %d large results are held", size, memory.used, len(memory.overflow))
		}
	}
}
