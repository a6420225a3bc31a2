package replay

import (
	"cmp"
	"container/heap"
	"slices"
)

// ranking counts the most frequent of any number of names in fixed memory: the space-saving algorithm (Metwally, Agrawal,
// El Abbadi 2005, "Efficient computation of frequent and top-k elements in data streams"). A name that is counted more
// often than total/size is in it for certain, its count at most its error too high.
type ranking struct {
	size  int
	seq   int64
	names map[string]*ranked
	least leastFirst
}

// ranked is one name of a ranking.
type ranked struct {
	name  string
	count int64
	error int64 // how much of count may be another's
	seq   int64 // breaks ties, so that two runs agree
	place int   // in the heap
}

func newRanking(size int) *ranking { return &ranking{size: size, names: map[string]*ranked{}} }

// add counts name once.
func (r *ranking) add(name []byte) {
	r.seq++
	if known, ok := r.names[string(name)]; ok {
		known.count++
		heap.Fix(&r.least, known.place)
		return
	}
	if len(r.names) < r.size {
		entry := &ranked{name: string(name), count: 1, seq: r.seq}
		r.names[entry.name] = entry
		heap.Push(&r.least, entry)
		return
	}
	entry := r.least[0]
	delete(r.names, entry.name)
	entry.name, entry.error, entry.seq = string(name), entry.count, r.seq
	entry.count++
	r.names[entry.name] = entry
	heap.Fix(&r.least, 0)
}

// top gives the n most frequent, the most frequent first; all if n is negative.
func (r *ranking) top(n int) []ranked {
	all := make([]ranked, 0, len(r.least))
	for _, entry := range r.least {
		all = append(all, *entry)
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.error, b.error), cmp.Compare(a.name, b.name))
	})
	if n >= 0 && n < len(all) {
		all = all[:n]
	}
	return all
}

// leastFirst is a heap of ranked names.
type leastFirst []*ranked

func (h leastFirst) Len() int { return len(h) }
func (h leastFirst) Less(i, j int) bool {
	return h[i].count < h[j].count || h[i].count == h[j].count && h[i].seq < h[j].seq
}
func (h leastFirst) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *leastFirst) Push(x any) {
	entry := x.(*ranked)
	entry.place = len(*h)
	*h = append(*h, entry)
}
func (h *leastFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
