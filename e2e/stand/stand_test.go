package stand

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirproject/weir/shared/keyfilter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMissingPartSaysWhatToRun(t *testing.T) {
	t.Setenv("WEIR_ENVOY", filepath.Join(t.TempDir(), "nothing"))
	faults := Missing(Envoy)
	if len(faults) != 1 || !strings.Contains(faults[0], "WEIR_ENVOY=") {
		t.Errorf("faults %q, want one that names the variable", faults)
	}
	own := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(own, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WEIR_ENVOY", own)
	if path, err := Find(Envoy); err != nil || path != own {
		t.Errorf("found %s, %v, want the user's own %s", path, err, own)
	}
	if _, err := Find(Part("unheard-of")); err == nil {
		t.Error("a part that does not exist was found")
	}
}

func TestMetricAddsSeries(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("# TYPE a counter\na{x=\"1\",y=\"2\"} 3\na{x=\"2\"} 4\nab 100\nb 5e2\n"))
	}))
	defer s.Close()
	c := NewClient(t, "127.0.0.9")
	for _, m := range []struct {
		name   string
		labels []string
		want   float64
	}{{"a", nil, 7}, {"a", []string{`x="1"`}, 3}, {"b", nil, 500}, {"c", nil, 0}} {
		if got := Metric(t, c, s.URL, m.name, m.labels...); got != m.want {
			t.Errorf("%s%v = %v, want %v", m.name, m.labels, got, m.want)
		}
	}
}

func TestAPICountsAndClientSendsRepeatedLines(t *testing.T) {
	api := StartAPI(t)
	c := NewClient(t, "127.0.0.9")
	if r := c.Get(t, api.URL+"/a", "x-two: 1", "x-two: 2", "Host: elsewhere"); r.Status != 200 || r.Header.Get("X-Weir-Hint") == "" {
		t.Errorf("answer %d %v", r.Status, r.Header)
	}
	c.Get(t, api.URL+"/b")
	if api.Calls() != 2 || api.At("/a") != 1 {
		t.Errorf("%d calls, %d at /a", api.Calls(), api.At("/a"))
	}
	if _, err := c.Try(api.URL, "no colon"); err == nil {
		t.Error("a header line without a colon was sent")
	}
}

func TestKeyringFileKnowsWhatItIssued(t *testing.T) {
	k := NewKeyring(t)
	if !strings.Contains(k.File(), "keys: []") {
		t.Errorf("an empty ring's file:\n%s", k.File())
	}
	key, forged := k.Issue(t, "alice"), k.Forge(t)
	if f := (keyfilter.Format{Prefix: keyfilter.DefaultPrefix}); !f.Check([]byte(key)) || !f.Check([]byte(forged)) || key == forged {
		t.Errorf("keys %s, %s: want two of the right form", key, forged)
	}
	if file := k.File(); !strings.Contains(file, "{id: alice, sha256: ") || strings.Contains(file, key) {
		t.Errorf("file:\n%s", file)
	}
}

func TestProcessEndsWithItsTest(t *testing.T) {
	var p *Process
	t.Run("inner", func(t *testing.T) {
		p = Start(t, t.TempDir(), "sleeper", "/bin/sh", []string{"-c", "echo ready; exec sleep 600"}, nil)
		p.Until(t, "says ready", func() error {
			if p.Log() != "ready\n" {
				return os.ErrNotExist
			}
			return nil
		})
		if n := p.Resident(t); runtime.GOOS == "linux" && (n < 1<<16 || n > 1<<30) {
			t.Errorf("a shell of %d bytes", n)
		}
		p.Signal(t, syscall.SIGSTOP) // a stopped process must end too
	})
	select {
	case <-p.done:
	default:
		t.Error("the process goes on after its test")
	}
}
