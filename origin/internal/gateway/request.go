package gateway

import (
	"net/http"
	"strings"
)

// misunderstood names what of a request makes it unclear what it asks for; empty if it is clear. The rest of the odd
// requests net/http refuses itself. What passes here, [http.Transport] can send: else its sender's mistake would be told as
// the API's.
func misunderstood(r *http.Request) string {
	switch {
	case r.Method == http.MethodConnect || !token(r.Method):
		return "method"
	case r.URL.Opaque != "" || !strings.HasPrefix(r.URL.Path, "/"):
		return "target"
	case !visible(r.URL.RawQuery):
		return "query"
	case !hostname(r.Host):
		return "host"
	}
	for _, line := range r.Header["Upgrade"] {
		if !plain(line) {
			return "upgrade"
		}
	}
	for name := range r.Header {
		if strings.IndexByte(name, '_') >= 0 {
			return strings.ToLower(name) // X_Api_Key is X-Api-Key to a CGI or WSGI server; the edge refuses these too
		}
	}
	for name := range r.Trailer {
		if !token(name) || strings.IndexByte(name, '_') >= 0 {
			return "trailer"
		}
	}
	return ""
}

// plain tells whether a field holds visible ASCII and spaces only.
func plain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// visible tells whether text can stand in a request line: no control characters, no spaces. HTTP/2 lets them come this
// far, where they would split an HTTP/1.1 line.
func visible(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] == 0x7f {
			return false
		}
	}
	return true
}

// hostname tells whether text can stand in a Host header: a name, an address, a port. An absolute request target may hold
// anything that a URL can.
func hostname(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c > '~' || strings.IndexByte(`"#/<>?@\^{|}`+"`", c) >= 0 {
			return false
		}
	}
	return true
}

// token tells whether text is a token of RFC 9110 section 5.6.2, as methods and names of fields are.
func token(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c > '~' || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return text != ""
}
