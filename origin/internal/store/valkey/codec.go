package valkey

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/weirproject/weir/origin/internal/limiter"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Flags of a charge in a request, and the kinds of an answer: library.lua has them too.
const (
	flagShadow   = 1
	flagExisting = 2
	flagFormer   = 4

	kindNothing = 0 // nothing enforced was charged
	kindCharged = 1
	kindStale   = 2
	kindKnown   = 3 // the call's id is remembered

	statusMask   = 3
	statusExists = 4 // the counter existed before
)

// request is one FCALL, for charges that share one slot.
type request struct {
	function   string
	readOnly   bool // to be sent by FCALL_RO
	keys, args []string
}

// take is the request that decides charges, all of one slot. Past notAfter, in server time, the server does nothing; id may
// be zero. From switchAt on, in server time, counters go by their Counter, before it by their Former if they have one.
// Charges that all cost nothing are asked for by the read-only twin.
func (l *library) take(notAfter, switchAt limit.Micros, id limiter.CallID, charges []limiter.Charge) request {
	r := request{function: l.check, readOnly: true}
	for i := range charges {
		r.readOnly = r.readOnly && charges[i].Cost == 0
	}
	if r.readOnly {
		r.function = l.peek
	}
	packed := make([]byte, 0, 17+34*len(charges))
	packed = appendDouble(packed, int64(notAfter), int64(switchAt))
	r.begin(&packed, id, charges)
	for i := range charges {
		packed = r.add(packed, &charges[i])
	}
	r.end(packed, id, charges)
	return r
}

// giveBack is the request that gives back what take charged for charges, all of one slot, as their outcomes tell, and has
// id forgotten. Its reply has no meaning but that it is no error.
func (l *library) giveBack(switchAt limit.Micros, id limiter.CallID, charges []limiter.Charge, outcomes []limiter.Outcome) request {
	r := request{function: l.refund}
	packed := make([]byte, 0, 9+42*len(charges))
	packed = appendDouble(packed, int64(switchAt))
	r.begin(&packed, id, charges)
	for i := range charges {
		if outcomes[i].Charged && charges[i].Cost > 0 {
			packed = r.add(packed, &charges[i])
			packed = appendDouble(packed, int64(outcomes[i].At))
		}
	}
	r.end(packed, id, charges)
	return r
}

func (r *request) begin(packed *[]byte, id limiter.CallID, charges []limiter.Charge) {
	r.keys = make([]string, 0, 2*len(charges)+1)
	flags := byte(0)
	if id != (limiter.CallID{}) && len(charges) > 0 {
		flags = 1
	}
	*packed = append(*packed, flags)
}

func (r *request) add(packed []byte, c *limiter.Charge) []byte {
	r.keys = append(r.keys, string(c.Counter[:]))
	flags := byte(0)
	if c.Shadow {
		flags |= flagShadow
	}
	if c.Existing {
		flags |= flagExisting
	}
	if c.Former != (limiter.Counter{}) {
		flags |= flagFormer
		r.keys = append(r.keys, string(c.Former[:]))
	}
	extra := c.Limit.Capacity()
	if c.Algorithm == rule.FixedWindow {
		extra = int64(c.Offset)
	}
	return appendDouble(append(packed, byte(c.Algorithm), flags), c.Limit.Count, int64(c.Limit.Window), c.Cost, extra)
}

func (r *request) end(packed []byte, id limiter.CallID, charges []limiter.Charge) {
	if id != (limiter.CallID{}) && len(charges) > 0 {
		// By the first enforced one, which a refund of the call names as well: of shadow ones, only those that were charged.
		at := max(0, slices.IndexFunc(charges, func(c limiter.Charge) bool { return !c.Shadow }))
		r.keys = append(r.keys, idName(&charges[at].Counter, id))
	}
	r.args = append(make([]string, 0, 2), string(packed))
}

// idName is the key that remembers a call, in the slot of a counter.
func idName(c *limiter.Counter, id limiter.CallID) string {
	const slot = len("w1:{hhhh}:")
	return string(c[:slot]) + "id:" + base64.RawURLEncoding.EncodeToString(id[:])
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
	if len(reply) < 8 || reply[0] > kindKnown {
		return 0, false, fmt.Errorf("reply %.40q", reply)
	}
	kind, now := reply[0], limit.Micros(le7(reply[1:]))
	if kind == kindStale {
		return now, true, nil
	}
	rest := reply[8:]
	for i := range charges {
		c, o := &charges[i], &outcomes[i]
		if len(rest) == 0 || rest[0] > statusMask+statusExists {
			return now, false, fmt.Errorf("reply of %d bytes for %d counters", len(reply), len(charges))
		}
		status, exists := limiter.Status(rest[0]&statusMask), rest[0]&statusExists != 0
		rest = rest[1:]
		*o = limiter.Outcome{Status: status, At: now}
		if status == limiter.Foreign {
			continue
		}
		value := ""
		if exists {
			size := sizeOf(c.Algorithm)
			if len(rest) < size {
				return now, false, fmt.Errorf("reply of %d bytes for %d counters", len(reply), len(charges))
			}
			value, rest = rest[:size], rest[size:]
		}
		if status == limiter.Unmade {
			continue
		}
		charged := kept && status == limiter.Admitted && c.Cost > 0 && (kind == kindCharged || kind == kindNothing && c.Shadow)
		o.Decision, o.Next = answer(c, value, now, charged)
		switch {
		case charged:
			o.Charged, o.Made, o.At = true, !exists, now.After(o.Decision.Hold)
			o.AskAgain = o.Next.RetryAfter
		case kind == kindKnown:
			// It was admitted, and stays so, whatever has been charged since.
			o.Decision.Allowed, o.Decision.RetryAfter = true, 0
		default:
			o.AskAgain = o.Decision.RetryAfter
		}
	}
	if len(rest) > 0 {
		return now, false, fmt.Errorf("reply of %d bytes for %d counters", len(reply), len(charges))
	}
	return now, false, nil
}

// appendDouble appends numbers as the function reads them, held where doubles are exact.
func appendDouble(b []byte, values ...int64) []byte {
	for _, v := range values {
		v = min(max(v, -limit.MaxCount), limit.MaxCount)
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
	}
	return b
}

// le7 and le6 are the little-endian signed integers of 7 and 6 bytes that s begins with.
func le7(s string) int64 { return int64(le4(s)|le4(s[3:])>>8<<32) << 8 >> 8 }
func le6(s string) int64 { return int64(le4(s)|le4(s[2:])>>16<<32) << 16 >> 16 }

func le4(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}
