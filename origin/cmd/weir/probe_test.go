package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A health check that takes any answer for health keeps a broken container in service.
func TestProbeFailsUnlessTheAnswerIs200(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/fine", http.StatusFound)
		case "/busy":
			http.Error(w, "busy", http.StatusServiceUnavailable)
		default:
			_, _ = w.Write([]byte("alive"))
		}
	}))
	if out, _, err := invoke(t, newRootCommand(), "probe", s.URL+"/fine"); err != nil || out != "alive" {
		t.Errorf("a page that is there: %q, %v", out, err)
	}
	for path, want := range map[string]string{"/moved": "status 302, want 200", "/busy": "status 503, want 200"} {
		out, _, err := invoke(t, newRootCommand(), "probe", s.URL+path)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %s", path, out, err, want)
		}
	}
	s.Close()
	for line, want := range map[string]string{
		"probe " + s.URL:                "connection refused",
		"probe ":                        "probe: URL is missing",
		"probe :":                       "missing protocol scheme",
		"probe --within 0s http://[::]": "want more than 0",
		"demo api --listen nowhere":     "demo api: listen tcp: address nowhere: missing port",
	} {
		if _, _, err := invoke(t, newRootCommand(), strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

func TestDemoAPIEndsWellWhenItIsToldTo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root := newRootCommand()
	root.SetArgs([]string{"demo", "api", "--listen", "127.0.0.1:0"})
	if err := root.ExecuteContext(ctx); err != nil {
		t.Error(err)
	}
}
