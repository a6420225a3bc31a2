//go:build !linux

package valkeytest

import "time"

// sleepUntil waits for an instant.
func sleepUntil(due time.Time) { time.Sleep(time.Until(due)) }
