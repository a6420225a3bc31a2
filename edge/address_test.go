package edge

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
)

func TestEveryFormOfOneAddressIsOneAddress(t *testing.T) {
	for _, same := range [][]string{
		{"1.2.3.4", "1.2.3.4:80", "1.2.3.4:0", "::ffff:1.2.3.4", "[::ffff:1.2.3.4]:80", "::ffff:102:304", "[1.2.3.4]:80", "::FFFF:1.2.3.4%eth0"},
		{"2001:db8::1", "[2001:db8::1]:443", "[2001:db8::1]", "2001:db8::1%eth0", "[2001:db8::1%25eth0]:1", "2001:0DB8:0:0:0:0:0:1", "2001:db8::0.0.0.1"},
		{"::", "0:0:0:0:0:0:0:0", "[::]:1", "::0.0.0.0"},
		{"", "unknown", "garbage, 1.2.3.4", "/var/run/envoy.sock", "@abstract", "1.2.3", "1.2.3.4.5", "1.2.3.256", "01.2.3.4",
			"1.2.3.4:", "1.2.3.4:x", "1.2.3.4:123456", "[::1", "[::1]x", "[::1]:", ":", ":::", "1::2::3", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9",
			"1:2:3:4:5:6:7::8", "12345::", "::1:", "::%", "1.2.3.4%eth0", "::1.2.3", "envoy://internal", "\x00", strings.Repeat("1.2.3.4, ", 200)},
	} {
		want := parseAddress([]byte(same[0]))
		for _, text := range same {
			if got := parseAddress([]byte(text)); got != want {
				t.Errorf("%q is %v, %q is %v", text, got, same[0], want)
			}
		}
	}
	if parseAddress(nil).family != other {
		t.Error("an absent address has a family")
	}
}

func TestANetworkPaysAsOne(t *testing.T) {
	cut := func(text string, v4, v6 uint8) address {
		a := parseAddress([]byte(text))
		a = a.cut(v4, v6)
		return a
	}
	for _, c := range []struct {
		a, b   string
		v4, v6 uint8
		same   bool
	}{
		{"2001:db8::1", "2001:db8::ffff:1:2:3", 32, 64, true},
		{"2001:db8:0:1::1", "2001:db8:0:2::1", 32, 64, false},
		{"2001:db8:0:1::1", "2001:db8:0:2::1", 32, 48, true},
		{"2001:db8:0:f::1", "2001:db8:0:e::1", 32, 63, true},
		{"2001:db8:0:f::1", "2001:db8:0:d::1", 32, 63, false},
		{"2001:db8::1", "2001:db8::2", 32, 128, false},
		{"1.2.3.4", "1.2.3.5", 32, 64, false},
		{"1.2.3.4", "1.2.3.5", 24, 64, true},
		{"1.2.3.4", "9.9.9.9", 0, 64, true},
		{"1.2.3.4", "::", 0, 0, false}, // families never share a bucket
	} {
		if got := cut(c.a, c.v4, c.v6) == cut(c.b, c.v4, c.v6); got != c.same {
			t.Errorf("%s and %s under /%d and /%d: same %v, want %v", c.a, c.b, c.v4, c.v6, got, c.same)
		}
	}
}

// The standard library's reader is the judge of what an address is.
func FuzzAddressAgainstTheStandardLibrary(f *testing.F) {
	for _, seed := range []string{"1.2.3.4", "1.2.3.4:80", "::1", "[::1]:80", "::ffff:1.2.3.4", "fe80::1%eth0", "1:2:3:4:5:6:7::", "::1.2.3.4", "[]", "%"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := parseAddress(text)
		want := address{}
		for _, candidate := range candidates(string(text)) {
			a, err := netip.ParseAddr(candidate)
			if err != nil {
				continue
			}
			if a = a.Unmap().WithZone(""); a.Is4() {
				b := a.As4()
				want = v4Address(binary.BigEndian.Uint32(b[:]))
			} else {
				b := a.As16()
				want = address{family: ipv6, high: binary.BigEndian.Uint64(b[:]), low: binary.BigEndian.Uint64(b[8:])}
			}
			break
		}
		if got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	})
}

// candidates are the readings of text as host alone, host and port, or host in brackets.
func candidates(text string) []string {
	digits := func(s string) bool { return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == "" }
	if inner, ok := strings.CutPrefix(text, "["); ok {
		host, port, ok := strings.Cut(inner, "]")
		if ok && (port == "" || port[0] == ':' && digits(port[1:])) {
			return []string{host}
		}
		return nil
	}
	if host, port, ok := strings.Cut(text, ":"); ok && !strings.Contains(port, ":") {
		if digits(port) {
			return []string{host}
		}
		return nil
	}
	return []string{text}
}
