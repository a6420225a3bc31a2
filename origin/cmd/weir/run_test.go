package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/stand"
)

func TestPastedLinesGoWhereTheSystemIs(t *testing.T) {
	run := stand.Run{Edge: "http://127.0.0.1:1", Origin: "http://127.0.0.1:2", Admin: "http://127.0.0.1:3",
		EnvoyAdmin: "http://127.0.0.1:4", API: "http://127.0.0.1:5", Issuer: "http://127.0.0.1:7", UserToken: "a.b.c", Valkey: "valkey://127.0.0.1:6", DemoKey: "wk_demo"}
	show := func(run stand.Run) string {
		var out strings.Builder
		if err := showRun(&out, run, "build/run", "wk_forged"); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	pasted := func(text string) (lines []string) {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "    ") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return lines
	}
	whole := pasted(show(run))
	if len(whole) != 7 {
		t.Fatalf("%d lines to paste, want seven:\n%s", len(whole), strings.Join(whole, "\n"))
	}
	for i, want := range []string{run.Edge + "/", run.Edge + "/", run.Edge + "/", run.Edge + "/", "counters show --key-id demo --admin " + run.Admin, run.Admin + "/metrics", run.EnvoyAdmin + "/stats"} {
		if !strings.Contains(whole[i], want) {
			t.Errorf("line %d does not go to %s: %s", i+1, want, whole[i])
		}
	}

	run.Edge, run.EnvoyAdmin, run.Valkey = "", "", ""
	text := show(run)
	alone := pasted(text)
	if len(alone) != 7 || !strings.Contains(alone[0], run.Origin+"/") {
		t.Errorf("without Envoy:\n%s", strings.Join(alone, "\n"))
	}
	for _, absent := range []string{"edge", "envoy", "valkey"} {
		if strings.Contains(text, "  "+absent) {
			t.Errorf("%s does not run, but stands in the table:\n%s", absent, text)
		}
	}
}

func TestRunAndDemoTellWhatIsAllowed(t *testing.T) {
	if _, _, err := invoke(t, newRunCommand(), "--store", "redis"); err == nil || !strings.Contains(err.Error(), `store: "redis": want valkey or memory`) {
		t.Errorf("store: %v", err)
	}
	if _, _, err := invoke(t, newRunCommand(), "--envoy", "maybe"); err == nil || !strings.Contains(err.Error(), `envoy: "maybe": want yes or no`) {
		t.Errorf("envoy: %v", err)
	}
	absent := filepath.Join(t.TempDir(), "run.json")
	if _, _, err := invoke(t, newDemoCommand(), "--run", absent); err == nil || !strings.Contains(err.Error(), "nothing runs here: "+absent) {
		t.Errorf("demo: %v", err)
	}
}
