//go:build unix && !linux

package stand

import "syscall"

// childAttributes keep the terminal's Ctrl-C from the children, so that their parent ends them in order. Only Linux
// can end them with a parent that is killed.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
