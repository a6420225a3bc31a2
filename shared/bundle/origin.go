package bundle

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"unsafe"

	"github.com/weirproject/weir/shared/rule"
)

// Errors of origin rules.
var (
	ErrOriginRule  = errors.New("bundle: origin rule: has more patterns, or longer ones, than a rule may have")
	ErrOriginRules = errors.New("bundle: origin rules section is damaged")
)

// OriginRules is what the edge has to know of the origin's rules to apply a refusal of theirs to later requests: which
// ones a rule is for. It is read in place, without an index. The zero value holds none. It is read-only, so any number of
// goroutines may use it.
//
// Section, all integers little-endian: {u32 rules}, for each rule, in ascending order of names, a u32 of where it begins in
// the section, then the rules: {u8 headers, string name, u8 methods, that many strings, u8 header names, that many strings,
// u16 patterns, that many of {string host, u16 length, bytes of the path}}.
type OriginRules struct{ data []byte }

// originHead is the fixed part of an origin rules section.
const originHead = 4

// Len is the number of rules.
func (o OriginRules) Len() int {
	if len(o.data) == 0 {
		return 0
	}
	return int(binary.LittleEndian.Uint32(o.data))
}

// Find is the place of a rule, by halving; ok is false if there is none of that name.
func (o OriginRules) Find(name string) (i int, ok bool) {
	low, high := 0, o.Len()
	for low < high {
		mid := int(uint(low+high) / 2)
		if o.Name(mid) < name {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, low < o.Len() && o.Name(low) == name
}

// Name is the name of rule i, 0 ≤ i < Len. It is part of the bundle's bytes: good as long as they are.
func (o OriginRules) Name(i int) string {
	r := o.record(i)
	r.u8()
	return r.text8()
}

// Headers is how much rule i tells a client.
func (o OriginRules) Headers(i int) rule.Headers { return rule.Headers(o.data[o.start(i)]) }

// Covers tells whether rule i is for a request: the same verdict as [rule.Set.Match] gives at the origin. It allocates
// only for a path of an odd spelling.
func (o OriginRules) Covers(i int, q *rule.Request) bool {
	r := o.record(i)
	r.u8()
	r.text8()
	methods := int(r.u8())
	method := methods == 0
	for range methods {
		method = rule.MethodCovers(r.text8(), q.Method) || method
	}
	if !method {
		return false
	}
	for range int(r.u8()) {
		if name := r.text8(); q.HasHeader == nil || !q.HasHeader(name) {
			return false
		}
	}
	view := q.View()
	for range int(r.u16()) {
		host := r.text8()
		if view.Covers(rule.Pattern{Host: host, Path: r.text16()}) {
			return true
		}
	}
	return false
}

func (o OriginRules) start(i int) int {
	return int(binary.LittleEndian.Uint32(o.data[originHead+4*i:]))
}

func (o OriginRules) record(i int) reader { return reader{data: o.data[o.start(i):]} }

// decodeOrigin walks all rules once, so that nothing read later can leave them.
func decodeOrigin(b []byte) (OriginRules, error) {
	if len(b) < originHead || uint64(binary.LittleEndian.Uint32(b)) > uint64(min(rule.MaxRules, (len(b)-originHead)/4)) {
		return OriginRules{}, ErrOriginRules
	}
	o := OriginRules{b}
	at, before := originHead+4*o.Len(), ""
	for i := range o.Len() {
		if o.start(i) != at {
			return OriginRules{}, ErrOriginRules
		}
		r := reader{data: b[at:]}
		headers, name := r.u8(), r.text8()
		for range 2 { // methods, header names
			for range int(r.u8()) {
				r.text8()
			}
		}
		for range int(r.u16()) {
			r.text8()
			r.text16()
		}
		if r.short || rule.Headers(headers) > rule.None || !rule.ValidName(name) || name <= before {
			return OriginRules{}, ErrOriginRules
		}
		at, before = len(b)-len(r.data), name
	}
	if at != len(b) {
		return OriginRules{}, ErrOriginRules
	}
	return o, nil
}

// encodeOrigin writes the rules of a set that the origin enforces: a shadow rule refuses nothing.
func encodeOrigin(set *rule.Set) ([]byte, error) {
	patterns := set.AllPatterns()
	var rules []rule.Rule
	for r := range set.Rules() {
		if r.Where == rule.Origin && r.Mode == rule.Enforce {
			rules = append(rules, r)
		}
	}
	slices.SortFunc(rules, func(a, b rule.Rule) int { return cmp.Compare(a.Name, b.Name) })
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(len(rules)))
	b = append(b, make([]byte, 4*len(rules))...)
	for i, r := range rules {
		le.PutUint32(b[originHead+4*i:], uint32(len(b)))
		b = append(b, byte(r.Headers))
		b = appendString(b, r.Name)
		for _, list := range [][]string{r.Methods, r.HeaderNames} {
			if len(list) > 0xff {
				return nil, ErrOriginRule
			}
			b = append(b, byte(len(list)))
			for _, text := range list {
				b = appendString(b, text)
			}
		}
		if len(patterns[r.Index]) > 0xffff {
			return nil, ErrOriginRule
		}
		b = le.AppendUint16(b, uint16(len(patterns[r.Index])))
		for _, p := range patterns[r.Index] {
			if len(p.Host) > 0xff || len(p.Path) > 0xffff {
				return nil, ErrOriginRule
			}
			b = appendString(b, p.Host)
			b = le.AppendUint16(b, uint16(len(p.Path)))
			b = append(b, p.Path...)
		}
	}
	if _, err := decodeOrigin(b); err != nil {
		return nil, err
	}
	return b, nil
}

// reader takes fields off the front of data. Past the end it gives zeros and sets short.
type reader struct {
	data  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.data) {
		r.data, r.short = nil, true
		return nil
	}
	taken := r.data[:n]
	r.data = r.data[n:]
	return taken
}

func (r *reader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) text8() string { return view(r.take(int(r.u8()))) }

func (r *reader) text16() string { return view(r.take(int(r.u16()))) }

// view is b as a string without a copy: a bundle's bytes do not change while it is in use.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
