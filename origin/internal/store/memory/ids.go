package memory

import (
	"encoding/binary"
	"sync"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

const (
	idShards = 16
	// maxIDs is how many ids a shard remembers, 131,072 in all shards: 2,184 calls with an id a second for a minute,
	// some 10 MB. When there are more, the oldest is forgotten: its call, repeated, is charged again, which is the strict
	// side.
	maxIDs = 8192
)

// ids remembers the calls that were charged. All are remembered for the same time, so that they are forgotten in the order
// they came in.
type ids struct {
	mu    sync.Mutex
	until map[limiter.CallID]limit.Micros
	// queue is a ring of what is in until, oldest first; an id that was given back, or came again, is in it in vain.
	queue       []remembered
	first, used int
	_           [24]byte // two cache lines in all
}

type remembered struct {
	id    limiter.CallID
	until limit.Micros
}

func (s *Store) idsOf(id limiter.CallID) *ids {
	return &s.ids[binary.LittleEndian.Uint64(id[:])%idShards]
}

// has tells whether the call is remembered. The caller holds the lock, as for all methods here.
func (r *ids) has(id limiter.CallID, now limit.Micros) bool {
	until, ok := r.until[id]
	return ok && now < until
}

func (r *ids) add(id limiter.CallID, now limit.Micros) {
	if r.until == nil {
		r.until = map[limiter.CallID]limit.Micros{}
	}
	for r.used > 0 && (now >= r.queue[r.first].until || r.used == maxIDs) {
		oldest := r.queue[r.first]
		if r.until[oldest.id] == oldest.until {
			delete(r.until, oldest.id)
		}
		r.first, r.used = (r.first+1)%len(r.queue), r.used-1
	}
	if r.used == len(r.queue) {
		r.grow()
	}
	until := now.After(limiter.IDKept)
	r.queue[(r.first+r.used)%len(r.queue)] = remembered{id, until}
	r.used++
	r.until[id] = until
}

func (r *ids) grow() {
	queue := make([]remembered, max(64, 2*len(r.queue)))
	n := copy(queue, r.queue[r.first:])
	copy(queue[n:], r.queue[:r.first])
	r.queue, r.first = queue, 0
}

func (r *ids) drop(id limiter.CallID) { delete(r.until, id) }
