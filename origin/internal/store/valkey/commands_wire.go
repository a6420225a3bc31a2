package valkey

import (
	"strconv"
	"strings"

	"github.com/valkey-io/valkey-go"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

// op is one kind of command.
type op uint8

const (
	opLook op = iota
	opLookBefore
	opCharge
	opExpire
	opRead
	opReadBefore
	opGiveBack
	opRestore
	opClaim
	opRemember
	opForget
)

func (o op) name() string {
	return [...]string{"getrange", "getrange", "incrby", "pexpire", "getrange", "getrange", "decrby", "incrby", "set", "set", "del"}[o]
}

// idAdmitted is what is stored under the ID of a call that was admitted. See [claim].
const idAdmitted = "1"

// command is one command about an entry, or about a batch's ID.
type command struct {
	op op
	e  *entry // nil if it is about the ID
}

func (c command) build(b valkey.Builder, to *batch) valkey.Completed {
	const kept = int64(limiter.IDKept / limit.Millisecond)
	e := c.e
	switch c.op {
	case opCharge:
		return b.Incrby().Key(e.current).Increment(e.cost).Build()
	case opExpire:
		return b.Pexpire().Key(e.current).Milliseconds(e.ttl).Nx().Build()
	case opRead, opLook:
		return getNumber(b, e.current)
	case opReadBefore, opLookBefore:
		return getNumber(b, e.before)
	case opGiveBack:
		return b.Decrby().Key(e.current).Decrement(e.cost).Build()
	case opRestore:
		return b.Incrby().Key(e.current).Increment(e.lacks).Build()
	case opClaim:
		return b.Set().Key(to.id).Value(strconv.FormatInt(int64(to.until), 10)).Nx().Get().PxMilliseconds(kept).Build()
	case opRemember:
		return b.Set().Key(to.id).Value(idAdmitted).PxMilliseconds(kept).Build()
	default:
		return b.Del().Key(to.id).Build()
	}
}

// maxNumber is the length of the longest number that INCRBY keeps.
const maxNumber = int64(len("-9223372036854775808"))

// getNumber reads a number, and of a longer value enough to see that it is none: others may have written any length, which all
// calls on the connection would wait for.
func getNumber(b valkey.Builder, key string) valkey.Completed {
	return b.Getrange().Key(key).Start(0).End(maxNumber).Build()
}

// read takes in the answer to a command; an error is one that leaves its counter unknown.
func (c command) read(b *batch, r valkey.ValkeyResult) error {
	e := c.e
	switch c.op {
	case opClaim:
		return b.readClaim(r)
	case opRemember, opForget:
		return r.Error()
	case opRead, opLook:
		err := e.readNumber(r, &e.held)
		e.exists = e.exists || e.held > 0 || e.foreign
		return err
	case opReadBefore, opLookBefore:
		err := e.readNumber(r, &e.previous)
		e.exists = e.exists || e.previous > 0 || e.foreign
		return err
	}
	n, err := r.AsInt64()
	if isForeign(err) {
		e.foreign = true
		return nil
	}
	if err != nil {
		return err
	}
	switch c.op {
	case opCharge:
		e.charged, e.held = true, n-e.cost
	case opRestore:
		e.held = max(0, n-e.cost)
	case opGiveBack:
		e.below = max(0, -n)
	}
	return nil
}

// readNumber reads the answer to a GETRANGE into n: 0 for what is not there, which an empty value cannot be told from, or below
// zero.
func (e *entry) readNumber(r valkey.ValkeyResult, n *int64) error {
	text, err := r.ToString()
	switch {
	case isForeign(err):
		e.foreign = true
		return nil
	case err != nil:
		return err
	case text == "":
		*n = 0
		return nil
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || int64(len(text)) > maxNumber {
		e.foreign = true
	}
	*n = max(0, number)
	return nil
}

// readClaim reads what was stored under the ID. What is no instant is nobody's, nor is one that no process writes, since it is
// later than an ID is kept.
func (b *batch) readClaim(r valkey.ValkeyResult) error {
	was, err := r.ToString()
	if err != nil && !valkey.IsValkeyNil(err) && !isForeign(err) {
		return err
	}
	until, _ := strconv.ParseInt(was, 10, 64)
	switch {
	case was == idAdmitted:
		b.claim = remembered
	case limit.Micros(until) > b.now && limit.Micros(until) <= b.now+limiter.IDKept:
		b.claim = others
	default:
		b.claim = ours
	}
	return nil
}

// isForeign tells whether an error says that what is stored under a name is no number that can be added to.
func isForeign(err error) bool {
	if _, ok := valkey.IsValkeyErr(err); !ok {
		return false
	}
	text := err.Error()
	return strings.HasPrefix(text, "WRONGTYPE") || strings.Contains(text, "not an integer") || strings.Contains(text, "would overflow")
}
