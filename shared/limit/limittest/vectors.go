// Package limittest reads the vectors that every implementation of an algorithm has to answer alike.
package limittest

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// Case is one counter's life: it starts fresh at the instant of its first step.
type Case struct {
	Name      string
	Line      int // where it begins
	Algorithm string
	Offset    limit.Micros // of a fixed window
	Steps     []Step
}

// Op is what a step does to its counter.
type Op int

const (
	Take Op = iota
	Peek
	Refund
)

// Step is one call with the answer that it must get.
type Step struct {
	Line int
	Op   Op
	// Limit is the one in force at this step; it may change from step to step.
	Limit limit.Limit
	Now   limit.Micros
	Cost  int64
	// Charged is when the charge that a refund gives back was taken, plus its Hold.
	Charged limit.Micros
	// Want is the answer; a refund has none.
	Want limit.Decision
}

// Read reads vectors. A file is a list of cases; `#` begins a comment line:
//
//	case NAME
//	algorithm NAME
//	offset TIME                 of a fixed window
//	limit RATE [burst N]        in force from here on
//	TIME cost N -> allow|refuse|never remaining N retry TIME|never reset TIME|never [hold TIME]
//	TIME peek N -> the same
//	TIME refund N of TIME       of a charge taken at TIME, its hold added
//
// TIME is a whole number of us, ms, s, m, h or d.
func Read(r io.Reader) ([]Case, error) {
	var cases []Case
	var current limit.Limit
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if name, ok := strings.CutPrefix(line, "case "); ok {
			cases = append(cases, Case{Name: name, Line: n})
			current = limit.Limit{}
			continue
		}
		if len(cases) == 0 {
			return nil, fmt.Errorf("line %d: %q stands before the first case", n, line)
		}
		if err := readLine(&cases[len(cases)-1], &current, n, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return cases, lines.Err()
}

// windowed are the algorithms whose quota is the count, not the burst.
var windowed = map[string]bool{"sliding-window": true, "fixed-window": true, "sliding-log": true}

func readLine(c *Case, current *limit.Limit, n int, line string) error {
	f := strings.Fields(line)
	switch f[0] {
	case "algorithm":
		if len(f) != 2 {
			return fmt.Errorf("want: algorithm NAME")
		}
		c.Algorithm = f[1]
		return nil
	case "offset":
		if len(f) != 2 || len(c.Steps) > 0 {
			return fmt.Errorf("want: offset TIME, before the first step")
		}
		offset, err := readTime(f[1])
		c.Offset = offset
		return err
	case "limit":
		l, err := readLimit(f[1:])
		*current = l
		return err
	}
	step, err := readStep(f)
	if err != nil {
		return err
	}
	if c.Algorithm == "" || current.Window == 0 {
		return fmt.Errorf("a step before its algorithm or limit")
	}
	step.Line, step.Limit = n, *current
	switch {
	case step.Op == Refund:
	case windowed[c.Algorithm]:
		step.Want.Limit = current.Count
	default:
		step.Want.Limit = current.Capacity()
	}
	c.Steps = append(c.Steps, step)
	return nil
}

func readLimit(f []string) (limit.Limit, error) {
	if len(f) != 1 && (len(f) != 3 || f[1] != "burst") {
		return limit.Limit{}, fmt.Errorf("want: limit RATE [burst N]")
	}
	l, reason := rule.ParseRate(f[0])
	if reason != "" {
		return limit.Limit{}, fmt.Errorf("%s: %s", f[0], reason)
	}
	if len(f) == 3 {
		burst, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return limit.Limit{}, err
		}
		l.Burst = burst
	}
	return l, l.Check()
}

func readStep(f []string) (step Step, err error) {
	if len(f) == 5 && f[1] == "refund" {
		return readRefund(f)
	}
	if len(f) == 13 && f[11] == "hold" {
		if step.Want.Hold, err = readTime(f[12]); err != nil {
			return step, err
		}
		f = f[:11]
	}
	if len(f) != 11 || f[1] != "cost" && f[1] != "peek" || f[3] != "->" || f[5] != "remaining" || f[7] != "retry" || f[9] != "reset" {
		return step, fmt.Errorf("want: TIME cost N -> allow|refuse|never remaining N retry TIME reset TIME [hold TIME]")
	}
	if f[1] == "peek" {
		step.Op = Peek
	}
	if step.Now, err = readTime(f[0]); err != nil {
		return step, err
	}
	if step.Cost, err = strconv.ParseInt(f[2], 10, 64); err != nil {
		return step, err
	}
	if step.Want.Remaining, err = strconv.ParseInt(f[6], 10, 64); err != nil {
		return step, err
	}
	if step.Want.RetryAfter, err = readTime(f[8]); err != nil {
		return step, err
	}
	if step.Want.ResetAfter, err = readTime(f[10]); err != nil {
		return step, err
	}
	retry := step.Want.RetryAfter
	switch f[4] {
	case "allow":
		step.Want.Allowed = true
		if retry != 0 {
			return step, fmt.Errorf("an allowed call has retry 0s")
		}
	case "refuse":
		if retry == 0 || retry == limit.Never {
			return step, fmt.Errorf("a refused call has a time to retry")
		}
	case "never":
		if retry != limit.Never {
			return step, fmt.Errorf("a call that can never pass has retry never")
		}
	default:
		return step, fmt.Errorf("%q: want allow, refuse or never", f[4])
	}
	return step, nil
}

func readRefund(f []string) (step Step, err error) {
	step.Op = Refund
	if f[3] != "of" {
		return step, fmt.Errorf("want: TIME refund N of TIME")
	}
	if step.Now, err = readTime(f[0]); err != nil {
		return step, err
	}
	if step.Cost, err = strconv.ParseInt(f[2], 10, 64); err != nil {
		return step, err
	}
	step.Charged, err = readTime(f[4])
	return step, err
}

func readTime(text string) (limit.Micros, error) {
	if text == "never" {
		return limit.Never, nil
	}
	digits := strings.TrimRight(text, "umshd")
	unit, ok := map[string]limit.Micros{
		"us": 1, "ms": limit.Millisecond, "s": limit.Second, "m": limit.Minute, "h": limit.Hour, "d": limit.Day,
	}[text[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !ok {
		return 0, fmt.Errorf("%q: want a whole number of us, ms, s, m, h or d", text)
	}
	return limit.Micros(n) * unit, nil
}
