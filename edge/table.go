package edge

import "github.com/weirproject/weir/shared/limit"

// localWays is the geometry of a worker's own memory: four ways are one or two cache lines, and lose a wanted entry to a
// collision far less often than one or two would. 65,536 entries of 32 bytes, the default, are 2 MiB a worker.
const localWays = 4

// entry is what a worker remembers of one bucket. It holds no pointers: a garbage collection skips the table.
type entry struct {
	tag    uint64       // 0: free
	until  limit.Micros // a lease dies, or a refusal ends, at this instant
	full   limit.Micros // of a refusal: when the bucket will be full
	tokens uint32       // of a lease: left to spend
	size   uint32       // of a lease: as taken; 0 marks a refusal
}

// table is a worker's own memory. Its size is a power of two, and changes only where a release says so.
type table struct{ sets [][localWays]entry }

// resize makes room for so many entries, forgetting all where that is another number than before.
func (t *table) resize(entries uint32) {
	if sets := max(1, int(entries)/localWays); sets != len(t.sets) {
		t.sets = make([][localWays]entry, sets)
	}
}

func (t *table) clear() { clear(t.sets) }

// find returns the entry of tag, or the one to overwrite with it, emptied.
func (t *table) find(tag uint64, now limit.Micros) *entry {
	set := &t.sets[tag>>32&uint64(len(t.sets)-1)] // other bits than the shared slot's
	victim := &set[0]
	for i := range set {
		e := &set[i]
		if e.tag == tag {
			return e
		}
		if e.tag == 0 {
			victim = e
			continue
		}
		if victim.tag != 0 && e.before(victim, now) {
			victim = e
		}
	}
	*victim = entry{tag: tag}
	return victim
}

// before orders entries for eviction: what is over first, then refusals, whose loss costs one read of a slot, then
// leases, whose loss strands their tokens; among equals the one that ends sooner.
func (e *entry) before(other *entry, now limit.Micros) bool {
	if a, b := e.worth(now), other.worth(now); a != b {
		return a < b
	}
	return e.until < other.until
}

func (e *entry) worth(now limit.Micros) int {
	switch {
	case now >= e.until || e.size > 0 && e.tokens == 0:
		return 0
	case e.size == 0:
		return 1
	}
	return 2
}
