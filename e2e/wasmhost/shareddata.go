package wasmhost

// SharedData is Envoy's process-wide key-value store: one map for a vm_id, one counter of cas values for the whole
// process, no deletion and no expiry.
type SharedData struct {
	values map[string]sharedValue
	last   uint32
	gets   int
	sets   int
}

type sharedValue struct {
	bytes string
	cas   uint32
}

// NewSharedData is empty; its first value gets the cas 1.
func NewSharedData() *SharedData {
	return &SharedData{values: map[string]sharedValue{}, last: 1}
}

// Get returns a value and its cas.
func (s *SharedData) Get(key string) (value string, cas uint32, ok bool) {
	s.gets++
	v, ok := s.values[key]
	return v.bytes, v.cas, ok
}

// Set stores a value under the next cas of the process. A cas of 0 overwrites whatever is there. Another cas must
// equal the stored one, except where the key is missing: there any cas is taken, which makes a cas that no value
// can have an atomic "create".
func (s *SharedData) Set(key, value string, cas uint32) bool {
	s.sets++
	if old, ok := s.values[key]; ok && cas != 0 && cas != old.cas {
		return false
	}
	s.values[key] = sharedValue{bytes: value, cas: s.next()}
	return true
}

// next never gives 0, which stands for "overwrite".
func (s *SharedData) next() uint32 {
	cas := s.last
	s.last++
	if s.last == 0 {
		s.last = 1
	}
	return cas
}

// Len is the number of keys, which can only grow.
func (s *SharedData) Len() int { return len(s.values) }

// Operations counts the gets and sets so far, refused sets included.
func (s *SharedData) Operations() (gets, sets int) { return s.gets, s.sets }
