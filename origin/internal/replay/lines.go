package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the longest line that is read; a longer one is a bad line.
const MaxLine = 1 << 20

// lines gives the lines of a trace one at a time, gzip or not.
type lines struct {
	r      *bufio.Reader
	number int64 // of the last line, from 1
}

var errLong = fmt.Errorf("is longer than %d bytes", MaxLine)

// newLines reads r, which it looks at to see whether it is gzip.
func newLines(r io.Reader) (*lines, error) {
	buffered := bufio.NewReaderSize(r, MaxLine)
	if head, _ := buffered.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		buffered = bufio.NewReaderSize(unpacked, MaxLine)
	}
	if mark, _ := buffered.Peek(3); string(mark) == "\ufeff" {
		_, _ = buffered.Discard(3)
	}
	return &lines{r: buffered}, nil
}

// next gives the next line that is not empty, without its end. The line is valid until the next call. Its error is io.EOF
// at the end, errLong for a line that is skipped, or what keeps the trace from being read.
func (l *lines) next() ([]byte, error) {
	for {
		line, err := l.r.ReadSlice('\n')
		if len(line) > 0 || err == nil {
			l.number++
		}
		switch {
		case err == nil:
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, l.skip()
		case errors.Is(err, io.EOF) && len(line) > 0: // the last line has no end
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("after line %d: %w", l.number, err)
		}
		if line = bytes.TrimRight(line, "\r\n"); len(bytes.TrimSpace(line)) > 0 {
			return line, nil
		}
		if err != nil {
			return nil, io.EOF
		}
	}
}

func (l *lines) skip() error {
	for {
		_, err := l.r.ReadSlice('\n')
		switch {
		case err == nil || errors.Is(err, io.EOF):
			return errLong
		case !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("after line %d: %w", l.number, err)
		}
	}
}
