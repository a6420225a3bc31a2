package rule

import (
	"bytes"
	"strings"
)

// NormalizePath is the one spelling of a request path that rules are matched against: the query and fragment are
// cut, percent-encoded octets are decoded, `\` counts as `/`, dot segments are resolved, empty segments and path
// parameters of a segment (`;v=1`) are dropped. `/x/../search`, `//search`, `/%73earch` and `/search;a` are all
// `/search`. The result begins with `/`; it allocates only for a path that is not in this form already.
//
// Decoding goes once: `%2573` is the name `%73`, as a handler behind net/http sees it. An encoded slash is a slash,
// as Envoy's UNESCAPE_AND_REDIRECT and most handlers take it.
func NormalizePath(raw string) string {
	if end := strings.IndexAny(raw, "?#"); end >= 0 {
		raw = raw[:end]
	}
	if isNormal(raw) {
		return raw
	}
	// Dot segments go first, while empty segments still count as segments, then the empty ones: the order of Envoy's
	// normalize_path and merge_slashes, so that `/a//..` is `/a` at both.
	out := make([]byte, 0, len(raw)+1)
	for rest, more := strings.TrimPrefix(decode(raw), "/"), true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		segment, _, _ = strings.Cut(segment, ";")
		switch segment {
		case ".":
		case "..":
			out = out[:max(0, bytes.LastIndexByte(out, '/'))]
		default:
			out = append(append(out, '/'), segment...)
		}
	}
	return mergeSlashes(out)
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

// isNormal tells whether raw is a normal path already: the common case, which costs one pass.
func isNormal(raw string) bool {
	if raw == "" || raw[0] != '/' {
		return false
	}
	if raw == "/" {
		return true
	}
	for i := range len(raw) {
		switch raw[i] {
		case '%', '\\', ';':
			return false
		case '/':
			if i+1 == len(raw) || raw[i+1] == '/' || raw[i+1] == '.' {
				return false
			}
		}
	}
	return true
}

// decode resolves percent-encoding once, taking `\` for `/`. A `%` without two hex digits stands for itself.
func decode(raw string) string {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '%' && i+2 < len(raw) {
			if hi, lo := unhex(raw[i+1]), unhex(raw[i+2]); hi >= 0 && lo >= 0 {
				c = byte(hi<<4 | lo)
				i += 2
			}
		}
		if c == '\\' {
			c = '/'
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

// pattern is a compiled path: an exact path, or a path with everything below it.
type pattern struct {
	text  string // as written: the name of the endpoint
	path  string // normal form, without the wildcard
	below bool   // `path/**`: everything below path, path itself not
}

// parsePattern reads `/a/b` or `/a/b/**`. The reason is empty when text is one.
func parsePattern(text string) (p pattern, reason string) {
	p = pattern{text: text, path: text}
	if rest, ok := strings.CutSuffix(text, "/**"); ok {
		p.below, p.path = true, rest
		if rest == "" {
			p.path = "/"
		}
	}
	switch {
	case !strings.HasPrefix(text, "/"):
		return p, "want a path that begins with /, as /search or /search/**"
	case strings.ContainsAny(p.path, "*?[]{}#"):
		return p, "want a path without wildcards, but for /** at its end"
	case NormalizePath(p.path) != p.path:
		return p, "can never match: write the path as " + NormalizePath(p.path)
	}
	return p, ""
}
