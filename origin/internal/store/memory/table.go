package memory

import (
	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// entry is a counter. Without a pointer in it, the garbage collector looks at none of a million.
type entry struct {
	name       limiter.Counter
	algorithm  rule.Algorithm
	hash       uint32
	until      limit.Micros // it equals a fresh one from here on
	a, b, c, d int64        // the state; of a log, a is its place in table.logs
}

const (
	// chunkSize entries are allocated at once: 8,184 bytes of the 8,192 that the allocator gives. A slice that doubles would
	// hold up to twice what is used; larger chunks hold too much in shards of some thousands.
	chunkSize  = 93
	firstChunk = 8 // the first chunk grows from here, by doubling
	// A slot of the index is an entry's number, from 1 on, with the top bits of its hash.
	numberBits = 24
	numberMask = 1<<numberBits - 1
	maxEntries = numberMask
	// The index is at most 3/4 full: a search looks at 2.5 slots for a counter that is there, and at 8.5 for one that is not,
	// 16 of which lie in one cache line.
	firstIndex = 32
)

// table is a hash table of counters: entries side by side in chunks, and an index over them by linear probing. Go's map
// takes 147 to 235 bytes for a counter of 43 + 72; this takes 97 to 102 for one of 43 + 45. The caller locks.
type table struct {
	index  []uint32
	chunks [][]entry
	count  int
	hand   int // where the next sweep begins
	logs   []*limit.SlidingLog
	spare  []int32 // places in logs that are free
}

// at is the i-th entry. It stays there until an entry is added or removed.
func (t *table) at(i int) *entry { return &t.chunks[uint(i)/chunkSize][uint(i)%chunkSize] }

// find is the number of a counter's entry, -1 if there is none.
func (t *table) find(name *limiter.Counter, hash uint32) int {
	if t.count == 0 {
		return -1
	}
	mask := uint32(len(t.index) - 1)
	for pos := hash & mask; ; pos = (pos + 1) & mask {
		slot := t.index[pos]
		if slot == 0 {
			return -1
		}
		if slot>>numberBits == hash>>numberBits {
			if i := int(slot&numberMask) - 1; t.at(i).name == *name {
				return i
			}
		}
	}
}

// add makes an entry, which must not exist.
func (t *table) add(name *limiter.Counter, hash uint32) int {
	if 4*(t.count+1) > 3*len(t.index) {
		t.growIndex()
	}
	i := t.count
	if i/chunkSize == len(t.chunks) {
		size := chunkSize
		if i == 0 {
			size = firstChunk
		}
		t.chunks = append(t.chunks, make([]entry, size))
	} else if first := t.chunks[0]; i == len(first) && i < chunkSize {
		t.chunks[0] = make([]entry, min(2*i, chunkSize))
		copy(t.chunks[0], first)
	}
	t.count++
	*t.at(i) = entry{name: *name, hash: hash}
	t.link(hash, i)
	return i
}

// link enters the i-th entry into the index, which has room.
func (t *table) link(hash uint32, i int) {
	mask := uint32(len(t.index) - 1)
	pos := hash & mask
	for t.index[pos] != 0 {
		pos = (pos + 1) & mask
	}
	t.index[pos] = hash>>numberBits<<numberBits | uint32(i+1)
}

func (t *table) growIndex() {
	t.index = make([]uint32, max(firstIndex, 2*len(t.index)))
	for i := range t.count {
		t.link(t.at(i).hash, i)
	}
}

// slotOf is where the index holds the i-th entry.
func (t *table) slotOf(i int) uint32 {
	hash, mask := t.at(i).hash, uint32(len(t.index)-1)
	pos := hash & mask
	for int(t.index[pos]&numberMask) != i+1 {
		pos = (pos + 1) & mask
	}
	return pos
}

// remove takes the i-th entry out. The last one takes its place.
func (t *table) remove(i int) {
	e := t.at(i)
	t.dropLog(e)
	t.unlink(t.slotOf(i))
	if last := t.count - 1; i != last {
		pos := t.slotOf(last)
		*e = *t.at(last)
		t.index[pos] = t.index[pos]&^numberMask | uint32(i+1)
	}
	t.count--
	if used := (t.count + chunkSize - 1) / chunkSize; len(t.chunks) > used+1 {
		clear(t.chunks[used+1:])
		t.chunks = t.chunks[:used+1] // one in stock, or the border would allocate for ever
	}
}

// unlink empties a slot of the index, moving up what stands behind it and would not be found any more.
func (t *table) unlink(hole uint32) {
	mask := uint32(len(t.index) - 1)
	for pos := (hole + 1) & mask; t.index[pos] != 0; pos = (pos + 1) & mask {
		home := t.at(int(t.index[pos]&numberMask)-1).hash & mask
		if (pos-home)&mask >= (pos-hole)&mask { // its search begins at the hole or before
			t.index[hole] = t.index[pos]
			hole = pos
		}
	}
	t.index[hole] = 0
}

// sweep looks at some entries, in turn, for ones that have expired.
func (t *table) sweep(now limit.Micros, steps int) {
	for ; steps > 0 && t.count > 0; steps-- {
		if t.hand >= t.count {
			t.hand = 0
		}
		if now < t.at(t.hand).until {
			t.hand++
		} else {
			t.remove(t.hand) // another one stands here now
		}
	}
}

// load is the state of the i-th entry.
func (t *table) load(i int) state {
	e := t.at(i)
	s := state{algorithm: e.algorithm, a: e.a, b: e.b, c: e.c, d: e.d}
	if e.algorithm == rule.SlidingLog {
		s.log = t.logs[e.a]
	}
	return s
}

// keep makes s the state of the i-th entry.
func (t *table) keep(i int, s *state, until limit.Micros) {
	e := t.at(i)
	if s.algorithm != rule.SlidingLog {
		t.dropLog(e)
	} else if e.algorithm == rule.SlidingLog {
		s.a = e.a
		t.logs[s.a] = s.log
	} else {
		s.a = t.addLog(s.log)
	}
	e.algorithm, e.until, e.a, e.b, e.c, e.d = s.algorithm, until, s.a, s.b, s.c, s.d
}

func (t *table) addLog(log *limit.SlidingLog) (place int64) {
	if n := len(t.spare); n > 0 {
		place, t.spare = int64(t.spare[n-1]), t.spare[:n-1]
		t.logs[place] = log
		return place
	}
	t.logs = append(t.logs, log)
	return int64(len(t.logs) - 1)
}

// dropLog frees an entry's log, if it has one.
func (t *table) dropLog(e *entry) {
	if e.algorithm == rule.SlidingLog {
		t.logs[e.a] = nil
		t.spare = append(t.spare, int32(e.a))
	}
}
