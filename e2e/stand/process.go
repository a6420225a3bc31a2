package stand

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// grace is how long a process may take to end by itself.
	grace = 5 * time.Second
	// readyWithin bounds how long a process may take to get ready. Envoy compiles the filter in up to 9 s here.
	readyWithin = 60 * time.Second
	// askEvery is the pause between two questions to a process that has no other way to say that it is ready.
	askEvery = 20 * time.Millisecond
	// logTail is how many lines of a log a failed test shows.
	logTail = 40
)

// Process is a program that a test runs. It ends with the test, or with the test's process.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed once it has ended
}

// Start runs a program in folder dir, with its output in a file there; env is added to the environment. The log is
// shown if the test fails.
func Start(t testing.TB, dir, name, program string, args, env []string) *Process {
	t.Helper()
	p := &Process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, out, out
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = dieWithParent()
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // its exit status is no news to a test that ends it
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("%s's log ends:\n%s", name, p.Tail())
		}
	})
	return p
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop ends the process and waits for its end; a stopped one (SIGSTOP) is continued first.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// Signal sends a signal.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v to %s: %v", s, p.name, err)
	}
}

// Resident is the memory in bytes that the process has in RAM, as Linux tells it; 0 on other systems.
func (p *Process) Resident(t testing.TB) int64 {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		t.Fatalf("memory of %s: %v", p.name, err)
	}
	fields := strings.Fields(string(text)) // size, resident, …, in pages
	if len(fields) < 2 {
		t.Fatalf("memory of %s: %q", p.name, text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		t.Fatalf("memory of %s: %v", p.name, err)
	}
	return pages * int64(os.Getpagesize())
}

// Log is all that the process has written so far.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Tail is the end of the log.
func (p *Process) Tail() string {
	lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
	return strings.Join(lines[max(0, len(lines)-logTail):], "\n")
}

// Until asks until answer is nil. The process has no other event to wait on; it fails the test when the process
// ends or the time is over.
func (p *Process) Until(t testing.TB, what string, answer func() error) {
	t.Helper()
	deadline := time.Now().Add(readyWithin)
	for {
		err := answer()
		if err == nil {
			return
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended before: %s", p.name, what)
		case <-time.After(askEvery):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s: not within %v: %v", p.name, what, readyWithin, err)
		}
	}
}

// FreePort is a port of 127.0.0.1 that nobody listens on.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Loopback is a free address of 127.0.0.1 as host:port.
func Loopback(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t))
}
