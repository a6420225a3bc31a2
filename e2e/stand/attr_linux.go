package stand

import "syscall"

// dieWithParent makes the kernel end the child when the test's process ends, however it ends.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
