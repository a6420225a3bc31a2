package admin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/admin"
	"github.com/weirproject/weir/origin/internal/telemetry"
)

func get(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// A process without its store answers by failure modes: taking it out of service would turn a degraded region into a
// dead one. One that is about to end is out of service, though it stands well.
func TestReadyMeansCanTakeRequests(t *testing.T) {
	for name, c := range map[string]struct {
		r    admin.Readiness
		code int
	}{
		"well":     {admin.Readiness{Ready: true, Store: admin.Store{Kind: "valkey", Up: true}}, 200},
		"degraded": {admin.Readiness{Ready: true, Degraded: true, Store: admin.Store{Kind: "valkey"}, Rules: admin.Content{File: "r", Content: "abc", Count: 3, Error: "r:1:1: want <calls>/<time>"}}, 200},
		"draining": {admin.Readiness{Draining: true, Store: admin.Store{Kind: "memory", Up: true}}, 503},
	} {
		w := get(admin.New(telemetry.New().Registry, func() admin.Readiness { return c.r }, nil), "GET", "/readyz")
		var got admin.Readiness
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != c.code || !reflect.DeepEqual(got, c.r) || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s, %v", name, w.Code, w.Body, err)
		}
		if !strings.Contains(w.Body.String(), c.r.Rules.Error) {
			t.Errorf("%s: the error is escaped: %s", name, w.Body)
		}
	}
}

func TestAliveIsToldApartFromReady(t *testing.T) {
	h := admin.New(telemetry.New().Registry, func() admin.Readiness { return admin.Readiness{Draining: true} }, nil)
	if w := get(h, "GET", "/healthz"); w.Code != 200 {
		t.Errorf("a draining process is called dead: %d", w.Code)
	}
}

func TestNothingCanBeChangedHere(t *testing.T) {
	h := admin.New(telemetry.New().Registry, func() admin.Readiness { return admin.Readiness{Ready: true} }, nil)
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/"} {
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			if w := get(h, method, path); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
	if w := get(h, "GET", "/debug/pprof/"); w.Code != 404 {
		t.Errorf("a path that is none: %d", w.Code)
	}
}

func TestMetricsAreThereBeforeTheFirstCall(t *testing.T) {
	m := telemetry.New()
	m.Rule("per-key")
	m.SetRelease(0, "abc")
	m.SetRelease(0, "def")
	text := get(admin.New(m.Registry, nil, nil), "GET", "/metrics").Body.String()
	for _, line := range []string{
		`weir_decisions_total{outcome="deny",rule="per-key",source="store"} 0`,
		`weir_deny_cache_total{result="hit"} 0`,
		`weir_keys_rejected_total{reason="key_unknown"} 0`,
		`weir_release_info{content="def",release="0"} 1`,
		`weir_store_up 0`,
		`weir_decision_duration_seconds_count 0`,
		`go_goroutines `,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %q", line)
		}
	}
	if strings.Contains(text, `content="abc"`) {
		t.Error("a release that is out of force is still shown")
	}
}
