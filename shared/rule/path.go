package rule

import (
	"bytes"
	"strings"
)

// NormalizePath is the plain spelling of a request path: the query and fragment are cut, percent-encoded octets are
// decoded, `\` counts as `/`, dot segments are resolved, empty segments and path parameters of a segment (`;v=1`) are
// dropped. `/x/../search`, `//search`, `/%73earch` and `/search;a` are all `/search`. Letter case counts, as it does
// for handlers. The result begins with `/`; it allocates only for a path that is not in this form already.
//
// Decoding goes once: `%2573` is the name `%73`, as a handler behind net/http sees it. An encoded slash is a slash,
// as Envoy's UNESCAPE_AND_REDIRECT and most handlers take it. Where handlers differ on what a spelling means, a rule
// is matched by every meaning: see [Set.Match].
func NormalizePath(raw string) string {
	return readPath(raw).spelling[0]
}

// Readings are all that a raw request path may mean, the plain one of [NormalizePath] first: what rules are matched by. A
// slash that is part of a segment is shown as %2F.
func Readings(raw string) []string {
	r := readPath(raw)
	texts := make([]string, r.n)
	for i, path := range r.spelling[:r.n] {
		texts[i] = strings.ReplaceAll(strings.ReplaceAll(path, "\x00.", "%2E"), "\x00", "%2F")
	}
	return texts
}

// readings are what a path may mean to whoever handles it. A spelling that all handlers agree on has one; the others
// pay for all that they might reach, since no reading is right everywhere: to net/http `/a/%2e%2e/b` is below /a,
// to Envoy it is /b; to Tomcat `/a/..;/b` is /b, to all others it is below /a.
//
// In a reading, segments are decoded, and a slash that is part of a segment is NUL, which no pattern has. An empty
// last segment stands for a trailing slash.
type readings struct {
	spelling [9]string
	n        int
}

func (r *readings) add(path string) {
	for _, known := range r.spelling[:r.n] {
		if known == path {
			return
		}
	}
	r.spelling[r.n] = path
	r.n++
}

// readPath gives all readings of a raw request path, the plain one of [NormalizePath] first.
func readPath(raw string) (r readings) {
	if end := strings.IndexByte(raw, '?'); end >= 0 {
		raw = raw[:end]
	}
	if isNormal(raw) {
		r.add(raw)
		return r
	}
	if short, ok := strings.CutSuffix(raw, "/"); ok && isNormal(short) {
		r.add(short)
		r.add(raw) // a handler of a whole subtree has /a/ in it
		return r
	}
	for _, cut := range []bool{true, false} { // Envoy: a parameter is part of its segment
		path, below := resolved(raw, cut)
		r.add(path)
		if below && path != "/" {
			r.add(path + "/")
		}
	}
	r.add(merged(segmented(raw)))                        // net/http: cleans what was written, then decodes each segment
	r.add(merged(decode(raw, '/', '\\')))                // nginx, older frameworks: decode, merge slashes, resolve dots
	r.add("/" + strings.TrimPrefix(segmented(raw), "/")) // frameworks that resolve nothing
	servlet := merged(decode(withoutParameters(raw), '/', '/'))
	r.add(servlet) // Tomcat: a parameter ends at a written slash alone, then as nginx
	if short := strings.TrimSuffix(servlet, "/"); short != "" {
		r.add(short) // to frameworks that take /a/ for /a
	}
	return r
}

// withoutParameters is raw without the parameters of its segments, as they are written: an encoded slash is part of one.
func withoutParameters(raw string) string {
	if strings.IndexByte(raw, ';') < 0 {
		return raw
	}
	out := make([]byte, 0, len(raw))
	parameter := false
	for i := range len(raw) {
		switch raw[i] {
		case '/':
			parameter = false
		case ';':
			parameter = true
		}
		if !parameter {
			out = append(out, raw[i])
		}
	}
	return string(out)
}

// resolved decodes, cuts parameters if asked to, resolves dot segments while empty segments still count as segments,
// then drops the empty ones: the order of Envoy's normalize_path and merge_slashes, so that `/a//..` is `/a` at both.
// below tells that a slash ends the path, if only before a dot segment.
func resolved(raw string, cut bool) (path string, below bool) {
	if end := strings.IndexByte(raw, '#'); end >= 0 {
		raw = raw[:end]
	}
	out := make([]byte, 0, len(raw)+1)
	for rest, more := strings.TrimPrefix(decode(raw, '/', '/'), "/"), true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		if cut {
			segment, _, _ = strings.Cut(segment, ";")
		}
		below = segment == "" || segment == "." || segment == ".."
		switch segment {
		case ".":
		case "..":
			out = out[:max(0, bytes.LastIndexByte(out, '/'))]
		default:
			out = append(append(out, '/'), segment...)
		}
	}
	return mergeSlashes(out), below
}

// mergeSlashes drops empty segments, the last one included.
func mergeSlashes(path []byte) string {
	out := path[:0]
	for i, c := range path {
		if c != '/' || i+1 < len(path) && path[i+1] != '/' {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return "/"
	}
	return string(out)
}

// merged drops empty segments, then resolves dot segments, keeping a trailing slash, which a dot segment at the end leaves
// behind as well.
func merged(path string) string {
	out := make([]byte, 0, len(path)+1)
	segment := ""
	for rest, more := path, true; more; {
		segment, rest, more = strings.Cut(rest, "/")
		switch segment {
		case "", ".":
		case "..":
			out = out[:max(0, bytes.LastIndexByte(out, '/'))]
		default:
			out = append(append(out, '/'), segment...)
		}
	}
	if segment == "" || segment == "." || segment == ".." || len(out) == 0 {
		if len(out) == 0 || out[len(out)-1] != '/' {
			out = append(out, '/')
		}
	}
	return string(out)
}

// segmented decodes each segment by itself. Encoded dots are dots of a name, not dot segments, for whoever works like
// that: NUL before them keeps them apart.
func segmented(raw string) string {
	out := make([]byte, 0, len(raw))
	for rest, more := raw, true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		text := decode(segment, 0, '\\')
		if text != segment && (text == "." || text == "..") {
			out = append(out, 0)
		}
		out = append(out, text...)
		if more {
			out = append(out, '/')
		}
	}
	return string(out)
}

// isNormal tells whether raw has one reading, which is raw: the common case, which costs one pass.
func isNormal(raw string) bool {
	if raw == "" || raw[0] != '/' {
		return false
	}
	if raw == "/" {
		return true
	}
	for i := range len(raw) {
		switch raw[i] {
		case '%', '\\', ';', '#', 0:
			return false
		case '/':
			if i+1 == len(raw) || raw[i+1] == '/' || dots(raw[i+1:]) {
				return false
			}
		}
	}
	return true
}

// dots tells whether rest begins with the segment `.` or `..`.
func dots(rest string) bool {
	for i := range min(len(rest), 3) {
		if rest[i] != '.' {
			return i > 0 && rest[i] == '/'
		}
	}
	return len(rest) < 3
}

// decode resolves percent-encoding once. An encoded slash becomes slash, a backslash in any form becomes backslash. A
// `%` without two hex digits stands for itself.
func decode(raw string, slash, backslash byte) string {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '%' && i+2 < len(raw) {
			if hi, lo := unhex(raw[i+1]), unhex(raw[i+2]); hi >= 0 && lo >= 0 {
				c = byte(hi<<4 | lo)
				i += 2
				if c == '/' {
					c = slash
				}
			}
		}
		if c == '\\' {
			c = backslash
		}
		out = append(out, c)
	}
	return string(out)
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
