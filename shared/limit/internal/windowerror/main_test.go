package main

import (
	"os"
	"strings"
	"testing"

	"github.com/weirproject/weir/shared/limit"
)

func TestTheReadmeHasTheTable(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := table(); !strings.Contains(string(readme), want) {
		t.Errorf("shared/limit/README.md should hold what `go run ./shared/limit/internal/windowerror` prints:\n%s", want)
	}
}

func TestErrorsAreCountedAgainstTheExactLog(t *testing.T) {
	var calls []limit.Micros
	for range 100 {
		calls = append(calls, rule.Window-1) // all there is, at the very end of a window
	}
	// Half a window on, half of it is free again to the counter, nothing to the log.
	for range 60 {
		calls = append(calls, 3*rule.Window/2)
	}
	if got, want := measure(calls), (errors{admitted: 150, exact: 100, over: 50, worst: 150}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	calls = calls[:0]
	for range 100 {
		calls = append(calls, rule.Window) // at the start of one, so that it weighs on for a whole window too long
	}
	for range 10 {
		calls = append(calls, 2*rule.Window)
	}
	if got, want := measure(calls), (errors{admitted: 100, exact: 110, under: 10, worst: 100}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
