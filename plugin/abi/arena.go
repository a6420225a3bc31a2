package abi

// arenaSize holds all that one request makes the host return: an address, a credential, a few slots of shared data.
// Envoy's default bound on a request's headers is 60 KiB, so a larger value can come; it goes to the heap.
const arenaSize = 16 << 10

// arena hands out the memory that the host writes results to. It starts over at each request, so that a request costs
// no garbage; results of start callbacks share it and are copied by who keeps them.
type arena struct {
	block    [arenaSize]byte
	used     int
	overflow [][]byte // keeps results too large for the block alive until the request ends
}

var memory arena

func (a *arena) reset() {
	a.used = 0
	if len(a.overflow) > 0 {
		clear(a.overflow)
		a.overflow = a.overflow[:0]
	}
}

// Own returns b in memory that no later request uses: b itself where the host's answer went to the heap, else a copy.
// All other results end here. It is for start callbacks: the main thread's VM starts at each push and never sees a
// request, so that without this it would keep every bundle that it was ever given.
func Own(b []byte) []byte {
	defer memory.reset()
	if len(b) >= arenaSize { // too large for the block
		return b
	}
	return append([]byte(nil), b...)
}

// allocate returns room for size bytes, nil if it cannot: the host then fails the one call that wanted it. size 0 gets
// a valid address, since the host takes 0 for failure.
func (a *arena) allocate(size uint32) (p *byte) {
	defer func() {
		if recover() != nil {
			p = nil
		}
	}()
	if int64(size) < int64(arenaSize-a.used) {
		p = &a.block[a.used]
		a.used += int(size)
		return p
	}
	large := make([]byte, int(size))
	a.overflow = append(a.overflow, large)
	return &large[0]
}
