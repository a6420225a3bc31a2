package rule

import (
	"math/bits"
	"slices"
	"strings"

	"github.com/weirproject/weir/shared/limit"
)

// Set is a validated rule set with an index: finding the rules of a request costs one lookup for each shape that the
// rules' patterns have, however many rules there are. It is read-only after [Compile], so any number of goroutines may
// use it.
type Set struct {
	EdgeSettings EdgeSettings

	records []record // of all rules, in the order of the file
	names   string   // all names, one after the other
	limits  []limit.Limit
	terms   []*Terms
	valid   map[uint32]*limit.Limit // by rule, of the few that have one

	text      string // all path patterns, which entries are parts of
	hosts     []string
	entries   []entry
	index     index
	shapes    []shape
	longest   int // segments of the longest pattern
	overrides map[subject]allowance
	tiers     map[string]allowance
}

// Request is what of a request decides which rules apply to it.
type Request struct {
	Method string
	Path   string // as the client sent it; a query is cut
	Host   string // a port and a final dot are cut; case does not count
	// HasHeader tells whether the request has a header of that name, given in lower case; nil: it has none.
	HasHeader func(name string) bool
}

// Matched is a rule that applies to a request, with the pattern that it matched by: `*` for a rule without paths.
type Matched struct {
	Rule    Rule
	Pattern string
}

// Match appends the rules of one tier that apply to a request, each once, by its narrowest pattern. A path that handlers
// may read in several ways matches the rules of all of them, so that no spelling reaches a handler without matching
// the rules that protect it. It allocates only if dst has no room or the path has an odd spelling.
func (s *Set) Match(where Where, q Request, dst []Matched) []Matched {
	dst, _ = s.match(where, &q, dst)
	return dst
}

// match counts the slots of the index that it looked into.
func (s *Set) match(where Where, q *Request, dst []Matched) (_ []Matched, probes int) {
	paths := readPath(q.Path)
	from := len(dst)
	host := trimHost(q.Host)
	for _, path := range paths.spelling[:paths.n] {
		var n int
		dst, n = s.matchReading(where, q, host, path, dst, from)
		probes += n
	}
	return dst, probes
}

// segmentHashes are the hashes of a path's segments, as far as patterns go.
type segmentHashes struct {
	hash  [maxSegments]uint64
	plain [maxSegments + 1]uint64 // of the path up to a segment, without wildcards
	n     int                     // segments of the path; one more than hashed where it is longer
	empty bool                    // the path ends in /
}

func (h *segmentHashes) of(path string, longest int) {
	if path == "/" {
		return
	}
	for path != "" {
		if h.n == longest {
			h.n++
			return
		}
		var segment string
		segment, path = cutSegment(path[1:])
		h.empty = segment == "" && path == ""
		h.hash[h.n] = hashText(segment, false)
		h.plain[h.n+1] = appendHash(h.plain[h.n], h.hash[h.n])
		h.n++
	}
}

// key is the hash of the path's first segments under a shape's wildcards.
func (h *segmentHashes) key(s shape) uint64 {
	if s.stars == 0 {
		return h.plain[s.segments]
	}
	first := bits.TrailingZeros32(s.stars)
	key := h.plain[first]
	for i := first; i < int(s.segments); i++ {
		if s.stars&(1<<i) != 0 {
			key = appendHash(key, starHash)
		} else {
			key = appendHash(key, h.hash[i])
		}
	}
	return key
}

func (s *Set) matchReading(where Where, q *Request, host, path string, dst []Matched, from int) (_ []Matched, probes int) {
	var hashes segmentHashes
	hashes.of(path, s.longest)
	for _, form := range s.shapes {
		depth := int(form.segments)
		if form.below && depth >= hashes.n && depth > 0 || !form.below && depth != hashes.n {
			continue
		}
		name := ""
		if form.host != anyHost {
			var ok bool
			if name, ok = hostKey(host, form.host); !ok {
				continue
			}
		}
		probes++
		first, ok := s.index.find(finish(hashes.key(form), form.below, hostHash(name)))
		if !ok || !s.isKey(s.entries[first], form, host, path) {
			continue
		}
		for i := first; ; i++ {
			e := s.entries[i]
			dst = s.admit(where, q, e, dst, from)
			if e.size&lastOfKey != 0 {
				break
			}
		}
	}
	return dst, probes
}

// hostKey is the text that a host is looked up by.
func hostKey(host string, form uint8) (name string, ok bool) {
	if form == exactHost {
		return host, true
	}
	at := len(host)
	for range form {
		if at = strings.LastIndexByte(host[:at], '.'); at <= 0 {
			return "", false
		}
	}
	return host[at:], true
}

// isKey tells whether an entry has the key that its slot was looked up by, rather than another of the same slot.
func (s *Set) isKey(e entry, form shape, host, path string) bool {
	pattern := s.pattern(e)
	own := shapeOf(pattern)
	own.host = hostShape(s.hosts[e.host])
	return own == form && hostCovers(s.hosts[e.host], host) && pathCovers(pattern, path)
}

func (s *Set) pattern(e entry) string { return s.text[e.text : e.text+uint32(e.size&^lastOfKey)] }

// admit appends the entry's rule unless it is of another tier, wants something else of the request or is in
// dst[from:] already.
func (s *Set) admit(where Where, q *Request, e entry, dst []Matched, from int) []Matched {
	t := s.terms[s.records[e.rule].terms]
	if t.Where != where || !t.hasMethod(q.Method) || t.missingHeader(q) != "" {
		return dst
	}
	for i := from; i < len(dst); i++ {
		if dst[i].Rule.Index == uint32(e.rule) {
			return dst
		}
	}
	return append(dst, Matched{Rule: s.Rule(int(e.rule)), Pattern: s.pattern(e)})
}

