package replay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// DefaultMemory is what counters may take where [Options.Memory] is 0: about two million principals.
const DefaultMemory = 256 << 20

// Options are how to replay. The zero value reads any format and writes nothing.
type Options struct {
	Format    Format    // "" guesses by the first line
	Decisions io.Writer // JSON lines, one for each rule and call; nil for none
	// Bad is told of each line that cannot be read, by number and reason; nil for nobody.
	Bad    func(line int64, reason error)
	Strict bool  // the first bad line ends the replay
	Memory int64 // bytes that counters may take
	// Step is called now and then, with the number of lines read; nil for never.
	Step func(lines int64)
}

// BadLine is a line that cannot be read, in a strict replay.
type BadLine struct {
	Line   int64
	Reason error
}

// Error is the line with its reason.
func (b BadLine) Error() string { return fmt.Sprintf("line %d: %v", b.Line, b.Reason) }

// Unwrap is the reason.
func (b BadLine) Unwrap() error { return b.Reason }

// stepEvery is how many lines lie between two looks at the context and calls of Step.
const stepEvery = 4096

// Run replays a trace. The same rules and trace give the same summary and decisions, byte for byte. A summary of what was
// read comes with an error as well, which is a [BadLine], the context's, or what keeps the trace from being read on.
func Run(ctx context.Context, set *rule.Set, trace io.Reader, o Options) (*Summary, error) {
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	r := &run{o: o, engine: NewEngine(set, o.Memory), summary: &Summary{Format: o.Format}, high: -limit.Never}
	for ru := range set.Rules() {
		r.summary.Rules = append(r.summary.Rules, &RuleStats{Rule: &ru, refused: newRanking(rankingSize(set.Len()))})
	}
	if o.Decisions != nil {
		r.out = bufio.NewWriterSize(o.Decisions, 1<<16)
	}
	err := r.read(ctx, trace)
	if r.out != nil {
		if left := r.out.Flush(); left != nil && !errors.Is(err, left) { // a writer that failed says so again
			err = errors.Join(err, fmt.Errorf("write decisions: %w", left))
		}
	}
	r.summary.Shed = r.engine.Shed()
	for i, s := range r.summary.Rules {
		s.Absent = r.engine.absent[i]
	}
	return r.summary, err
}

type run struct {
	o       Options
	engine  *Engine
	summary *Summary
	out     *bufio.Writer
	buffer  []byte
	parser  parser
	high    limit.Micros
	call    Call
	refused bool // the call at hand, by an enforced rule
	limited bool // the call at hand, by any enforced rule
}

func (r *run) read(ctx context.Context, trace io.Reader) error {
	lines, err := newLines(trace)
	if err != nil {
		return err
	}
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil || errors.Is(err, errLong) {
			if err = r.line(line, err); err != nil {
				if r.o.Bad != nil {
					r.o.Bad(lines.number, err)
				}
				r.summary.Bad++
				if r.o.Strict {
					return BadLine{lines.number, err}
				}
			}
		} else {
			return err
		}
		if r.summary.Lines%stepEvery == 0 {
			if r.o.Step != nil {
				r.o.Step(lines.number)
			}
			if ctx.Err() != nil {
				return fmt.Errorf("ended after line %d: %w", lines.number, context.Cause(ctx))
			}
		}
		if r.out != nil && r.out.Buffered() > 1<<15 {
			if err := r.out.Flush(); err != nil {
				return fmt.Errorf("write decisions: %w", err)
			}
		}
	}
}

// line decides one line, or tells what is wrong with it.
func (r *run) line(line []byte, err error) error {
	r.summary.Lines++
	if err != nil {
		return err
	}
	if r.parser == nil {
		if r.summary.Format == "" {
			r.summary.Format = guess(line)
		}
		r.parser = newParser(r.summary.Format)
	}
	if err := parse(r.parser, line, &r.call); err != nil {
		return err
	}
	r.count()
	r.refused, r.limited = false, false
	switch r.engine.Decide(&r.call, r.decision) {
	case rules.Denied:
		r.summary.Denied++
		r.refused, r.limited = true, true
	case rules.Exempt:
		r.summary.Exempt++
	}
	if r.refused {
		r.summary.Refused++
	}
	if !r.limited {
		r.summary.Unlimited++
	}
	return nil
}

func (r *run) count() {
	s, at := r.summary, r.call.At
	if s.Calls == 0 {
		s.First, s.Last = at, at
	}
	s.Calls++
	s.First, s.Last = min(s.First, at), max(s.Last, at)
	if s.Calls > 1 && at < r.high {
		s.Back++
		s.MaxBack = max(s.MaxBack, r.high-at)
	}
	r.high = max(r.high, at)
}

func (r *run) decision(d *Decision) {
	if d.Rule.Mode == rule.Enforce {
		r.limited = true
		r.refused = r.refused || !d.Allowed
	}
	r.summary.Rules[d.Rule.Index].add(d)
	if r.out == nil {
		return
	}
	r.buffer = d.append(r.buffer[:0])
	_, _ = r.out.Write(r.buffer) // the writer keeps its error for Flush
}

// append appends the decision as a line of JSON. What cannot be said in a number is null: what remains of no limit, when to
// come back with a cost that is never admitted.
func (d *Decision) append(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"t":`...), int64(d.At), 10)
	dst = append(append(append(dst, `,"rule":"`...), d.Rule.Name...), `","allowed":`...)
	dst = strconv.AppendBool(dst, d.Allowed)
	dst = append(dst, `,"remaining":`...)
	if d.Unlimited {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendInt(dst, d.Remaining, 10)
	}
	dst = append(dst, `,"retry_after_us":`...)
	if d.RetryAfter == limit.Never {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendInt(dst, int64(d.RetryAfter), 10)
	}
	return append(dst, "}\n"...)
}
