package limit

// Sizes of the encoded states, in bytes. A sliding log has 16 bytes an entry.
const (
	TokenBucketSize   = 32
	GCRASize          = 32
	SlidingWindowSize = 24
	FixedWindowSize   = 16
	LeakyBucketSize   = 32
	LeakyQueueSize    = 32
	logEntrySize      = 16
)

// Every state has two encodings. Append and the Read functions use its fields as little-endian int64 in the order of the
// struct, exact for all values. Integers and the Of functions use numbers that a store's doubles hold exactly, from
// -(2^53-1) to 2^53-1, which as instants are the years 1684 to 2255; what lies outside is held at that bound.
//
// Both read whatever they are given: a field out of its range counts to the strict side when the state is used. A Read
// function says false for a length that is not its own: then nothing is known of the counter, and it is the caller who
// knows what a lost counter is worth.

// Append appends the state in [TokenBucketSize] bytes.
func (s TokenBucket) Append(b []byte) []byte {
	return appendLE(b, s.Tokens, s.Part, int64(s.Last), s.Count)
}

// ReadTokenBucket reads what Append wrote.
func ReadTokenBucket(b []byte) (s TokenBucket, ok bool) {
	if len(b) != TokenBucketSize {
		return s, false
	}
	return TokenBucket{Tokens: le(b, 0), Part: le(b, 1), Last: Micros(le(b, 2)), Count: le(b, 3)}, true
}

// Integers is the state for a store.
func (s TokenBucket) Integers() [4]int64 {
	return [4]int64{double(s.Tokens), double(s.Part), double(int64(s.Last)), double(s.Count)}
}

// TokenBucketOf is the state that Integers gave.
func TokenBucketOf(v [4]int64) TokenBucket {
	return TokenBucket{Tokens: v[0], Part: v[1], Last: Micros(v[2]), Count: v[3]}
}

// Append appends the state in [GCRASize] bytes.
func (s GCRA) Append(b []byte) []byte {
	return appendLE(b, int64(s.Spent), s.Part, s.Count, int64(s.Window))
}

// ReadGCRA reads what Append wrote.
func ReadGCRA(b []byte) (s GCRA, ok bool) {
	if len(b) != GCRASize {
		return s, false
	}
	return GCRA{Spent: Micros(le(b, 0)), Part: le(b, 1), Count: le(b, 2), Window: Micros(le(b, 3))}, true
}

// Integers is the state for a store whose counters are named by their window, so that it never changes.
func (s GCRA) Integers() [3]int64 {
	return [3]int64{double(int64(s.Spent)), double(s.Part), double(s.Count)}
}

// GCRAOf is the state that Integers gave for a limit of this window.
func GCRAOf(v [3]int64, window Micros) GCRA {
	return GCRA{Spent: Micros(v[0]), Part: v[1], Count: v[2], Window: window}
}

// Append appends the state in [SlidingWindowSize] bytes.
func (s SlidingWindow) Append(b []byte) []byte {
	return appendLE(b, int64(s.Start), s.Current, s.Previous)
}

// ReadSlidingWindow reads what Append wrote.
func ReadSlidingWindow(b []byte) (s SlidingWindow, ok bool) {
	if len(b) != SlidingWindowSize {
		return s, false
	}
	return SlidingWindow{Start: Micros(le(b, 0)), Current: le(b, 1), Previous: le(b, 2)}, true
}

// Integers is the state for a store.
func (s SlidingWindow) Integers() [3]int64 {
	return [3]int64{double(int64(s.Start)), double(s.Current), double(s.Previous)}
}

// SlidingWindowOf is the state that Integers gave.
func SlidingWindowOf(v [3]int64) SlidingWindow {
	return SlidingWindow{Start: Micros(v[0]), Current: v[1], Previous: v[2]}
}

// Append appends the state in [FixedWindowSize] bytes.
func (s FixedWindow) Append(b []byte) []byte {
	return appendLE(b, int64(s.Start), s.Used)
}

// ReadFixedWindow reads what Append wrote.
func ReadFixedWindow(b []byte) (s FixedWindow, ok bool) {
	if len(b) != FixedWindowSize {
		return s, false
	}
	return FixedWindow{Start: Micros(le(b, 0)), Used: le(b, 1)}, true
}

// Integers is the state for a store.
func (s FixedWindow) Integers() [2]int64 {
	return [2]int64{double(int64(s.Start)), double(s.Used)}
}

