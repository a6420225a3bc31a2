package stand

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// grace is how long a process may take to end when asked: Envoy and the origin finish their requests in flight.
	grace = 5 * time.Second
	// tailLines of a dead process's log are shown: enough for a reason, little enough to stay readable.
	tailLines = 8
	// tailBytes bounds what is read from the end of a log for that.
	tailBytes = 8 << 10
)

// process is a child whose output goes to a log file.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how it ended; valid once done is closed
}

// start runs a program with its output in the file log, which it empties first. Whoever starts a process stops it.
func start(name, log, program string, args []string) (*process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer file.Close()
	p := &process{name: name, log: log, cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = file, file
	// A stand is described by its files alone: what the user's shell overrides is meant for another origin.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WEIR_") })
	p.cmd.SysProcAttr = childAttributes()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// stop asks the process to end, kills it after the grace, and returns when it has ended.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended already
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.kill()
	}
}

// kill ends the process without asking, and returns when it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only when it has ended already
	<-p.done
}

// death tells how a process ended that should have gone on, with the end of its log.
func (p *process) death() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	text := fmt.Sprintf("%s ended (%s), its log is %s", p.name, how, p.log)
	if end := tail(p.log); len(end) > 0 {
		text += ", which ends:\n" + string(end)
	}
	return errors.New(text)
}

// tail is the last lines of a file, each indented; nil when there are none.
func tail(path string) []byte {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if size, err := file.Seek(0, io.SeekEnd); err == nil {
		_, _ = file.Seek(max(0, size-tailBytes), io.SeekStart)
	}
	content, _ := io.ReadAll(io.LimitReader(file, tailBytes))
	content = bytes.TrimSpace(content)
	if len(content) == 0 {
		return nil
	}
	lines := bytes.Split(content, []byte("\n"))
	lines = lines[max(0, len(lines)-tailLines):]
	return append([]byte("  "), bytes.Join(lines, []byte("\n  "))...)
}
