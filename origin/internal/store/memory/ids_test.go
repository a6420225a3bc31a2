package memory

import (
	"encoding/binary"
	"testing"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

func idOf(n int) (id limiter.CallID) {
	binary.LittleEndian.PutUint64(id[:], uint64(n)+1)
	return id
}

func TestAShardRemembersSoManyIDsForAMinute(t *testing.T) {
	var r ids
	now := limit.Hour
	for n := range 3 * maxIDs {
		r.add(idOf(n), now)
		now++
	}
	if len(r.until) != maxIDs || r.used != maxIDs || len(r.queue) > 2*maxIDs {
		t.Errorf("%d ids kept, %d of a queue of %d, want %d", len(r.until), r.used, len(r.queue), maxIDs)
	}
	if r.has(idOf(2*maxIDs-1), now) || !r.has(idOf(2*maxIDs), now) || !r.has(idOf(3*maxIDs-1), now) {
		t.Error("not the oldest ids were forgotten")
	}
	// One that was given back and comes again is remembered from then on, though the queue has it twice.
	r.drop(idOf(3*maxIDs - 1))
	if r.has(idOf(3*maxIDs-1), now) {
		t.Error("an id is remembered that was given back")
	}
	now += limit.Second
	r.add(idOf(3*maxIDs-1), now)
	now += limiter.IDKept - limit.Second + 1
	r.add(idOf(-2), now) // all others are over
	if !r.has(idOf(3*maxIDs-1), now) || len(r.until) != 2 {
		t.Errorf("%d ids kept, want the two that came last", len(r.until))
	}
	r.add(idOf(-3), now+limit.Minute)
	if len(r.until) != 1 || r.used != 1 {
		t.Errorf("%d ids kept, %d in the queue, want the last one", len(r.until), r.used)
	}
}
