package edge

import (
	"bytes"
	"encoding/binary"
)

// family is the kind of an address.
type family uint8

const (
	other family = iota // unix sockets, whatever cannot be read: all share one bucket, none escapes the rule
	ipv4
	ipv6
)

// address is a client's address in network order, v4 in the upper half of high. Words, not bytes: it goes by value from
// function to function for every request.
type address struct {
	high, low uint64
	family    family
}

// parseAddress reads the forms that a proxy writes an address in: 192.0.2.1, 192.0.2.1:443, 2001:db8::1,
// [2001:db8::1]:443, each v6 with a %zone or not. A v4 address mapped into v6 is v4. All else is other.
func parseAddress(text []byte) address {
	if v4, rest, ok := cutV4(text); ok && (len(rest) == 0 || rest[0] == ':' && isPort(rest[1:])) {
		return v4Address(v4) // what nearly all are, in one pass
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
		v4, rest, ok := cutV4(host)
		if !ok || len(rest) > 0 {
			return address{}
		}
		return v4Address(v4)
	}
	var v6 [16]byte
	if !parseV6(host, &v6) {
		return address{}
	}
	a := address{high: binary.BigEndian.Uint64(v6[:]), low: binary.BigEndian.Uint64(v6[8:]), family: ipv6}
	if a.high == 0 && a.low>>32 == 0xffff {
		return v4Address(uint32(a.low))
	}
	return a
}

func v4Address(v4 uint32) address { return address{high: uint64(v4) << 32, family: ipv4} }

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

// cutV4 reads four decimal numbers of 0 to 255 without leading zeros, which some readers take for octal, off the front.
func cutV4(text []byte) (v4 uint32, rest []byte, ok bool) {
	for i := range 4 {
		n, digits := uint32(0), 0
		for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' && digits < 4 {
			n = 10*n + uint32(text[digits]-'0')
			digits++
		}
		if digits == 0 || n > 255 || digits > 1 && text[0] == '0' {
			return 0, nil, false
		}
		v4 = v4<<8 | n
		text = text[digits:]
		if i < 3 {
			if len(text) == 0 || text[0] != '.' {
				return 0, nil, false
			}
			text = text[1:]
		}
	}
	return v4, text, true
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
			v4, rest, ok := cutV4(text)
			if at > len(dst)-4 || gap < 0 && at != len(dst)-4 || !ok || len(rest) > 0 {
				return false
			}
			binary.BigEndian.PutUint32(dst[at:], v4)
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

// cut is the network that an address pays as: the first bits of its family.
func (a address) cut(v4, v6 uint8) address {
	bits := uint(0)
	switch a.family {
	case ipv4:
		bits = uint(v4)
	case ipv6:
		bits = uint(v6)
	}
	// A shift by 64 or more leaves nothing.
	a.high &= ^(^uint64(0) >> bits)
	if bits <= 64 {
		a.low = 0
	} else {
		a.low &= ^(^uint64(0) >> (bits - 64))
	}
	return a
}

// addressSize is the bytes of an encoded address.
const addressSize = 17

// encode is the address for hashing.
func (a address) encode() (b [addressSize]byte) {
	binary.BigEndian.PutUint64(b[:], a.high)
	binary.BigEndian.PutUint64(b[8:], a.low)
	b[16] = byte(a.family)
	return b
}
