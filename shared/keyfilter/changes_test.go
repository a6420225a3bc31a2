package keyfilter_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/weirproject/weir/shared/keyfilter"
)

func TestTheLastChangeOfAKeyCounts(t *testing.T) {
	r := seeded(t)
	want := map[uint64]keyfilter.Op{}
	var list []keyfilter.Change
	for range 5_000 {
		c := keyfilter.Change{Hash: r.Uint64() % 2_000, Op: keyfilter.Op(1 + r.IntN(2))}
		list, want[c.Hash] = append(list, c), c.Op
	}
	first := list[0]
	c, err := keyfilter.ReadChanges(keyfilter.EncodeChanges(list))
	if err != nil || c.Len() != len(want) || list[0] != first {
		t.Fatalf("%d changes of %d keys: %v", c.Len(), len(want), err)
	}
	for h := range uint64(2_010) {
		op, ok := c.Find(h)
		if wantOp, known := want[h]; ok != known || op != wantOp {
			t.Fatalf("%d: %v %v, want %v %v", h, op, ok, wantOp, known)
		}
	}
	for i := range c.Len() {
		if at := c.At(i); want[at.Hash] != at.Op {
			t.Fatalf("change %d is %+v, want %v", i, at, want[at.Hash])
		}
	}
	if _, ok := (&keyfilter.Changes{}).Find(0); ok || len(keyfilter.EncodeChanges(nil)) != 0 {
		t.Error("no changes are some")
	}
	if keyfilter.Issued.String() != "issued" || keyfilter.Revoked.String() != "revoked" || keyfilter.Op(0).String() != "unknown" {
		t.Error("ops are misnamed")
	}
}

func TestChangesThatCannotBeAreRefused(t *testing.T) {
	good := keyfilter.EncodeChanges([]keyfilter.Change{{1, keyfilter.Issued}, {2, keyfilter.Revoked}})
	with := func(at int, v byte) []byte { b := bytes.Clone(good); b[at] = v; return b }
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"cut":        {good[:17], keyfilter.ErrChangesLength},
		"descending": {with(0, 3), keyfilter.ErrChangesOrder},
		"twice":      {with(0, 2), keyfilter.ErrChangesOrder},
		"no op":      {with(16, 0), keyfilter.ErrChangesOp},
		"unknown op": {with(17, 3), keyfilter.ErrChangesOp},
	} {
		if got, err := keyfilter.ReadChanges(c.b); !errors.Is(err, c.want) || got.Len() != 0 {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Whatever the bytes: refused, or a list that finds each of its changes and nothing else.
func FuzzReadChanges(f *testing.F) {
	f.Add(keyfilter.EncodeChanges([]keyfilter.Change{{1, keyfilter.Issued}, {1 << 63, keyfilter.Revoked}}), uint64(1))
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, h uint64) {
		c, err := keyfilter.ReadChanges(b)
		if err != nil {
			return
		}
		held := false
		for i := range c.Len() {
			at := c.At(i)
			held = held || at.Hash == h
			if op, ok := c.Find(at.Hash); !ok || op != at.Op {
				t.Fatalf("change %d is not found: %+v", i, at)
			}
		}
		if _, ok := c.Find(h); ok != held {
			t.Fatalf("%#x is found: %v", h, ok)
		}
	})
}
