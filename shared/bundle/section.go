package bundle

import (
	"encoding/binary"

	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// maxHeaderName bounds the name of the key header.
const maxHeaderName = 64

// encodeGate writes {16 bytes hash key, string header, string prefix}.
func encodeGate(g Gate) ([]byte, error) {
	prefix := g.Format.Prefix
	if prefix == "" {
		prefix = keyfilter.DefaultPrefix
	}
	if !validHeader(g.KeyHeader) {
		return nil, ErrHeader
	}
	if err := keyfilter.CheckPrefix(prefix); err != nil {
		return nil, err
	}
	b := append([]byte(nil), g.HashKey[:]...)
	b = appendString(b, g.KeyHeader)
	return appendString(b, prefix), nil
}

func decodeGate(b []byte) (Gate, error) {
	var g Gate
	if len(b) < len(g.HashKey) {
		return Gate{}, ErrGate
	}
	b = b[copy(g.HashKey[:], b):]
	header, b, okHeader := cutString(b)
	prefix, _, okPrefix := cutString(b) // what follows is a newer edge's
	if !okHeader || !okPrefix || !validHeader(header) || keyfilter.CheckPrefix(prefix) != nil {
		return Gate{}, ErrGate
	}
	g.KeyHeader, g.Format.Prefix = header, prefix
	return g, nil
}

func validHeader(name string) bool {
	valid := name != "" && len(name) <= maxHeaderName
	for i := range len(name) {
		c := name[i]
		valid = valid && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	return valid
}

// ruleFixed is the fixed part of a rule section: {u8 headers, u8 prefix v4, u8 prefix v6, u8 zero, 6 × u64 limits}.
const ruleFixed = 4 + 2*3*8

func encodeRule(r *rule.Rule) ([]byte, error) {
	if r.Where != rule.Edge || r.Algorithm != rule.TokenBucket || len(r.By) != 1 || len(r.By[0]) != 1 || r.By[0][0] != rule.Address {
		return nil, ErrNotEdge
	}
	if !rule.ValidName(r.Name) {
		return nil, ErrRule
	}
	valid := r.Limit
	if r.Valid != nil {
		valid = *r.Valid
	}
	b := []byte{byte(r.Headers), byte(r.PrefixV4), byte(r.PrefixV6), 0}
	for _, l := range []limit.Limit{r.Limit, valid} {
		for _, n := range []int64{l.Count, int64(l.Window), l.Burst} {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
	}
	b = appendString(b, r.Name)
	if _, err := decodeRule(b); err != nil {
		return nil, err
	}
	return b, nil
}

func decodeRule(b []byte) (EdgeRule, error) {
	if len(b) < ruleFixed {
		return EdgeRule{}, ErrRule
	}
	r := EdgeRule{Headers: rule.Headers(b[0]), PrefixV4: b[1], PrefixV6: b[2]}
	name, _, ok := cutString(b[ruleFixed:]) // what follows is a newer edge's
	if !ok || !rule.ValidName(name) || r.Headers > rule.None || r.PrefixV4 > 32 || r.PrefixV6 > 128 {
		return EdgeRule{}, ErrRule
	}
	r.Name = name
	r.Anonymous, r.Valid = readLimit(b[4:]), readLimit(b[4+3*8:])
	if r.Anonymous.Check() != nil || r.Valid.Check() != nil {
		return EdgeRule{}, ErrRule
	}
	return r, nil
}

func readLimit(b []byte) limit.Limit {
	le := binary.LittleEndian
	return limit.Limit{Count: int64(le.Uint64(b)), Window: limit.Micros(le.Uint64(b[8:])), Burst: int64(le.Uint64(b[16:]))}
}

func appendString(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...)
}

func cutString(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return "", nil, false
	}
	end := 1 + int(b[0])
	return string(b[1:end]), b[end:], true
}
