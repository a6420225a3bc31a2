//go:build !linux

package stand

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
