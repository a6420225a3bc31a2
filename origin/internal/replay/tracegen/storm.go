// Package tracegen writes made-up traces for replay to be tried on.
package tracegen

import (
	"bufio"
	"io"
	"iter"
	"strconv"

	"github.com/weirproject/weir/shared/limit"
)

// Storm is a retry storm: after a warm-up minute in which Hammering keys call at the limit of 90/min, each of them calls
// 9 times a second, while Quiet keys, taking turns, make QuietRate calls a second the whole time.
//
// Phases: a hammering key calls at instants of its own, all keys' evenly spread over the ninth of a second that lies
// between two calls of one key; minutes begin at multiples of a minute, as windows do.
type Storm struct {
	Hammering, Quiet int
	QuietRate        int64 // calls a second of all quiet keys together
	Minutes          int   // of the storm, after the warm-up minute
}

// FullStorm is the storm that the design is measured by: 60,000 calls a second.
func FullStorm(minutes int) Storm {
	return Storm{Hammering: 5000, Quiet: 95_000, QuietRate: 15_000, Minutes: minutes}
}

// Rates of one hammering key, calls a second: before the storm as a fraction, in it.
const (
	stormRate   = 9
	warmUpEvery = 6 // in the warm-up minute a key makes each 6th of its calls: 1.5/s, 90/min
)

// Begin is the instant of the first call, the start of a minute.
const Begin = 1_700_000_040 * limit.Second

// Call is one call of a storm.
type Call struct {
	At        limit.Micros
	Hammering bool // by a hammering key, else by a quiet one
	Key       int  // number of the key among its kind, from 0
}

// Calls gives all calls in the order of time.
func (s Storm) Calls() iter.Seq[Call] { return s.each }

func (s Storm) each(yield func(Call) bool) {
	quiet, next := int64(0), 0
	quietAt := func() limit.Micros { return Begin + limit.Micros(quiet*int64(limit.Second)/s.QuietRate) }
	flush := func(before limit.Micros) bool {
		for s.QuietRate > 0 && quietAt() < before {
			if !yield(Call{At: quietAt(), Key: next}) {
				return false
			}
			quiet++
			next = (next + 1) % s.Quiet
		}
		return true
	}
	ticks := int64(s.Minutes+1) * 60 * stormRate
	for tick := range ticks {
		if tick < 60*stormRate && tick%warmUpEvery != 0 {
			continue
		}
		for key := range s.Hammering {
			// Exact ninths, rounded down once, so that no error adds up.
			at := Begin + limit.Micros((tick*int64(s.Hammering)+int64(key))*int64(limit.Second)/(stormRate*int64(s.Hammering)))
			if !flush(at) || !yield(Call{At: at, Hammering: true, Key: key}) {
				return
			}
		}
	}
	flush(Begin + limit.Micros(s.Minutes+1)*limit.Minute)
}

// WriteJSONL writes the storm as a trace.
func (s Storm) WriteJSONL(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16)
	var line []byte
	for c := range s.Calls() {
		line = strconv.AppendInt(append(line[:0], `{"t":`...), int64(c.At), 10)
		line = append(line, `,"key":"`...)
		if c.Hammering {
			line = append(line, "hammer-"...)
		} else {
			line = append(line, "quiet-"...)
		}
		line = append(strconv.AppendInt(line, int64(c.Key), 10), "\"}\n"...)
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}
