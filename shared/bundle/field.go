package bundle

import (
	"encoding/binary"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// limitSize is the bytes of a limit: {u64 count, u64 window in µs, u64 burst}.
const limitSize = 3 * 8

func appendLimit(b []byte, l limit.Limit) []byte {
	for _, n := range []int64{l.Count, int64(l.Window), l.Burst} {
		b = appendU64(b, uint64(n))
	}
	return b
}

func readLimit(b []byte) limit.Limit {
	return limit.Limit{Count: int64(readU64(b)), Window: limit.Micros(readU64(b[8:])), Burst: int64(readU64(b[16:]))}
}

func appendU64(b []byte, n uint64) []byte { return binary.LittleEndian.AppendUint64(b, n) }

func readU64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

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

// decodeTable reads {u32 entries}.
func decodeTable(b []byte) (uint32, error) {
	if len(b) < 4 {
		return 0, ErrTable
	}
	n := binary.LittleEndian.Uint32(b)
	if n < rule.MinTableEntries || n > rule.MaxTableEntries || n&(n-1) != 0 {
		return 0, ErrTable
	}
	return n, nil
}
