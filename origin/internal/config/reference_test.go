package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/certificate/certificatetest"
	"github.com/weirproject/weir/origin/internal/config"
)

// blocks are the blocks of YAML of a document that begin with a field of weir.yaml.
func blocks(t *testing.T, file, field string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(m[1], field+":") {
			found = append(found, m[1])
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no block of YAML that begins with %s:", file, field)
	}
	return found
}

// What a reader copies from the documents is a good weir.yaml.
func TestTheExamplesInTheDocumentsAreGood(t *testing.T) {
	dir := t.TempDir()
	pair := certificatetest.New(t).Issue(t, "weir.internal")
	for name, content := range map[string][]byte{
		"weir.secret": []byte(strings.Repeat("s", config.MinSecret)), "valkey.password": []byte("word"),
		"ca.pem": pair.Cert, "weir.pem": pair.Cert, "weir.key": pair.Key,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	whole := blocks(t, "../../../README.md", "upstream")[0]
	store := "upstream: http://127.0.0.1:9000\nsecrets: {counter: [weir.secret]}\n"
	for name, text := range map[string]string{
		"README": whole,
		"Users":  whole + blocks(t, "../../../README.md", "identity")[0],
		"Valkey": store + blocks(t, "../../README.md", "store")[0],
	} {
		file := filepath.Join(dir, "weir.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(file, none); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The README's table names each variable that is looked at, and no other.
func TestTheReadmeNamesEveryVariable(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| field of `weir.yaml` |")
	table, _, _ = strings.Cut(table, "\n\n")
	told := regexp.MustCompile(`WEIR_[A-Z_]+`).FindAllString(table, -1)
	var looked []string
	for _, store := range []string{"valkey://127.0.0.1", "valkeys://127.0.0.1"} {
		file := write(t, "weir.yaml", "upstream: http://127.0.0.1:9000\nstore: {url: \""+store+"\"}\n")
		_, _ = config.Load(file, func(name string) (string, bool) { // its faults are not what this is about
			looked = append(looked, name)
			return "", false
		})
	}
	slices.Sort(told)
	slices.Sort(looked)
	if told, looked = slices.Compact(told), slices.Compact(looked); !slices.Equal(told, looked) {
		t.Errorf("the table names\n%s\nlooked at are\n%s", strings.Join(told, " "), strings.Join(looked, " "))
	}
}
