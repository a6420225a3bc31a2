package replay

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Progress draws a bar on a terminal while a trace is read. It is the trace's reader as well: what has been read of it is
// what the bar shows. It is for one goroutine.
type Progress struct {
	trace io.Reader
	w     io.Writer
	size  int64 // bytes of the trace as it lies; 0 where unknown
	now   func() time.Time
	began time.Time
	drawn time.Time
	read  int64
	width int // of the last line drawn
}

// drawEvery keeps a terminal from costing more than the replay.
const drawEvery = 100 * time.Millisecond

// NewProgress wraps a trace of size bytes, 0 where the size is not known. now is the clock that the rate is shown by.
func NewProgress(trace io.Reader, size int64, w io.Writer, now func() time.Time) *Progress {
	return &Progress{trace: trace, w: w, size: size, now: now, began: now()}
}

// Read reads the trace.
func (p *Progress) Read(b []byte) (int, error) {
	n, err := p.trace.Read(b)
	p.read += int64(n)
	return n, err
}

// Step draws the bar, if the last time is long enough ago.
func (p *Progress) Step(lines int64) {
	now := p.now()
	if now.Sub(p.drawn) < drawEvery {
		return
	}
	p.drawn = now
	const cells = 30
	text := ""
	if p.size > 0 {
		done := min(1, float64(p.read)/float64(p.size))
		full := int(done * cells)
		text = fmt.Sprintf("[%s%s] %3.0f %%  ", strings.Repeat("=", full), strings.Repeat(" ", cells-full), 100*done)
	}
	text += grouped(lines) + " lines"
	if seconds := now.Sub(p.began).Seconds(); seconds > 0 {
		text += fmt.Sprintf("  %s/s", grouped(int64(float64(lines)/seconds)))
	}
	fmt.Fprintf(p.w, "\r%-*s", p.width, text)
	p.width = len(text)
}

// Clear takes the bar off the terminal.
func (p *Progress) Clear() {
	if p.width > 0 {
		fmt.Fprintf(p.w, "\r%*s\r", p.width, "")
		p.width = 0
	}
}
