package benchedge

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// worker is the file that tells what CPU time Envoy's worker thread has used. The thread's own is finer than the
// process's (ns instead of ticks of 10 ms), and leaves out the main thread and V8's compilers, which no request waits for.
type worker string

const workerName = "wrk:worker_0"

func findWorker(b *testing.B, pid int) worker {
	b.Helper()
	comms, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	for _, comm := range comms {
		if name, err := os.ReadFile(comm); err == nil && strings.TrimSpace(string(name)) == workerName {
			return worker(filepath.Join(filepath.Dir(comm), "schedstat"))
		}
	}
	b.Fatalf("Envoy has no thread %s among %d: want Linux and --concurrency 1", workerName, len(comms))
	return ""
}

// cpu is the time on a CPU so far, in ns.
func (w worker) cpu() (int64, error) {
	text, err := os.ReadFile(string(w))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	return strconv.ParseInt(first, 10, 64)
}

// residentKiB is a process's resident memory.
func residentKiB(b *testing.B, pid int) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatal("no VmRSS in /proc")
	return 0
}
