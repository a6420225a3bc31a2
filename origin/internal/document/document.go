// Package document reads YAML files strictly, keeping the position of every value.
//
// Nothing is guessed: an unknown field, a field given twice, a value of the wrong kind or an empty one is a
// [rule.Fault]; all of them are collected, so that one run shows everything that is wrong with a file.
package document

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/weirproject/weir/shared/rule"
)

// Bounds of a file. The YAML parser recurses once a level and writes a path for every node, so that 200,000 opening
// brackets would take gigabytes; our own files nest five levels deep.
const (
	// MaxBytes is how much of a file is read at all; a document may have less: see [Parse].
	MaxBytes   = 64 << 20
	maxDepth   = 16
	maxColumn  = 64    // of a key that begins its line, and of a list's dash: each level of indentation takes a column
	maxKeys    = 1_000 // of one mapping in lines of its own, for which the parser takes time by their square
	maxEmpty   = 1_000 // elements of lists that are nothing but a dash, likewise
	maxAnchors = 1_000
	maxAliases = 10_000 // resolved while reading: what an alias in an alias may multiply to
	// maxRead bounds the values that are read beyond those that the file has tokens for: what aliases of long lists, each
	// of them read anew, may multiply to.
	maxRead = 500_000
	// maxFaults keeps a broken file of 400,000 entries from answering with as many lines.
	maxFaults = 100
)

// Document is one parsed file with the faults found in it so far. It is for one goroutine.
type Document struct {
	file    string
	root    ast.Node
	anchors map[string]*ast.AnchorNode
	aliases int
	room    int // values that may yet be read
	faults  rule.Faults
	dropped int
	// shapeless tells that the root is no mapping: everything is absent, for one cause.
	shapeless bool
}

// ReadFile parses the file at path, named in faults as name. The error tells why it cannot be read at all; what is
// wrong inside comes with [Document.Faults].
func ReadFile(path, name string) (*Document, []byte, error) {
	content, err := Content(path)
	if err != nil {
		return nil, nil, err
	}
	return Parse(name, content), content, nil
}

// Parse parses content, which faults name as file. A document that cannot be parsed has one fault and an absent root; so has
// one whose text takes more than it may, at most 8 MiB, in lines of at most 16 KiB.
func Parse(file string, content []byte) *Document {
	d := &Document{file: file, anchors: map[string]*ast.AnchorNode{}}
	content = bytes.TrimPrefix(content, []byte("\ufeff")) // editors of some systems write a byte order mark
	tokens, ok := d.tokens(content)
	if !ok || !d.bounded(tokens) || !d.single(tokens) {
		return d
	}
	d.room = len(tokens) + maxRead
	parsed, err := parse(tokens)
	if err != nil {
		d.syntax(err)
		return d
	}
	for _, doc := range parsed.Docs {
		if doc.Body != nil && d.root == nil {
			d.root = doc.Body
		}
	}
	if d.root == nil {
		d.add(rule.Source{File: file}, "", "", "is empty")
		return d
	}
	ast.Walk(anchorCollector{d}, d.root)
	return d
}

// single checks that there is one document. The parser does not tell: it drops what follows an empty one.
func (d *Document) single(tokens token.Tokens) bool {
	begun, ended := false, false // a document, which an empty one is as well
	for _, tk := range tokens {
		switch tk.Type {
		case token.CommentType:
		case token.DocumentHeaderType:
			begun, ended = true, ended || begun
		case token.DocumentEndType:
			ended = ended || begun
		default:
			if ended {
				d.add(rule.Source{File: d.file, Line: tk.Position.Line, Column: tk.Position.Column}, "", "", "is a second document: want one a file")
				return false
			}
			begun = true
		}
	}
	return true
}

// parse keeps a fault of the YAML parser itself from ending the process: rules are read while serving.
func parse(tokens token.Tokens) (file *ast.File, err error) {
	defer func() {
		if caught := recover(); caught != nil {
			err = errors.New("is not YAML that can be read")
		}
	}()
	// Doubled keys are found by Fields, which goes on after the first.
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// bounded checks what has to hold before the parser may recurse into the tokens.
func (d *Document) bounded(tokens token.Tokens) bool {
	flow, anchors, line, empty := 0, 0, 0, 0
	dash := false               // the token before was one
	begins := false             // the token before began its line
	column := 0                 // of the token before
	var keys [maxColumn + 1]int // of the mapping at hand, by the column that its keys begin in
	for _, tk := range tokens {
		at := rule.Source{File: d.file, Line: tk.Position.Line, Column: tk.Position.Column}
		if dash && at.Line != line && at.Column <= column {
			if empty++; empty > maxEmpty {
				d.add(at, "", "", fmt.Sprintf("has too many empty elements before it: want at most %d", maxEmpty))
				return false
			}
		}
		nests := false
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.AnchorType:
			anchors++
		case token.TagType, token.DirectiveType:
			d.add(at, "", tk.Value, "tags and directives are not allowed")
			return false
		case token.SequenceEntryType, token.MappingKeyType:
			nests = at.Column > maxColumn
			if tk.Type == token.SequenceEntryType {
				clear(keys[min(at.Column+1, len(keys)):]) // a new element
			} else if flow == 0 && !nests && !d.another(&keys, at.Column, at) {
				return false
			}
		case token.MappingValueType: // the colon of a key that stands before it
			nests = flow == 0 && begins && column > maxColumn
			if flow == 0 && column <= maxColumn && !d.another(&keys, column, at) {
				return false
			}
		}
		dash = tk.Type == token.SequenceEntryType
		begins, line, column = at.Line != line, at.Line, at.Column
		if flow > maxDepth || nests {
			d.add(at, "", "", fmt.Sprintf("nests too deep: want at most %d levels, indented by at most %d", maxDepth, maxColumn))
			return false
		}
		if anchors > maxAnchors {
			d.add(at, "", "", fmt.Sprintf("has too many anchors: want at most %d", maxAnchors))
			return false
		}
	}
	return true
}

