package wasmhost

import (
	"encoding/binary"
	"strings"
)

// Header is one header line; a name may come more than once.
type Header struct{ Name, Value string }

// Headers keep the order they came in. Names are lower case, as Envoy stores them.
type Headers []Header

// Get returns the first value of a name.
func (h Headers) Get(name string) (string, bool) {
	for _, e := range h {
		if strings.EqualFold(e.Name, name) {
			return e.Value, true
		}
	}
	return "", false
}

// Joined returns all values of a name with a comma between them and no space.
func (h Headers) Joined(name string) (string, bool) {
	var values []string
	for _, e := range h {
		if strings.EqualFold(e.Name, name) {
			values = append(values, e.Value)
		}
	}
	return strings.Join(values, ","), len(values) > 0
}

// Add appends a line.
func (h *Headers) Add(name, value string) {
	*h = append(*h, Header{strings.ToLower(name), value})
}

// Remove drops all lines of a name.
func (h *Headers) Remove(name string) {
	kept := (*h)[:0]
	for _, e := range *h {
		if !strings.EqualFold(e.Name, name) {
			kept = append(kept, e)
		}
	}
	*h = kept
}

// Set leaves one line of a name.
func (h *Headers) Set(name, value string) {
	h.Remove(name)
	h.Add(name, value)
}

// size is what Envoy counts against its limit of 60 KiB.
func (h Headers) size() int {
	n := 0
	for _, e := range h {
		n += len(e.Name) + len(e.Value)
	}
	return n
}

// encodePairs is the ABI's form of a header map: count, sizes, then the texts, each with a NUL behind it.
func encodePairs(h Headers) string {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(h)))
	for _, e := range h {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Name)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Value)))
	}
	for _, e := range h {
		b = append(append(append(append(b, e.Name...), 0), e.Value...), 0)
	}
	return string(b)
}

// decodePairs returns nothing for a damaged map, as Envoy does.
func decodePairs(s string) Headers {
	b := []byte(s)
	if len(b) < 4 {
		return nil
	}
	n := int(binary.LittleEndian.Uint32(b))
	if n > len(b)/8 {
		return nil
	}
	sizes, texts := b[4:4+n*8], b[4+n*8:]
	h := make(Headers, 0, n)
	next := func(size uint32) (string, bool) {
		if uint64(size)+1 > uint64(len(texts)) {
			return "", false
		}
		text := string(texts[:size])
		texts = texts[size+1:]
		return text, true
	}
	for i := range n {
		name, ok1 := next(binary.LittleEndian.Uint32(sizes[i*8:]))
		value, ok2 := next(binary.LittleEndian.Uint32(sizes[i*8+4:]))
		if !ok1 || !ok2 {
			return nil
		}
		h = append(h, Header{strings.ToLower(name), value})
	}
	return h
}
