package document

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/weirproject/weir/shared/rule"
)

// Value is a value of a document with its place, or the absence of one. Its zero value is absent from no document:
// get one from [Document.Root].
type Value struct {
	doc   *Document
	node  ast.Node
	field string      // path from the root, as rules[2].limit
	at    rule.Source // where the field's name stands; of an absent value, where its parent begins
	lost  bool        // part of something that is no mapping, which is the fault: that it is absent is none
}

// Present tells whether the file holds the value.
func (v Value) Present() bool { return v.node != nil }

// Field is the path of the value, as rules[2].limit; empty for the root.
func (v Value) Field() string { return v.field }

// At is where the value stands: for an absent one, where its parent does.
func (v Value) At() rule.Source {
	if v.node == nil {
		return v.at
	}
	return v.doc.source(v.node)
}

// Fault records that the value is wrong and what is wanted. Of a field of what is no mapping nothing is recorded: the
// fault is told there.
func (v Value) Fault(want string) {
	if v.lost {
		return
	}
	v.doc.add(v.At(), v.field, v.text(), want)
}

// text is a scalar's text for messages, empty for anything else.
func (v Value) text() string {
	if s, ok := scalarText(v.node); ok {
		return s
	}
	return ""
}

// resolve follows anchors and aliases, giving nil after a fault.
func (v Value) resolve() ast.Node {
	node := v.node
	for {
		switch n := node.(type) {
		case *ast.AnchorNode:
			node = n.Value
		case *ast.AliasNode:
			name := n.Value.GetToken().Value
			target, ok := v.doc.anchors[name]
			if !ok || after(v.doc.source(target), v.doc.source(n)) {
				v.doc.add(v.doc.source(n), v.field, "*"+name, "is an alias of no anchor before it")
				return nil
			}
			if v.doc.aliases++; v.doc.aliases > maxAliases {
				v.doc.add(v.doc.source(n), v.field, "*"+name, fmt.Sprintf("expands aliases more than %d times", maxAliases))
				return nil
			}
			node = target.Value
		default:
			return node
		}
	}
}

// after tells whether a stands after b in their file.
func after(a, b rule.Source) bool {
	return a.Line > b.Line || a.Line == b.Line && a.Column > b.Column
}

// spend counts n values that are to be read of v; false, with a fault, beyond the bound.
func (v Value) spend(n int) bool {
	if v.doc.room < 0 {
		return false // told before
	}
	if v.doc.room -= n; v.doc.room < 0 {
		v.Fault(fmt.Sprintf("is where aliases have multiplied the file's values by more than %d", maxRead))
		return false
	}
	return true
}

// Fields are the entries of a mapping.
type Fields struct {
	value Value
	byKey map[string]Value
	lost  bool // the value is no mapping
}

// Fields reads a mapping that may hold the allowed fields. Other fields, and fields given twice, are faults; so is a
// value that is no mapping. An absent value has no fields, which is no fault.
func (v Value) Fields(allowed ...string) Fields { return v.FieldsBut(nil, allowed...) }

// FieldsBut is Fields with a list of fields that a later version will know: they are refused as such, rather than as
// a spelling error.
func (v Value) FieldsBut(later []string, allowed ...string) Fields {
	f := Fields{value: v, byKey: map[string]Value{}, lost: v.lost}
	if v.node == nil {
		return f
	}
	entries, ok := v.mapping()
	if !ok {
		v.Fault("want a mapping with " + strings.Join(allowed, ", "))
		f.lost, v.doc.shapeless = true, v.doc.shapeless || v.field == ""
	}
	for _, entry := range entries {
		f.entry(entry, allowed, later)
	}
	return f
}

func (f Fields) entry(entry *ast.MappingValueNode, allowed, later []string) {
	v := f.value
	key := Value{doc: v.doc, node: entry.Key, field: v.field}
	name, ok := scalarText(key.resolve())
	if !ok {
		key.Fault("want a field name: one of " + strings.Join(allowed, ", "))
		return
	}
	child := Value{doc: v.doc, node: entry.Value, field: join(v.field, name), at: key.At()}
	if !slices.Contains(allowed, name) {
		what := "is unknown"
		if slices.Contains(later, name) {
			what = "is not in this version"
		}
		v.doc.add(child.at, join(v.field, name), "", what+": want one of "+strings.Join(allowed, ", "))
		return
	}
	if first, twice := f.byKey[name]; twice {
		v.doc.add(child.at, join(v.field, name), "", "is given twice: first at line "+strconv.Itoa(first.at.Line))
		return
	}
	f.byKey[name] = child
}

