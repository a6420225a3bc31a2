package keyfilter

import (
	"encoding/binary"
	"slices"

	"github.com/FastFilter/xorfilter"
)

// EncodeFilter builds a filter of a set of hashes, in any order, each as often as it likes, at most [MaxFilterKeys] in
// all. The same set always gives the same bytes. It leaves hashes as they are. 400,000 keys take 2.3 bytes each; fewer
// take more, down to 44 bytes for one.
func EncodeFilter(hashes []uint64) ([]byte, error) {
	if len(hashes) > MaxFilterKeys {
		return nil, ErrFilterKeys
	}
	set := slices.Clone(hashes)
	slices.Sort(set)
	set = slices.Compact(set)
	le := binary.LittleEndian
	if len(set) == 0 {
		return make([]byte, filterHead), nil
	}
	fuse, err := xorfilter.NewBinaryFuse[uint16](set)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, filterHead+printSize*len(fuse.Fingerprints))
	b = le.AppendUint64(b, fuse.Seed)
	b = le.AppendUint32(b, uint32(len(set)))
	b = le.AppendUint32(b, fuse.SegmentLength)
	b = le.AppendUint32(b, fuse.SegmentCount)
	for _, print := range fuse.Fingerprints {
		b = le.AppendUint16(b, print)
	}
	return b, nil
}
