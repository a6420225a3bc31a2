package document

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// ErrIrregular is the error of a path that names no file with an end: a pipe would be waited for, a device read for ever.
var ErrIrregular = errors.New("is not a regular file")

// Content is what the file at path holds, cut one byte after [MaxBytes], so that [Parse] refuses what is larger: a
// process that serves must not be ended by the size of a file that it follows.
func Content(path string) ([]byte, error) {
	// Without O_NONBLOCK, opening a pipe waits for somebody to write to it.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if about, err := file.Stat(); err != nil {
		return nil, err
	} else if !about.Mode().IsRegular() {
		return nil, &os.PathError{Op: "read", Path: path, Err: ErrIrregular}
	}
	return io.ReadAll(io.LimitReader(file, MaxBytes+1))
}