// hasMethod tells whether the rule applies to a method. A handler of GET answers HEAD as well.
func (t *Terms) hasMethod(method string) bool {
	return len(t.Methods) == 0 || slices.ContainsFunc(t.Methods, func(listed string) bool { return MethodCovers(listed, method) })
}

// missingHeader is the first header that the rule wants and the request lacks, "" for none.
func (t *Terms) missingHeader(q *Request) string {
	for _, name := range t.HeaderNames {
		if q.HasHeader == nil || !q.HasHeader(name) {
			return name
		}
	}
	return ""
}

// Mismatch tells why a rule does not apply to a request, "" if it does. It compares each pattern of the rule by itself,
// which is slow and independent of the index.
func (s *Set) Mismatch(r *Rule, q Request) string {
	if !r.hasMethod(q.Method) {
		return "it is for the methods " + strings.Join(r.Methods, ", ")
	}
	if name := r.missingHeader(&q); name != "" {
		return "the request has no header " + name
	}
	host, paths := trimHost(q.Host), readPath(q.Path)
	hostFits := false
	var hosts, patterns []string
	for _, p := range s.Patterns(r) {
		fits := hostCovers(p.Host, host)
		hostFits = hostFits || fits
		for _, path := range paths.spelling[:paths.n] {
			if fits && pathCovers(p.Path, path) {
				return ""
			}
		}
		if !slices.Contains(hosts, p.Host) {
			hosts = append(hosts, p.Host)
		}
		if !slices.Contains(patterns, p.Path) {
			patterns = append(patterns, p.Path)
		}
	}
	slices.Sort(hosts)
	slices.Sort(patterns)
	if !hostFits {
		return "it is for the hosts " + strings.Join(hosts, ", ")
	}
	return "it is for the paths " + strings.Join(patterns, ", ")
}

// Pattern is one combination of host and path that a rule applies to.
type Pattern struct {
	Host string // "" for any
	Path string // `*` for any
}

// Patterns are the combinations that r applies to. It looks at every entry of the set.
func (s *Set) Patterns(r *Rule) []Pattern {
	var patterns []Pattern
	for _, e := range s.entries {
		if uint32(e.rule) == r.Index {
			patterns = append(patterns, Pattern{s.hosts[e.host], s.pattern(e)})
		}
	}
	return patterns
}

// allPatterns are the Patterns of all rules, by index.
func (s *Set) allPatterns() [][]Pattern {
	patterns := make([][]Pattern, s.Len())
	for _, e := range s.entries {
		patterns[e.rule] = append(patterns[e.rule], Pattern{s.hosts[e.host], s.pattern(e)})
	}
	return patterns
}

// build makes the index of all patterns; it gives false where the rules cannot be indexed.
func (s *Set) build(patterns [][]Pattern) bool {
	var text strings.Builder
	at := make(map[string]uint32)
	intern := func(name string) uint32 {
		if _, known := at[name]; !known {
			at[name] = uint32(text.Len())
			text.WriteString(name)
		}
		return at[name]
	}
	hosts := map[string]uint32{"": 0}
	s.hosts = []string{""}
	count := 0
	for _, list := range patterns {
		count += len(list)
	}
	s.entries = make([]entry, 0, count)
	for i, list := range patterns {
		for _, p := range list {
			if _, known := hosts[p.Host]; !known {
				hosts[p.Host] = uint32(len(s.hosts))
				s.hosts = append(s.hosts, p.Host)
			}
			s.entries = append(s.entries, entry{host: hosts[p.Host], text: intern(p.Path), rule: uint16(i), size: uint16(len(p.Path))})
		}
	}
	s.text = strings.Clone(text.String()) // without the room to grow
	return s.place()
}

// place groups the entries by key and finds each key its slot.
func (s *Set) place() bool {
	key := func(e entry) uint64 { return keyOf(s.hosts[e.host], s.pattern(e)) }
	same := func(a, b entry) bool {
		x, y := s.pattern(a), s.pattern(b)
		return a.host == b.host && (x == y || shapeOf(x) == shapeOf(y) && shapeOf(x).segments == 0)
	}
	slices.SortStableFunc(s.entries, func(a, b entry) int {
		if x, y := key(a), key(b); x != y {
			if x < y {
				return -1
			}
			return 1
		}
		return 0
	})
	var keys []keyed
	shapes := map[shape]bool{}
	for i, e := range s.entries {
		if i > 0 && key(e) == key(s.entries[i-1]) && !same(e, s.entries[i-1]) {
			return false
		}
		if i == 0 || key(e) != key(s.entries[i-1]) {
			keys = append(keys, keyed{key(e), uint32(i)})
		}
		if i+1 == len(s.entries) || key(e) != key(s.entries[i+1]) {
			s.entries[i].size |= lastOfKey
		}
		form := shapeOf(s.pattern(e))
		form.host = hostShape(s.hosts[e.host])
		if !shapes[form] {
			shapes[form] = true
			s.shapes = append(s.shapes, form)
			s.longest = max(s.longest, int(form.segments))
		}
	}
	slices.SortFunc(s.shapes, func(a, b shape) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	var ok bool
	s.index, ok = newIndex(keys)
	return ok
}