// mapping are the value's entries as parsed; false if it is no mapping. A value that cannot be resolved has none, and its
// fault already.
func (v Value) mapping() (entries []*ast.MappingValueNode, ok bool) {
	switch n := v.resolve().(type) {
	case *ast.MappingNode:
		if !v.spend(len(n.Values)) {
			return nil, true
		}
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	case nil:
		return nil, true
	}
	return nil, false
}

// Entry is a named value of a mapping whose names are the writer's to choose.
type Entry struct {
	Name rule.Scalar
	Value
}

// Entries are the entries of a mapping with free names, in the order of the file. A name given twice is a fault; so is a
// value that is no mapping. An absent value has no entries, which is no fault.
func (v Value) Entries() []Entry {
	if v.node == nil {
		return nil
	}
	nodes, ok := v.mapping()
	if !ok {
		v.Fault("want a mapping of names")
	}
	var entries []Entry
	lines := map[string]int{}
	for _, n := range nodes {
		key := Value{doc: v.doc, node: n.Key, field: v.field}
		name, ok := scalarText(key.resolve())
		if !ok {
			key.Fault("want a name")
			continue
		}
		at := key.At()
		if first, twice := lines[name]; twice {
			v.doc.add(at, join(v.field, name), "", "is given twice: first at line "+strconv.Itoa(first))
			continue
		}
		lines[name] = at.Line
		entries = append(entries, Entry{
			Name:  rule.Scalar{Text: name, At: at, Set: true},
			Value: Value{doc: v.doc, node: n.Value, field: join(v.field, name), at: at},
		})
	}
	return entries
}

// Get is the field of that name, absent if the mapping has none.
func (f Fields) Get(name string) Value {
	if v, ok := f.byKey[name]; ok {
		return v
	}
	return Value{doc: f.value.doc, field: join(f.value.field, name), at: f.value.At(), lost: f.lost}
}

// Items are the elements of a list; none, with a fault, for a value that is no list. An absent value has no items,
// which is no fault.
func (v Value) Items() []Value {
	if v.node == nil {
		return nil
	}
	switch n := v.resolve().(type) {
	case *ast.SequenceNode:
		if !v.spend(len(n.Values)) {
			return nil
		}
		items := make([]Value, len(n.Values))
		for i, node := range n.Values {
			items[i] = Value{doc: v.doc, node: node, field: v.field + "[" + strconv.Itoa(i) + "]", at: v.At()}
		}
		return items
	case nil:
		return nil
	default:
		want := "want a list"
		// One plain value in place of a list is the usual slip.
		if text, ok := scalarText(n); ok && text != "" && len(text) <= 60 && !strings.ContainsAny(text, "[]{},:#\"' \n") {
			want += ", as [" + text + "]"
		}
		v.Fault(want)
		return nil
	}
}

// Scalar is the text of a single value as written, whatever YAML takes it for; unset, with a fault, for a list, a
// mapping or a null. An absent value is unset, which is no fault.
func (v Value) Scalar() rule.Scalar {
	if v.node == nil {
		return rule.Scalar{}
	}
	node := v.resolve()
	if node == nil {
		return rule.Scalar{}
	}
	if _, null := node.(*ast.NullNode); null {
		v.doc.add(v.at, v.field, "", "has no value")
		return rule.Scalar{}
	}
	text, ok := scalarText(node)
	if !ok {
		v.Fault("want a single value")
		return rule.Scalar{}
	}
	return rule.Scalar{Text: text, At: v.At(), Set: true}
}

// scalarText is a scalar as written: 007 stays 007, since an id of digits is no number.
func scalarText(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode, *ast.MergeKeyNode:
		return n.GetToken().Value, true
	case *ast.MappingKeyNode:
		return scalarText(n.Value)
	}
	return "", false
}

func join(parent, name string) string {
	if parent == "" {
		return name
	}
	return parent + "." + name
}
