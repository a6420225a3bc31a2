package valkeytest

import (
	"syscall"
	"time"
)

// sleepUntil waits for an instant. An idle Go process wakes from sleeps below a millisecond after one: its poller counts
// in milliseconds. The system call is late by 60 µs.
func sleepUntil(due time.Time) {
	for wait := time.Until(due); wait > 0; wait = time.Until(due) {
		if wait > 2*time.Millisecond {
			time.Sleep(wait - time.Millisecond)
			continue
		}
		left := syscall.NsecToTimespec(int64(wait))
		syscall.Nanosleep(&left, nil)
	}
}
