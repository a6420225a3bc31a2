package document_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/origin/internal/document"
	"github.com/weirproject/weir/shared/rule"
)

// read reads text by a small schema, as the packages above do, giving one line a fault.
func read(text string) (got map[string]string, faults []string) {
	doc := document.Parse("f.yaml", []byte(text))
	got = map[string]string{}
	if doc.Root().Present() {
		root := doc.Root().FieldsBut([]string{"later"}, "name", "count", "list", "inner")
		for _, field := range []string{"name", "count"} {
			if s := root.Get(field).Scalar(); s.Set {
				got[field] = fmt.Sprintf("%s at %d:%d", s.Text, s.At.Line, s.At.Column)
			}
		}
		for _, item := range root.Get("list").Items() {
			got["list"] += item.Scalar().Text + ";"
		}
		if s := root.Get("inner").Fields("a", "b").Get("a").Scalar(); s.Set {
			got["inner.a"] = s.Text
		}
	}
	for _, f := range doc.Faults() {
		faults = append(faults, f.Error())
	}
	return got, faults
}

func TestValuesKeepTheirTextAndPlace(t *testing.T) {
	got, faults := read(`# a comment
name: "quo\"ted"
count: 007
list: [1_000, 0x1F, yes, 1e3, ~x]
inner:
  a: |
    two
    lines
`)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	want := map[string]string{"name": `quo"ted at 2:7`, "count": "007 at 3:8", "list": "1_000;0x1F;yes;1e3;~x;", "inner.a": "two\nlines\n"}
	for field, text := range want {
		if got[field] != text {
			t.Errorf("%s: %q, want %q", field, got[field], text)
		}
	}
}

// Every mistake is told, in the order of the file, with its place.
func TestAllMistakesAreToldAtOnce(t *testing.T) {
	_, faults := read(`nmae: x
name: [a]
count: 1
count: 2
list: {a: 1}
later: 1
inner:
  a:
  c: 1
`)
	want := []string{
		`f.yaml:1:1: nmae: is unknown: want one of name, count, list, inner`,
		`f.yaml:2:7: name: want a single value`,
		`f.yaml:4:1: count: is given twice: first at line 3`,
		`f.yaml:5:7: list: want a list`,
		`f.yaml:6:1: later: is not in this version: want one of name, count, list, inner`,
		`f.yaml:8:3: inner.a: has no value`,
		`f.yaml:9:3: inner.c: is unknown: want one of a, b`,
	}
	if !slices.Equal(faults, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(faults, "\n"), strings.Join(want, "\n"))
	}
}

func TestWhatIsNoDocumentIsOneLineWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "f.yaml: is empty",
		"# nothing but a comment\n":      "f.yaml: is empty",
		"---\n":                          "f.yaml: is empty",
		"name: [a, b\n":                  "f.yaml:1:7: is not YAML: ",
		"name:\n\tx: 1\n":                "f.yaml:2:1: is not YAML: ",
		"name: a: b\n":                   "f.yaml:1:7: is not YAML: ",
		"name: x\n---\nname: y\n":        "f.yaml:3:1: is a second document",
		"name: x\n---\n---\nname: y\n":   "f.yaml:4:1: is a second document",
		"---\n---\nname: x\n":            "f.yaml:3:1: is a second document",
		"name: x\n...\ncount: 1\n":       "f.yaml:3:1: is a second document",
		"name: *n\nlist: [&n x]\n":       `f.yaml:1:7: name: "*n": is an alias of no anchor before it`,
		"list: [&n x, *n, &n y, *n]\n":   `f.yaml:1:18: "&n": is an anchor a second time: first at line 1`,
		"just words\n":                   `f.yaml:1:1: "just words": want a mapping with name, count, list, inner`,
		"- a\n- b\n":                     "f.yaml:1:1: want a mapping with name, count, list, inner",
		"name: *nobody\n":                `f.yaml:1:7: name: "*nobody": is an alias of no anchor`,
		"name: !!binary aGk=\n":          "tags and directives are not allowed",
		"%YAML 1.2\n---\nname: x\n":      "tags and directives are not allowed",
		"inner: {<<: {a: 1}}\n":          "inner.<<: is unknown",
		"list: &l [*l]\n":                "want a single value",
		"inner: &i\n  a: *i\n":           "want a single value",
		strings.Repeat("[", 16_000):      "nests too deep",
		strings.Repeat("{a: ", 4_000):    "nests too deep",
		strings.Repeat("- ", 8_000):      "nests too deep",
		strings.Repeat("? ", 8_000):      "nests too deep",
		strings.Repeat("a: 1\n", 20_000): "f.yaml:1001:2: has too many fields in one mapping: want at most 1000",
		"inner:\n" + strings.Repeat("  ? a\n  : 1\n", 20_000): "too many fields",
		strings.Repeat("&a ", 5_000):                          "too many anchors",
		strings.Repeat("!t ", 5_000):                          "tags and directives are not allowed",
		strings.Repeat("x\n", 4<<20) + "x":                    "f.yaml: is too large: want at most 8388608 bytes",
		"list: [" + strings.Repeat("a,", 100_000) + "]\n":     "f.yaml:1: is too long a line: want at most 16384 bytes",
		"name: |\n  x\n" + strings.Repeat("\n", 200_000):      "f.yaml:103: is one blank line too many: want at most 100 in a row",
		"name: |\n  x\n" + strings.Repeat("\r", 200_000):      "f.yaml:103: is one blank line too many",
		"name: >\n  x\n" + strings.Repeat(" \t\n", 70_000):    "f.yaml:103: is one blank line too many",
		"list:\n" + strings.Repeat("-\n", 100_000):            "f.yaml:1003:1: has too many empty elements",
		"list:\n" + strings.Repeat("- -\n", 100_000):          "too many empty elements",
		strings.Repeat("? a\n", 100_000):                      "f.yaml:1001:1: has too many fields in one mapping",
		"list: [\n" + strings.Repeat("a,b,c,d,\n", 130_000):   "f.yaml: holds too much: want at most 1000000 names",
	} {
		_, faults := read(text)
		shown := text[:min(len(text), 40)]
		if len(faults) != 1 || !strings.Contains(faults[0], want) || strings.Contains(faults[0], "\n") {
			t.Errorf("%q: %q, want %q", shown, faults, want)
		}
	}
}

