package replay

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirproject/weir/origin/internal/terminal"
	"github.com/weirproject/weir/shared/rule"
)

// maxValue is how much of one part of a principal is kept as written; a longer one is told apart by its hash.
const maxValue = 256

// appendPrincipal appends who a call is to a rule: for each chosen part its kind, length and value, so that no two
// principals run into the same bytes, and the parts can be shown.
func appendPrincipal(dst []byte, r *rule.Rule, chosen []rule.Part, c *Call, pattern string) []byte {
	for _, part := range chosen {
		switch part {
		case rule.Key:
			dst = appendPart(dst, part, c.Caller.Key)
		case rule.User:
			dst = appendPart(dst, part, c.Caller.User)
		case rule.Tenant:
			dst = appendPart(dst, part, c.Caller.Tenant)
		case rule.Address:
			dst = appendAddress(dst, r, c)
		case rule.Endpoint:
			dst = appendPart(dst, part, rule.EndpointMethod(c.Method)+" "+pattern)
		case rule.Global:
			dst = appendPart(dst, part, "")
		}
	}
	return dst
}

func appendPart(dst []byte, part rule.Part, value string) []byte {
	if len(value) > maxValue {
		sum := sha256.Sum256([]byte(value))
		value = value[:64] + "…" + hex.EncodeToString(sum[:16])
	}
	dst = binary.AppendUvarint(append(dst, byte(part)), uint64(len(value)))
	return append(dst, value...)
}

// appendAddress appends the network of the caller. The edge keeps a bucket for callers with a key that it knows, one for
// the others; a trace's keys count as known.
func appendAddress(dst []byte, r *rule.Rule, c *Call) []byte {
	v4, v6 := rule.DefaultPrefixV4, rule.DefaultPrefixV6
	class := byte(0)
	if r.Where == rule.Edge {
		v4, v6 = r.PrefixV4, r.PrefixV6
		if c.Caller.Key != "" {
			class = 1
		}
	}
	bits := v6
	if c.Address.Is4() {
		bits = v4
	}
	network, err := c.Address.Prefix(bits)
	if err != nil { // bits are validated with the rule
		network = netip.PrefixFrom(c.Address, c.Address.BitLen())
	}
	at := network.Addr().AsSlice()
	dst = append(dst, byte(rule.Address), byte(len(at)+2), class, byte(network.Bits()))
	return append(dst, at...)
}

// spell shows a principal: `key=acme-prod endpoint=GET /search`.
func spell(principal string) string {
	var texts []string
	for rest := []byte(principal); len(rest) > 0; {
		part := rule.Part(rest[0])
		length, n := binary.Uvarint(rest[1:])
		value := rest[1+n : 1+n+int(length)]
		rest = rest[1+n+int(length):]
		switch {
		case part == rule.Global:
			texts = append(texts, part.String())
		case part == rule.Address:
			addr, _ := netip.AddrFromSlice(value[2:])
			text := "address=" + netip.PrefixFrom(addr, int(value[1])).String()
			if value[0] == 1 {
				text += " with a key"
			}
			texts = append(texts, text)
		default:
			texts = append(texts, part.String()+"="+terminal.Printable(string(value)))
		}
	}
	return strings.Join(texts, " ")
}

// hasHeader tells whether the call has a header of that name, given in lower case.
func (c *Call) hasHeader(name string) bool {
	return slices.ContainsFunc(c.Headers, func(h string) bool { return strings.EqualFold(h, name) })
}

// present are the parts that the call has.
func (c *Call) present() (p rule.Parts) {
	if c.Caller.Key != "" {
		p = p.With(rule.Key)
	}
	if c.Caller.User != "" {
		p = p.With(rule.User)
	}
	if c.Caller.Tenant != "" {
		p = p.With(rule.Tenant)
	}
	if c.Address.IsValid() {
		p = p.With(rule.Address)
	}
	return p
}
