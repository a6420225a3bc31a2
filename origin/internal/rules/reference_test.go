package rules_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/rules"
)

// example is the first block of YAML of a document.
func example(t *testing.T, file string) (text, yaml string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(content), "```yaml\nversion: 1\n")
	yaml, _, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatalf("%s has no block of YAML that begins with version: 1", file)
	}
	return string(content), "version: 1\n" + yaml
}

func TestTheExamplesInTheDocumentsAreGood(t *testing.T) {
	_, enforced := example(t, "../../../README.md")
	if _, err := rules.Parse("README.md", []byte(enforced)); err != nil {
		t.Error(err)
	}
	_, model := example(t, "../../../shared/rule/README.md")
	if release, err := rules.ParseModel("README.md", []byte(model)); err != nil {
		t.Error(err)
	} else if len(release.Warnings) > 0 {
		t.Error(release.Warnings)
	}
}

// The parser tells what it knows when it meets a field or word that it does not.
func TestTheReferenceNamesEveryFieldAndWord(t *testing.T) {
	text, _ := example(t, "../../../shared/rule/README.md")
	_, err := rules.ParseModel("r.yaml", []byte(`version: 1
rules:
- {name: a, where: x, by: [x], algorithm: x, limit: 1/1s, mode: x, on-store-failure: x, headers: x, x: x, match: {x: x}, address-prefix: {x: x},
  valid-key: {x: x}, penalty: {x: x}}
overrides:
- {x: x}
edge: {x: x, unverified: {x: x}}
`))
	if err == nil {
		t.Fatal("nothing is refused")
	}
	lists := 0
	for line := range strings.Lines(err.Error()) {
		_, list, ok := strings.Cut(strings.TrimSpace(line), "want one of ")
		if !ok {
			continue
		}
		lists++
		list, _, _ = strings.Cut(list, ", or several")
		for word := range strings.SplitSeq(list, ", ") {
			if !strings.Contains(text, "`"+word+"`") && !strings.Contains(text, word+": ") {
				t.Errorf("%q is not explained: %s", word, line)
			}
		}
	}
	if lists != 15 {
		t.Errorf("%d lists of words, want 15:\n%v", lists, err)
	}
}
