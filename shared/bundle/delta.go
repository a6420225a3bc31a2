package bundle

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/weirproject/weir/shared/keyfilter"
)

const (
	deltaMagic = "WD1"
	deltaHead  = len(deltaMagic) + 3*8 + 4
	changeSize = 9
	// MaxDeltaChanges bounds a delta to 36 kB. Who is further behind asks again from where it ended: a delta of fewer holds
	// all there is, and an edge takes it so.
	MaxDeltaChanges = 4096
)

// Errors of [ReadDelta].
var (
	ErrDelta         = errors.New("delta: does not begin with WD1")
	ErrDeltaLength   = errors.New("delta: length differs from what its head says")
	ErrDeltaChanges  = errors.New("delta: want at most 4096 changes")
	ErrDeltaChecksum = errors.New("delta: checksum does not match its content")
	ErrDeltaRange    = errors.New("delta: want an epoch from 1 and sequence numbers that go on, further with any change")
	ErrDeltaOp       = errors.New("delta: want 1 (issued) or 2 (revoked)")
)

// Delta is what changed of the keys after sequence number From, up to and including To, in the order of the changes. It is
// the body that the control plane answers an edge with, all integers little-endian:
//
//	{"WD1", u64 epoch, u64 from, u64 to, u32 n, n × {u64 edge hash, u8 op}, u32 CRC-32C of all bytes before it}
//
// Sequence numbers of different epochs do not go together: an edge that knows another epoch waits for the next bundle.
type Delta struct {
	Epoch, From, To uint64
	Changes         []keyfilter.Change
}

// Append appends the encoding of d to b. What [ReadDelta] would refuse is appended all the same.
func (d Delta) Append(b []byte) []byte {
	start := len(b)
	b = append(b, deltaMagic...)
	for _, n := range []uint64{d.Epoch, d.From, d.To} {
		b = appendU64(b, n)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(d.Changes)))
	for _, c := range d.Changes {
		b = append(appendU64(b, c.Hash), byte(c.Op))
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// ReadDelta reads a whole delta, keeping nothing of b. Any damage refuses all of it.
func ReadDelta(b []byte) (Delta, error) {
	le := binary.LittleEndian
	switch {
	case len(b) < len(deltaMagic) || string(b[:len(deltaMagic)]) != deltaMagic:
		return Delta{}, ErrDelta
	case len(b) < deltaHead+4:
		return Delta{}, ErrDeltaLength
	}
	d := Delta{Epoch: readU64(b[3:]), From: readU64(b[11:]), To: readU64(b[19:])}
	if le.Uint32(b[27:]) > MaxDeltaChanges {
		return Delta{}, ErrDeltaChanges
	}
	n, body := int(le.Uint32(b[27:])), b[deltaHead:len(b)-4]
	switch {
	case len(body) != n*changeSize:
		return Delta{}, ErrDeltaLength
	case le.Uint32(b[len(b)-4:]) != crc32.Checksum(b[:len(b)-4], castagnoli):
		return Delta{}, ErrDeltaChecksum
	case d.Epoch == 0 || d.To < d.From || n > 0 && d.To == d.From:
		return Delta{}, ErrDeltaRange
	}
	d.Changes = make([]keyfilter.Change, n)
	for i := range d.Changes {
		c := keyfilter.Change{Hash: readU64(body[changeSize*i:]), Op: keyfilter.Op(body[changeSize*i+8])}
		if !c.Op.Valid() {
			return Delta{}, ErrDeltaOp
		}
		d.Changes[i] = c
	}
	return d, nil
}
