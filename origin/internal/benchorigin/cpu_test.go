package benchorigin

import (
	"syscall"
	"time"
)

// processCPU is what this process has used of the processor.
func processCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
