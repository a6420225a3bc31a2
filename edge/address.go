package edge

import "bytes"

// family is the kind of an address.
type family uint8

const (
	other family = iota // unix sockets, whatever cannot be read: all share one bucket, none escapes the rule
	ipv4
	ipv6
)

// address is a client's address; bytes past its family's length are zero.
type address struct {
	family family
	bytes  [16]byte
}

// parseAddress reads the forms that a proxy writes an address in: 192.0.2.1, 192.0.2.1:443, 2001:db8::1,
// [2001:db8::1]:443, each v6 with a %zone or not. A v4 address mapped into v6 is v4. All else is other.
func parseAddress(text []byte) address {
	a := address{family: ipv4}
	if rest, ok := cutV4(text, a.bytes[:4]); ok && (len(rest) == 0 || rest[0] == ':' && isPort(rest[1:])) {
		return a // what nearly all are, in one pass
	}
	host, ok := cutPort(text)
	if !ok {
		return address{}
	}
	if i := bytes.IndexByte(host, '%'); i >= 0 && bytes.IndexByte(host, ':') >= 0 {
		if i == len(host)-1 {
			return address{}
		}
		host = host[:i]
	}
	if bytes.IndexByte(host, ':') < 0 {
		if !parseV4(host, a.bytes[:4]) {
			return address{}
		}
		return a
	}
	a = address{family: ipv6}
	if !parseV6(host, &a.bytes) {
		return address{}
	}
	if string(a.bytes[:12]) == "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff" {
		mapped := address{family: ipv4}
		copy(mapped.bytes[:4], a.bytes[12:])
		return mapped
	}
	return a
}

// cutPort takes brackets and port off.
func cutPort(text []byte) (host []byte, ok bool) {
	if len(text) > 0 && text[0] == '[' {
		end := bytes.IndexByte(text, ']')
		if end < 0 {
			return nil, false
		}
		rest := text[end+1:]
		return text[1:end], len(rest) == 0 || rest[0] == ':' && isPort(rest[1:])
	}
	colon := bytes.IndexByte(text, ':')
	if colon < 0 || bytes.IndexByte(text[colon+1:], ':') >= 0 {
		return text, true
	}
	return text[:colon], isPort(text[colon+1:])
}

func isPort(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(text) >= 1 && len(text) <= 5
}

// parseV4 reads the whole of text as cutV4 does.
func parseV4(text, dst []byte) bool {
	rest, ok := cutV4(text, dst)
	return ok && len(rest) == 0
}

// cutV4 reads four decimal numbers of 0 to 255 without leading zeros, which some readers take for octal, off the front.
func cutV4(text, dst []byte) (rest []byte, ok bool) {
	for i := range dst {
		n, digits := 0, 0
		for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' && digits < 4 {
			n = 10*n + int(text[digits]-'0')
			digits++
		}
		if digits == 0 || n > 255 || digits > 1 && text[0] == '0' {
			return nil, false
		}
		dst[i] = byte(n)
		text = text[digits:]
		if i < len(dst)-1 {
			if len(text) == 0 || text[0] != '.' {
				return nil, false
			}
			text = text[1:]
		}
	}
	return text, true
}

// parseV6 reads the forms of RFC 4291 section 2.2.
func parseV6(text []byte, dst *[16]byte) bool {
	at, gap := 0, -1
	if len(text) >= 2 && text[0] == ':' && text[1] == ':' {
		gap, text = 0, text[2:]
	}
	for len(text) > 0 {
		if at == len(dst) {
			return false
		}
		n, digits := 0, 0
		for digits < len(text) && digits < 5 {
			d := hexDigit(text[digits])
			if d < 0 {
				break
			}
			n = 16*n + d
			digits++
		}
		if digits < len(text) && text[digits] == '.' { // the last four bytes in v4 form
			if at > len(dst)-4 || gap < 0 && at != len(dst)-4 || !parseV4(text, dst[at:at+4]) {
				return false
			}
			at += 4
			break
		}
		if digits == 0 || digits > 4 {
			return false
		}
		dst[at], dst[at+1] = byte(n>>8), byte(n)
		at += 2
		text = text[digits:]
		if len(text) == 0 {
			break
		}
		if text[0] != ':' || len(text) == 1 {
			return false
		}
		text = text[1:]
		if text[0] == ':' {
			if gap >= 0 {
				return false
			}
			gap, text = at, text[1:]
		}
	}
	if gap < 0 {
		return at == len(dst)
	}
	if at == len(dst) {
		return false // a gap stands for at least one group
	}
	tail := at - gap
	copy(dst[len(dst)-tail:], dst[gap:at])
	clear(dst[gap : len(dst)-tail])
	return true
}

func hexDigit(c byte) int {
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

// cut clears what lies beyond the prefix of the address's family, so that a network pays as one.
func (a *address) cut(v4, v6 uint8) {
	bits := 0
	switch a.family {
	case ipv4:
		bits = int(v4)
	case ipv6:
		bits = int(v6)
	}
	for i := range a.bytes {
		if keep := bits - 8*i; keep <= 0 {
			a.bytes[i] = 0
		} else if keep < 8 {
			a.bytes[i] &= 0xff << (8 - keep)
		}
	}
}
