package valkeytest

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// stepping.c.txt goes between the server and the C library; its name keeps cgo away from it.
//
//go:embed stepping.c.txt
var steppingSource []byte

// Stepping is a server whose wall clock can be made to step, as an operator or NTP does it. Its monotonic clock goes on.
type Stepping struct {
	*Server
	offset string // file
	by     time.Duration
}

// StartStepping starts one. It needs Linux and a C compiler, as the race detector does.
func StartStepping(t testing.TB, args ...string) *Stepping {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		message := fmt.Sprintf("MISSING PART: Linux and a C compiler to make a server's clock step: %s, %v", runtime.GOOS, err)
		if os.Getenv("CI") != "" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	s := &Stepping{Server: newServer(t, args...)}
	source, library := filepath.Join(s.dir, "stepping.c"), filepath.Join(s.dir, "stepping.so")
	if err := os.WriteFile(source, steppingSource, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	s.offset = filepath.Join(s.dir, "offset")
	s.env = []string{"LD_PRELOAD=" + library, "WEIR_CLOCK_OFFSET=" + s.offset}
	s.Step(0)
	s.Run()
	return s
}

// Step moves the server's clock on, or back.
func (s *Stepping) Step(by time.Duration) {
	s.t.Helper()
	s.by += by
	f, err := os.OpenFile(s.offset, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		// In place: the server has the file mapped.
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(s.by.Microseconds())), 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		s.t.Fatalf("step the clock: %v", err)
	}
}