// FixedWindowOf is the state that Integers gave.
func FixedWindowOf(v [2]int64) FixedWindow {
	return FixedWindow{Start: Micros(v[0]), Used: v[1]}
}

// Append appends the state in [LeakyBucketSize] bytes.
func (s LeakyBucket) Append(b []byte) []byte {
	return appendLE(b, s.Level, s.Part, int64(s.Last), s.Count)
}

// ReadLeakyBucket reads what Append wrote.
func ReadLeakyBucket(b []byte) (s LeakyBucket, ok bool) {
	if len(b) != LeakyBucketSize {
		return s, false
	}
	return LeakyBucket{Level: le(b, 0), Part: le(b, 1), Last: Micros(le(b, 2)), Count: le(b, 3)}, true
}

// Integers is the state for a store.
func (s LeakyBucket) Integers() [4]int64 {
	return [4]int64{double(s.Level), double(s.Part), double(int64(s.Last)), double(s.Count)}
}

// LeakyBucketOf is the state that Integers gave.
func LeakyBucketOf(v [4]int64) LeakyBucket {
	return LeakyBucket{Level: v[0], Part: v[1], Last: Micros(v[2]), Count: v[3]}
}

// Append appends the state in [LeakyQueueSize] bytes.
func (s LeakyQueue) Append(b []byte) []byte { return LeakyBucket(s).Append(b) }

// ReadLeakyQueue reads what Append wrote.
func ReadLeakyQueue(b []byte) (LeakyQueue, bool) {
	s, ok := ReadLeakyBucket(b)
	return LeakyQueue(s), ok
}

// Integers is the state for a store.
func (s LeakyQueue) Integers() [4]int64 { return LeakyBucket(s).Integers() }

// LeakyQueueOf is the state that Integers gave.
func LeakyQueueOf(v [4]int64) LeakyQueue { return LeakyQueue(LeakyBucketOf(v)) }

// Append appends the log, 16 bytes an entry.
func (s SlidingLog) Append(b []byte) []byte {
	for _, e := range s.entries {
		b = appendLE(b, int64(e.At), e.Cost)
	}
	return b
}

// ReadSlidingLog reads what Append wrote, into memory of its own.
func ReadSlidingLog(b []byte) (s SlidingLog, ok bool) {
	if len(b)%logEntrySize != 0 {
		return s, false
	}
	for ; len(b) > 0; b = b[logEntrySize:] {
		s = s.read(LogEntry{At: Micros(le(b, 0)), Cost: le(b, 1)})
	}
	return s, true
}

// Integers is the log for a store: instant and cost of each entry in turn, oldest first.
func (s SlidingLog) Integers() []int64 {
	v := make([]int64, 0, 2*len(s.entries))
	for _, e := range s.entries {
		v = append(v, double(int64(e.At)), double(e.Cost))
	}
	return v
}

// SlidingLogOf is the log that Integers gave, in memory of its own; false for a list of odd length.
func SlidingLogOf(v []int64) (s SlidingLog, ok bool) {
	if len(v)%2 != 0 {
		return s, false
	}
	for ; len(v) > 0; v = v[2:] {
		s = s.read(LogEntry{At: Micros(v[0]), Cost: v[1]})
	}
	return s, true
}

// read is the log with one more entry that came from outside. Against damage, it keeps the order of instants by moving an
// entry later, holds a cost that no log would admit at the most that one would, and merges what exceeds the number of
// entries into the last.
func (s SlidingLog) read(e LogEntry) SlidingLog {
	if uint64(e.Cost-1) >= MaxLogCount {
		e.Cost = MaxLogCount
	}
	if n := len(s.entries); n == MaxLogCount {
		s.entries[n-1].At = max(e.At, s.entries[n-1].At)
	}
	return s.with(e.At, e.Cost)
}

// double is v, held where doubles are exact.
func double(v int64) int64 { return min(max(v, -MaxCount), MaxCount) }

func appendLE(b []byte, values ...int64) []byte {
	for _, v := range values {
		u := uint64(v)
		b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24), byte(u>>32), byte(u>>40), byte(u>>48), byte(u>>56))
	}
	return b
}

// le is the i-th little-endian int64 of b.
func le(b []byte, i int) int64 {
	b = b[8*i : 8*i+8]
	return int64(uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56)
}