func TestDeepIndentationIsBounded(t *testing.T) {
	var b strings.Builder
	for level := range 1000 {
		fmt.Fprintf(&b, "%*sa:\n", level, "")
	}
	if _, faults := read(b.String()); len(faults) != 1 || !strings.Contains(faults[0], "nests too deep") {
		t.Errorf("%q", faults)
	}
}

// Fields of many elements are not fields of one mapping.
func TestAListMayHoldMoreMappingsThanAMappingHasFields(t *testing.T) {
	for _, item := range []string{"- name: x\n  count: 1\n", "-\n  name: x\n  inner:\n    a: b\n", "- {name: x}\n"} {
		doc := document.Parse("f.yaml", []byte("list:\n"+strings.Repeat(item, 1500)))
		if n := len(doc.Root().Fields("list").Get("list").Items()); n != 1500 || doc.Broken() {
			t.Errorf("%q: %d elements, %v", item, n, doc.Faults())
		}
	}
}

func TestAliasesStandForTheirAnchorsWithinABound(t *testing.T) {
	got, faults := read("name: &n hello\nlist: [*n, *n]\ninner: {a: *n}\n")
	if len(faults) > 0 || got["list"] != "hello;hello;" || got["inner.a"] != "hello" {
		t.Errorf("%q, %q", got, faults)
	}
	// What follows one document and is none, and a byte order mark.
	for _, text := range []string{"name: x\n---\n", "name: x\n...\n---\n# end\n", "# begin\n---\nname: x\n", "\ufeffname: x\n"} {
		if got, faults := read(text); len(faults) > 0 || !strings.HasPrefix(got["name"], "x at ") {
			t.Errorf("%q: %q, %q", text, got, faults)
		}
	}
	// A list that an alias stands for is read each time: 2,000 times 1,000 values.
	long := "list: &l [" + strings.Repeat("x,", 1000) + "]\n"
	doc := document.Parse("f.yaml", []byte(long+"lists: ["+strings.Repeat("*l,", 2000)+"]\n"))
	values := 0
	for _, list := range doc.Root().Fields("list", "lists").Get("lists").Items() {
		values += len(list.Items())
	}
	if faults := doc.Faults(); len(faults) != 1 || !strings.Contains(faults[0].Error(), "multiplied") || values > 510_000 {
		t.Errorf("%d values, %q", values, faults)
	}
	// An alias of itself, and more aliases than a file of ours can need.
	for _, text := range []string{"name: &a *a\n", "name: &n x\nlist: [" + strings.Repeat("*n,", 10_001) + "]\n"} {
		if _, faults := read(text); len(faults) == 0 {
			t.Errorf("%.40q: no fault", text)
		}
	}
}

func TestAHopelessFileDoesNotFloodTheTerminal(t *testing.T) {
	_, faults := read("{" + strings.Repeat("x: 1,\n ", 5_000) + "}")
	if len(faults) != 101 || !strings.HasSuffix(faults[100], "and 4900 more") {
		t.Errorf("%d faults, the last %q", len(faults), faults[len(faults)-1])
	}
}

// Whatever the bytes: no panic, and a file that is not taken says why on one line each.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"name: x\n", "list: [a, *b]\n", "a: &a {b: *a}\n", "? [a]\n: b\n", "\x00\xff", "a: 'b", "--- |\n x", "- - - a\n", "{a: , b}", "name: \"\\x\"\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, faults := read(text)
		for _, line := range faults {
			if strings.Contains(line, "\n") || !strings.HasPrefix(line, "f.yaml") {
				t.Errorf("fault %q", line)
			}
		}
		if len(faults) == 0 && strings.TrimSpace(text) == "" {
			t.Errorf("%q: %v without a fault", text, got)
		}
	})
}

func TestTextInPlaceOfAMappingIsOneFault(t *testing.T) {
	for text, want := range map[string]string{
		"word\n":         `f:1:1: "word": want a mapping with rules`,
		"rules: [word]":  `f:1:9: rules[0]: "word": want a mapping with name, match`,
		"rules: [[a]]\n": `f:1:9: rules[0]: want a mapping with name, match`,
	} {
		doc := document.Parse("f", []byte(text))
		list := doc.Root().Fields("rules").Get("rules")
		if !list.Present() {
			list.Fault("want a list")
		}
		for _, item := range list.Items() {
			fields := item.Fields("name", "match")
			fields.Get("name").Fault("is missing")
			fields.Get("match").Fields("paths").Get("paths").Fault("is missing")
		}
		faults := doc.FaultsWith(rule.Faults{{Field: "rules[0].by", Want: "is missing"}})
		if faults.Error() != want {
			t.Errorf("%q: got %v, want %s", text, faults, want)
		}
	}
}
