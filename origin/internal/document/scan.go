package document

import (
	"bytes"
	"fmt"
	"io"

	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"

	"github.com/weirproject/weir/shared/rule"
)

// Bounds of a text, for which the YAML scanner takes time by the square or the cube of some of its parts, and up to 350
// bytes of memory a token. 10,000 rules are some 4 MB of 400,000 tokens.
const (
	maxText   = 8 << 20
	maxTokens = 1_000_000
	maxLine   = 16 << 10 // a list in brackets is copied anew for each of its elements that ends in the same line
	maxBlank  = 100      // lines in a row without anything: 10,000 of them within a text take a minute
)

// tokens takes content apart; false, with a fault, beyond a bound.
func (d *Document) tokens(content []byte) (all token.Tokens, ok bool) {
	if len(content) > maxText {
		d.add(rule.Source{File: d.file}, "", "", fmt.Sprintf("is too large: want at most %d bytes", maxText))
		return nil, false
	}
	number, blank := 0, 0
	for rest := content; len(rest) > 0; {
		number++
		end := bytes.IndexAny(rest, "\r\n")
		line := rest
		if end >= 0 {
			line, rest = rest[:end], rest[end+1:]
		} else {
			rest = nil
		}
		if len(line) > maxLine {
			d.add(rule.Source{File: d.file, Line: number}, "", "", fmt.Sprintf("is too long a line: want at most %d bytes", maxLine))
			return nil, false
		}
		if blank++; len(bytes.Trim(line, " \t")) > 0 {
			blank = 0
		}
		if blank > maxBlank {
			d.add(rule.Source{File: d.file, Line: number}, "", "", fmt.Sprintf("is one blank line too many: want at most %d in a row", maxBlank))
			return nil, false
		}
	}
	var s scanner.Scanner
	s.Init(string(content))
	for {
		some, err := s.Scan()
		if err == io.EOF {
			return all, true
		}
		all.Add(some...)
		if len(all) > maxTokens {
			d.add(rule.Source{File: d.file}, "", "", fmt.Sprintf("holds too much: want at most %d names, values and marks", maxTokens))
			return nil, false
		}
	}
}
