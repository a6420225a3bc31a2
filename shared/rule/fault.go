package rule

import (
	"strconv"
	"strings"
)

// Source is where a value stands in the file that it came from. The zero value stands for "no file".
type Source struct {
	File         string
	Line, Column int // from 1; 0 where unknown
}

// String is file:line:column, without the parts that are unknown.
func (s Source) String() string {
	text := s.File
	if s.Line > 0 {
		text += ":" + strconv.Itoa(s.Line)
		if s.Column > 0 {
			text += ":" + strconv.Itoa(s.Column)
		}
	}
	return text
}

// Fault is one thing wrong in a file: where, in which field, the value found, what is wanted in its place.
type Fault struct {
	At    Source
	Field string // path of the field, as rules[2].limit
	Value string // as written; empty where nothing was
	Want  string // what is allowed, or why the value is not
}

// maxShownValue bounds how much of a hostile value or name reaches a terminal or a log.
const maxShownValue = 80

// Error is "file:line:column: field: "value": want", on one line whatever the value holds.
func (f Fault) Error() string {
	var b strings.Builder
	if at := f.At.String(); at != "" {
		b.WriteString(at + ": ")
	}
	if f.Field != "" {
		b.WriteString(plain(f.Field) + ": ")
	}
	if f.Value != "" {
		b.WriteString(strconv.Quote(short(f.Value)) + ": ")
	}
	b.WriteString(f.Want)
	return b.String()
}

// short is the beginning of a long text.
func short(text string) string {
	if len(text) > maxShownValue {
		return text[:maxShownValue] + "…"
	}
	return text
}

// plain is a field's path with the names in it, which may be the writer's own, as a terminal can show them.
func plain(field string) string {
	quoted := strconv.Quote(short(field))
	return quoted[1 : len(quoted)-1]
}

// Faults are all things wrong in a file, in the order of the file. An empty Faults is no error: return it through
// [Faults.Err].
type Faults []Fault

// Error is one line a fault.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Err is fs as an error, nil when there is no fault.
func (fs Faults) Err() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}
