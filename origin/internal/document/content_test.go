package document_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/weirproject/weir/origin/internal/document"
)

func TestWhatHasNoEndIsNotRead(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", t.TempDir()} {
		if _, err := document.Content(path); !errors.Is(err, document.ErrIrregular) {
			t.Errorf("%s: %v, want %v", path, err, document.ErrIrregular)
		}
	}
}

func TestNoMoreOfAHugeFileIsReadThanItTakesToRefuseIt(t *testing.T) {
	huge := filepath.Join(t.TempDir(), "huge")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 1<<32); err != nil { // a hole: takes no room
		t.Fatal(err)
	}
	content, err := document.Content(huge)
	if err != nil || len(content) != document.MaxBytes+1 {
		t.Fatalf("%d bytes, %v", len(content), err)
	}
	if faults := document.Parse(huge, content).Faults(); len(faults) != 1 {
		t.Errorf("%v, want one fault: its size", faults)
	}
}
