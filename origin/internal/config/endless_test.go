package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirproject/weir/origin/internal/config"
)

// Of files that settings name, what has no end is not waited for, and what is huge is not read.
func TestFilesWithoutAnEndAreRefused(t *testing.T) {
	folder := t.TempDir()
	pipe, huge := filepath.Join(folder, "pipe"), filepath.Join(folder, "huge")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 64<<30); err != nil { // a hole
		t.Fatal(err)
	}
	for _, path := range []string{pipe, huge, "/dev/zero", folder} {
		for _, settings := range []string{
			"secrets: {counter: [%s]}",
			"store: {url: \"valkey://h\", password-file: %s}",
			"store: {url: \"valkeys://h\", tls: {ca: %s}}",
			"store: {url: \"valkeys://h\", tls: {cert: %[1]s, key: %[1]s}}",
			"identity: {oidc: [{issuer: \"https://i.example\", audience: [a], ca: %s}]}",
		} {
			text := "upstream: http://127.0.0.1:9000\n" + fmt.Sprintf(settings, path) + "\n"
			_, err := config.Load(write(t, "weir.yaml", text), none)
			if err == nil || !strings.Contains(err.Error(), "is not a regular file") && !strings.Contains(err.Error(), "is larger than") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}
