package rules_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

func TestTheEdgeBlockIsReadWithItsFiles(t *testing.T) {
	release, err := rules.Load("testdata/edge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := release.Set.EdgeSettings
	v4 := func(bits uint8, a ...byte) rule.Network {
		n := rule.Network{Bits: bits}
		copy(n.Address[:], a)
		return n
	}
	v6 := func(bits uint8, a ...byte) rule.Network { n := v4(bits, a...); n.V6 = true; return n }
	wantExempt := []rule.Network{v4(8, 10), v4(32, 192, 0, 2, 7), v4(24, 198, 51, 100), v4(24, 203, 0, 113), v6(128, 0x20, 1, 0xd, 0xb8, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)}
	wantDeny := []rule.Network{v6(32, 0x20, 1, 0xd, 0xb8), v4(24, 192, 0, 2), v4(0)}
	if fmt.Sprint(got.Exempt) != fmt.Sprint(wantExempt) || fmt.Sprint(got.Deny) != fmt.Sprint(wantDeny) {
		t.Errorf("exempt %v, denied %v", got.Exempt, got.Deny)
	}
	if got.TableEntries != 1<<17 || got.StaleAfter != limit.Hour || got.Unverified != (limit.Limit{Count: 100, Window: limit.Second, Burst: 200}) {
		t.Errorf("%+v", got)
	}

	// Whoever has the text alone reads no file: what a control plane is sent must not open files of its machine.
	text, err := os.ReadFile("testdata/edge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	release, err = rules.Parse("testdata/edge.yaml", text)
	if err != nil || len(release.Set.EdgeSettings.Exempt) != 3 || len(release.Set.EdgeSettings.Deny) != 1 {
		t.Errorf("without files: %+v, %v", release, err)
	}
}

func TestABrokenEdgeBlockIsShownWithItsPlace(t *testing.T) {
	const golden = "testdata/edge-broken.faults"
	_, err := rules.Load("testdata/edge-broken.yaml")
	if err == nil {
		t.Fatal("the block was taken")
	}
	sameAs(t, golden, err)
}

func TestAHugeOrHopelessFileOfNetworksIsRefusedShortly(t *testing.T) {
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var many strings.Builder
	for i := range rule.MaxNetworks + 1 {
		fmt.Fprintf(&many, "10.%d.%d.%d\n", i>>16, i>>8&255, i&255)
	}
	write("many", many.String())
	write("most", many.String()[:strings.LastIndex(strings.TrimSuffix(many.String(), "\n"), "\n")])
	write("words", strings.Repeat("word\n", 100_000))
	block := func(text string) error {
		_, err := rules.Load(write("r.yaml", "version: 1\nrules:\n- {name: a, where: origin, by: [key], limit: 1/1s}\nedge: {"+text+"}\n"))
		return err
	}
	if err := block("deny-file: most"); err != nil {
		t.Errorf("100,000 networks: %v", err)
	}
	for text, want := range map[string]string{
		"deny-file: many":                    "many:100001: want at most 100000 networks",
		"deny-file: most, exempt: [9.9.9.9]": `edge: "100001": want at most 100000 networks, exempt and denied`,
		"deny-file: words":                   "words: is not read on after 20 faults",
		"exempt-file: " + folder:             "is not a regular file",
		"exempt-file: ''":                    "edge.exempt-file: want the name of a file",
		"exempt-file: absent":                "no such file",
		"exempt-file: most, deny-file: most": "is exempt as well, at " + filepath.Join(folder, "most") + ":1: want it in one list",
		"deny: 10.0.0.0/8":                   `edge.deny: "10.0.0.0/8": want a list`,
	} {
		if err := block(text); err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") > 101 {
			t.Errorf("%s: %.300v, want %s", text, err, want)
		}
	}
}