// another counts a key that begins in a column, which ends the mappings of the columns behind it; false, with a fault, for one
// too many.
func (d *Document) another(keys *[maxColumn + 1]int, column int, at rule.Source) bool {
	clear(keys[column+1:])
	if keys[column]++; keys[column] <= maxKeys {
		return true
	}
	d.add(at, "", "", fmt.Sprintf("has too many fields in one mapping: want at most %d", maxKeys))
	return false
}

// syntax records an error of the YAML parser, as one line with its position.
func (d *Document) syntax(err error) {
	at, message := rule.Source{File: d.file}, err.Error()
	if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok {
		message = syntax.Message
		if syntax.Token != nil {
			at.Line, at.Column = syntax.Token.Position.Line, syntax.Token.Position.Column
		}
	}
	message, _, _ = strings.Cut(message, "\n")
	d.add(at, "", "", "is not YAML: "+message)
}

// Root is the whole document.
func (d *Document) Root() Value { return Value{doc: d, node: d.root, at: rule.Source{File: d.file}} }

// Broken tells whether any fault was found so far.
func (d *Document) Broken() bool { return len(d.faults) > 0 }

// FaultsWith are the document's faults with those that others found in its values. A field that has a fault already
// gets no second one, nor do the fields below it: what could not be read would be called missing as well.
func (d *Document) FaultsWith(others rule.Faults) rule.Faults {
	if d.shapeless {
		return d.Faults()
	}
	faulty := map[string]bool{}
	for _, f := range d.faults {
		faulty[f.Field] = true
	}
	for _, f := range others {
		if under(f.Field, faulty) {
			continue
		}
		if f.At.File == "" {
			f.At.File = d.file
		}
		d.add(f.At, f.Field, f.Value, f.Want)
	}
	return d.Faults()
}

// Faults are all faults found so far, in the order of the file.
func (d *Document) Faults() rule.Faults {
	slices.SortStableFunc(d.faults, func(a, b rule.Fault) int {
		return cmp.Or(cmp.Compare(a.At.Line, b.At.Line), cmp.Compare(a.At.Column, b.At.Column))
	})
	if d.dropped == 0 {
		return d.faults
	}
	return append(slices.Clip(d.faults), rule.Fault{
		At: rule.Source{File: d.file}, Want: "and " + strconv.Itoa(d.dropped) + " more"})
}

// under tells whether a field, or one that it is part of, is in a set.
func under(field string, set map[string]bool) bool {
	for field != "" {
		if set[field] {
			return true
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return false
}

func (d *Document) add(at rule.Source, field, value, want string) {
	if len(d.faults) >= maxFaults {
		d.dropped++
		return
	}
	d.faults = append(d.faults, rule.Fault{At: at, Field: field, Value: value, Want: want})
}

// source is where a node begins. A mapping begins at its first key.
func (d *Document) source(node ast.Node) rule.Source {
	at := rule.Source{File: d.file}
	switch n := node.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return d.source(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return d.source(n.Key)
	}
	if tk := node.GetToken(); tk != nil && tk.Position != nil {
		at.Line, at.Column = tk.Position.Line, tk.Position.Column
	}
	return at
}

// anchorCollector records the anchored nodes of a document.
type anchorCollector struct{ doc *Document }

func (c anchorCollector) Visit(node ast.Node) ast.Visitor {
	if anchor, ok := node.(*ast.AnchorNode); ok && anchor.Name != nil {
		name := anchor.Name.GetToken().Value
		if first, twice := c.doc.anchors[name]; twice { // an alias would mean now the one, now the other
			c.doc.add(c.doc.source(anchor), "", "&"+name, "is an anchor a second time: first at line "+strconv.Itoa(c.doc.source(first).Line))
		} else {
			c.doc.anchors[name] = anchor
		}
	}
	return c
}
