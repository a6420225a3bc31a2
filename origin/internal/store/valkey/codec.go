package valkey

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
)

// request is one FCALL, for charges that share one slot.
type request struct {
	function   string
	readOnly   bool // to be sent by FCALL_RO
	keys, args []string
}

// take is the request that decides charges, all of one slot. Past notAfter, in server time, the server does nothing; id may
// be zero. From switchAt on, in server time, counters go by their Counter, before it by their Former if they have one.
func (l *library) take(notAfter, switchAt limit.Micros, id limiter.CallID, charges []limiter.Charge) request {
	r := request{function: l.check, keys: make([]string, len(charges)), args: make([]string, 1, 2+3*len(charges))}
	r.args[0] = strconv.FormatInt(int64(notAfter), 10)
	for i := range charges {
		c := &charges[i]
		r.keys[i] = string(c.Counter[:])
		r.args = append(r.args, strconv.FormatInt(c.Limit.Count, 10), strconv.FormatInt(int64(c.Limit.Window), 10), strconv.FormatInt(c.Cost, 10))
	}
	return r
}

// giveBack is the request that gives back what take charged for charges, all of one slot, as their outcomes tell.
func (l *library) giveBack(switchAt limit.Micros, id limiter.CallID, charges []limiter.Charge, outcomes []limiter.Outcome) request {
	return request{function: l.refund}
}

// readTake fills outcomes, as many as charges, from the reply to their take. The function tells what it decided and what it
// decided by, the states before; all else follows from them by package limit. stale tells that notAfter had passed on
// the server, at its time now: nothing was done.
func (l *library) readTake(reply string, charges []limiter.Charge, outcomes []limiter.Outcome) (now limit.Micros, stale bool, err error) {
	return readReply(reply, charges, outcomes, true)
}

// undone fills the outcomes of a take from its reply as they stand once it was given back: none is charged.
func (l *library) undone(reply string, charges []limiter.Charge, outcomes []limiter.Outcome) error {
	_, _, err := readReply(reply, charges, outcomes, false)
	return err
}

func readReply(reply string, charges []limiter.Charge, outcomes []limiter.Outcome, kept bool) (now limit.Micros, stale bool, err error) {
	if len(reply) < 16 {
		return 0, false, fmt.Errorf("reply of %d bytes", len(reply))
	}
	now = limit.Micros(le(reply, 1))
	if le(reply, 0) == 1 {
		return now, true, nil
	}
	if len(reply) != 16+32*len(charges) {
		return now, false, fmt.Errorf("reply of %d bytes for %d counters", len(reply), len(charges))
	}
	charged := kept
	for i := range charges {
		status := le(reply, 2+4*i)
		if status < 0 || limiter.Status(status) > limiter.Foreign {
			return now, false, fmt.Errorf("status %d", status)
		}
		outcomes[i] = limiter.Outcome{Status: limiter.Status(status), At: now}
		charged = charged && outcomes[i].Status == limiter.Admitted
	}
	for i := range charges {
		c, s, o := &charges[i], stateOf(reply, i), &outcomes[i]
		if !charged {
			o.Decision = s.Peek(c.Limit, now, c.Cost)
			o.AskAgain = o.Decision.RetryAfter
			continue
		}
		var next limit.SlidingWindow
		next, o.Decision = s.Take(c.Limit, now, c.Cost)
		o.Charged, o.Made = c.Cost > 0, s == limit.SlidingWindow{}
		o.Next = next.Peek(c.Limit, now, 1)
		o.AskAgain = o.Next.RetryAfter
	}
	return now, false, nil
}

// stateOf is the i-th counter's state in a reply, as it was before the check.
func stateOf(reply string, i int) limit.SlidingWindow {
	return limit.SlidingWindow{Start: limit.Micros(le(reply, 3+4*i)), Current: le(reply, 4+4*i), Previous: le(reply, 5+4*i)}
}

// le is the i-th little-endian int64 of s.
func le(s string, i int) int64 { return int64(binary.LittleEndian.Uint64([]byte(s[8*i : 8*i+8]))) }

// idName is the key that remembers a call in the slot of a counter.
func idName(c *limiter.Counter, id limiter.CallID) string {
	const slot = len("w1:{hhhh}:")
	return string(c[:slot]) + "id:" + base64.RawURLEncoding.EncodeToString(id[:])
}
