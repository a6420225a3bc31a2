//go:build !linux

package valkeytest

import "time"

// SleepUntil waits for an instant.
func SleepUntil(due time.Time) { time.Sleep(time.Until(due)) }
