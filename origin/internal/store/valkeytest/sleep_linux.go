package valkeytest

import (
	"syscall"
	"time"
)

// SleepUntil waits for an instant, more exactly than package time does: an idle Go process wakes from a sleep of less than
// a millisecond after one, since its poller counts in those. The system call is late by 60 µs.
func SleepUntil(due time.Time) {
	for wait := time.Until(due); wait > 0; wait = time.Until(due) {
		if wait > 2*time.Millisecond {
			time.Sleep(wait - time.Millisecond)
			continue
		}
		left := syscall.NsecToTimespec(int64(wait))
		syscall.Nanosleep(&left, nil)
	}
}
