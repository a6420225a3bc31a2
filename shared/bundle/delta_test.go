package bundle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"

	"github.com/weirproject/weir/shared/keyfilter"
)

func delta() Delta {
	return Delta{Epoch: 3, From: 41, To: 44, Changes: []keyfilter.Change{{Hash: 9, Op: keyfilter.Issued}, {Hash: 1 << 63, Op: keyfilter.Revoked}}}
}

func TestADeltaSaysWhatItWasMadeOf(t *testing.T) {
	for _, d := range []Delta{delta(), {Epoch: 1, Changes: []keyfilter.Change{}}, {Epoch: 1, From: 5, To: 9, Changes: []keyfilter.Change{}}} {
		got, err := ReadDelta(d.Append(nil))
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%+v, %v, want %+v", got, err, d)
		}
	}
	if b := delta().Append([]byte("before")); !bytes.Equal(b[6:], delta().Append(nil)) {
		t.Error("what stands before changes the encoding")
	}
	single := delta()
	single.Changes = single.Changes[:1]
	if n := len(single.Append(nil)); n != 44 {
		t.Errorf("one change takes %d bytes, want 44", n)
	}
}

func TestAnyDamageRefusesTheWholeDelta(t *testing.T) {
	good := delta().Append(nil)
	for n := range good {
		if _, err := ReadDelta(good[:n]); err == nil {
			t.Errorf("cut at %d bytes: no error", n)
		}
		for v := range 255 {
			damaged := bytes.Clone(good)
			damaged[n] ^= byte(v + 1)
			if got, err := ReadDelta(damaged); err == nil || got.Changes != nil {
				t.Errorf("byte %d is %#x: %v", n, damaged[n], err)
			}
		}
	}
	if _, err := ReadDelta(append(bytes.Clone(good), 0)); !errors.Is(err, ErrDeltaLength) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestDeltasThatLieAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*Delta)
		want  error
	}{
		"no epoch":           {func(d *Delta) { d.Epoch = 0 }, ErrDeltaRange},
		"backwards":          {func(d *Delta) { d.To = 40 }, ErrDeltaRange},
		"changes in no time": {func(d *Delta) { d.To = 41 }, ErrDeltaRange},
		"an unknown op":      {func(d *Delta) { d.Changes[1].Op = 3 }, ErrDeltaOp},
		"too many":           {func(d *Delta) { d.Changes = make([]keyfilter.Change, MaxDeltaChanges+1) }, ErrDeltaChanges},
	} {
		d := delta()
		c.spoil(&d)
		if got, err := ReadDelta(d.Append(nil)); !errors.Is(err, c.want) || got.Epoch != 0 {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	most := Delta{Epoch: 1, To: 1, Changes: make([]keyfilter.Change, MaxDeltaChanges)}
	for i := range most.Changes {
		most.Changes[i] = keyfilter.Change{Hash: uint64(i), Op: keyfilter.Issued}
	}
	if _, err := ReadDelta(most.Append(nil)); err != nil {
		t.Errorf("the most changes: %v", err)
	}
	b := delta().Append(nil)
	binary.LittleEndian.PutUint32(b[27:], 1<<32-1)
	if _, err := ReadDelta(b); !errors.Is(err, ErrDeltaChanges) {
		t.Errorf("2^32-1 changes: %v", err)
	}
}

// Whatever the bytes: refused, or a delta that is encoded to these bytes again.
func FuzzReadDelta(f *testing.F) {
	f.Add(delta().Append(nil), false)
	f.Add(Delta{Epoch: 1}.Append(nil), true)
	f.Fuzz(func(t *testing.T, b []byte, resealed bool) {
		if resealed && len(b) >= 4 {
			binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
		}
		d, err := ReadDelta(b)
		if err != nil {
			if d.Epoch != 0 || d.Changes != nil {
				t.Fatalf("half a delta came with %v", err)
			}
			return
		}
		if !bytes.Equal(d.Append(nil), b) {
			t.Fatalf("%+v is encoded otherwise", d)
		}
	})
}
