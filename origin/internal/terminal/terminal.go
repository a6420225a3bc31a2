// Package terminal keeps text that somebody else chose from moving the terminal that it is printed on.
package terminal

import "strings"

// Printable is text with a question mark for each control character, so that it moves neither the cursor nor a table's
// columns.
func Printable(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 {
			return '?'
		}
		return c
	}, text)
}

// Row is a line of a [text/tabwriter] table, without its end, of columns made Printable.
func Row(columns ...string) string {
	printable := make([]string, len(columns))
	for i, text := range columns {
		printable[i] = Printable(text)
	}
	return strings.Join(printable, "\t")
}
