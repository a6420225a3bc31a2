package document

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// ErrIrregular is the error of a path that names no file with an end: a pipe would be waited for, a device read for ever.
var ErrIrregular = errors.New("is not a regular file")

// Open opens the regular file at path for reading.
func Open(path string) (*os.File, error) {
	// Without O_NONBLOCK, opening a pipe waits for somebody to write to it.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	about, err := file.Stat()
	if err == nil && !about.Mode().IsRegular() {
		err = &os.PathError{Op: "read", Path: path, Err: ErrIrregular}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// Content is what the file at path holds, cut one byte after [MaxBytes], so that [Parse] refuses what is larger: a
// process that serves must not be ended by the size of a file that it follows.
func Content(path string) ([]byte, error) {
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return All(file)
}

// All is what r holds, cut as by [Content].
func All(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, MaxBytes+1)) }
