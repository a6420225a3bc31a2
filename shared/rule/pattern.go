package rule

import (
	"math/bits"
	"strings"
)

// Bounds of a pattern.
const (
	maxPathLen  = 1024 // bytes
	maxSegments = 32   // so that a mask of wildcards fits 32 bits
	maxHostLen  = 255  // bytes, the bound of DNS
)

// anyPath is the pattern of a rule that names no path.
const anyPath = "*"

// shape is what patterns have in common that can be looked up by one key: how many segments, which of them are `*`,
// whether everything below is meant, which hosts. A request is looked up once for each shape that the set has.
type shape struct {
	segments uint8
	below    bool   // ends in /**
	host     uint8  // anyHost, exactHost, or how many labels follow the `*.`
	stars    uint32 // bit i: segment i is `*`
}

const (
	anyHost   = 0
	exactHost = 255
)

// before orders shapes from the narrowest to the widest, so that a rule is matched by its narrowest pattern.
func (a shape) before(b shape) bool {
	switch {
	case a.below != b.below:
		return !a.below
	case a.segments != b.segments:
		return a.segments > b.segments
	case a.stars != b.stars:
		if x, y := bits.OnesCount32(a.stars), bits.OnesCount32(b.stars); x != y {
			return x < y
		}
		return a.stars < b.stars
	}
	return a.host > b.host
}

// shapeOf is the shape of a valid path pattern, for any host.
func shapeOf(pattern string) (s shape) {
	if pattern == anyPath {
		return shape{below: true}
	}
	path, below := strings.CutSuffix(pattern, "/**")
	s.below = below
	for rest := strings.TrimPrefix(path, "/"); rest != ""; s.segments++ {
		var segment string
		segment, rest, _ = strings.Cut(rest, "/")
		if segment == "*" {
			s.stars |= 1 << s.segments
		}
	}
	return s
}

// hostShape is the host part of a pattern's shape.
func hostShape(host string) uint8 {
	switch {
	case host == "":
		return anyHost
	case strings.HasPrefix(host, "*."):
		return uint8(strings.Count(host, "."))
	}
	return exactHost
}

// checkPath tells what is wrong with a path pattern, "" for nothing. `*` is one segment, `/**` at the end is everything
// below, the path before it not included.
func checkPath(text string) (reason string) {
	if len(text) > maxPathLen {
		return "want at most 1024 bytes"
	}
	if !strings.HasPrefix(text, "/") {
		return "want a path that begins with /, as /search or /search/**"
	}
	path, below := strings.CutSuffix(text, "/**")
	if below && path == "" {
		return ""
	}
	segments := strings.Split(path[1:], "/")
	if len(segments) > maxSegments {
		return "want at most 32 segments"
	}
	for _, segment := range segments {
		switch {
		case segment == "**":
			return "want ** only as the last segment"
		case segment != "*" && strings.ContainsAny(segment, "*?[]{}#"):
			return "want * or ** as a whole segment, no other wildcard"
		}
		for i := range len(segment) {
			if segment[i] < ' ' || segment[i] == 0x7f {
				return "can never match: want no control characters"
			}
		}
	}
	if plain := NormalizePath(path); plain != path {
		return "can never match: write the path as " + plain
	}
	return ""
}

// checkHost tells what is wrong with a host pattern, "" for nothing.
func checkHost(text string) (reason string) {
	const want = "want a host name or address without port, as api.example.com or *.example.com"
	name := strings.TrimPrefix(text, "*.")
	if name == "" || len(text) > maxHostLen {
		return want
	}
	if name[0] == '[' { // an IPv6 address
		for _, c := range name {
			if !strings.ContainsRune("[]:.0123456789abcdef", c) {
				return want
			}
		}
		if len(text) != len(name) || name[len(name)-1] != ']' {
			return want
		}
		return ""
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return want
		}
		for i := range len(label) {
			if c := label[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				if c >= 'A' && c <= 'Z' {
					return "want lower case: hosts are compared without regard to case"
				}
				return want
			}
		}
	}
	return ""
}

// trimHost is a Host field's name: without port and final dot. Case is left to the comparison.
func trimHost(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	return strings.TrimSuffix(host, ".")
}

// hostCovers tells whether a host pattern means name, which is trimmed.
func hostCovers(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	if parent, ok := strings.CutPrefix(pattern, "*"); ok {
		return len(name) > len(parent) && equalFold(name[len(name)-len(parent):], parent)
	}
	return equalFold(name, pattern)
}

func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// pathCovers tells whether a path pattern means a reading of a path.
func pathCovers(pattern, path string) bool {
	if pattern == anyPath {
		return true
	}
	prefix, below := strings.CutSuffix(pattern, "/**")
	for {
		prefix = strings.TrimPrefix(prefix, "/")
		if prefix == "" {
			// What is left of the path is "", "/" for the root or a trailing slash, or "/…".
			return below && (path != "" || pattern == "/**") || !below && (path == "" || pattern == "/" && path == "/")
		}
		if path == "" || path[0] != '/' {
			return false
		}
		var want, got string
		want, prefix = cutSegment(prefix)
		got, path = cutSegment(path[1:])
		if want != got && (want != "*" || got == "") {
			return false
		}
	}
}

// cutSegment is the first segment of path and what follows, with its slash.
func cutSegment(path string) (segment, rest string) {
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, ""
}
