package certificate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/origin/internal/certificate"
	"github.com/weirproject/weir/origin/internal/certificate/certificatetest"
)

// files are a certificate that is valid until then, its key, and its authority.
func files(t *testing.T, until time.Time) []string {
	t.Helper()
	authority := certificatetest.New(t)
	pair := authority.IssueUntil(t, until, "localhost")
	folder := t.TempDir()
	paths := []string{filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem"), filepath.Join(folder, "ca.pem")}
	for i, content := range [][]byte{pair.Cert, pair.Key, authority.PEM} {
		if err := os.WriteFile(paths[i], content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func TestFilesThatNoClientWouldAcceptAreRefusedByName(t *testing.T) {
	good, other, old := files(t, time.Now().Add(time.Hour)), files(t, time.Now().Add(time.Hour)), files(t, time.Now().Add(-time.Minute))
	for name, c := range map[string]struct {
		paths []string
		want  []string // parts of the error; none: good
	}{
		"a pair":              {good[:2], nil},
		"with authorities":    {good, nil},
		"another's key":       {[]string{good[0], other[1]}, []string{good[0], other[1], "does not match"}},
		"key for certificate": {[]string{good[1], good[1]}, []string{good[1]}},
		"expired":             {old[:2], []string{old[0], "expired at"}},
		"authorities without": {[]string{good[0], good[1], good[1]}, []string{good[1], "no certificate"}},
		"missing":             {[]string{good[0], filepath.Join(t.TempDir(), "none.pem")}, []string{"none.pem"}},
	} {
		f, err := certificate.Open(c.paths)
		if c.want == nil {
			if err != nil || f.Get() == nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: opened", name)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want it to say %s", name, err, part)
			}
		}
		if strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: the error shows a key: %v", name, err)
		}
	}
}
