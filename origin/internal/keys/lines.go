package keys

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/weirproject/weir/shared/rule"
)

const (
	// maxLine bounds a line: one key in a line of its own, spelled as long as its fields may be, takes half of it.
	maxLine = 1 << 10
	// maxLineFaults keeps a broken file of 400,000 keys from answering with as many lines.
	maxLineFaults = 100
)

// layout is what a large file has to look like.
const layout = "want the layout of `weir key new`: the other fields, then `keys:`, then each key as `- id: NAME` with its other fields " +
	"below it, or in one line as `- {id: NAME, sha256: HEX, edge-hash: HEX}`; no escapes, anchors, tabs; comments in ASCII"

// lines reads a keys file line by line: the layout that [File.Encode] writes, and what people spell nearly so. It reads
// less than YAML, but what it reads means the same there.
type lines struct {
	reader
	in     *bufio.Reader
	number int    // of the line at hand
	line   []byte // it, without its end; overwritten by the next
	faults rule.Faults
	more   int // faults beyond maxLineFaults

	framed bool // the file begins with `---`
	ended  bool // it has come to `...`

	indent  int // of a key's dash; -1 before the first
	open    bool
	at      value // where the key at hand begins
	entry   [len(entryFields)]value
	scratch []byte // holds the values of the key at hand
}

// readLines reads content; what it cannot read is a fault with the line.
func readLines(name string, content io.Reader) (*File, error) {
	l := &lines{in: bufio.NewReaderSize(content, maxLine), indent: -1}
	l.name = name
	if err := l.read(); err != nil {
		return nil, err
	}
	if l.more > 0 {
		l.faults = append(l.faults, rule.Fault{At: rule.Source{File: name}, Want: "and " + strconv.Itoa(l.more) + " more"})
	}
	if err := l.faults.Err(); err != nil {
		return nil, err
	}
	return l.file, nil
}

// errOdd is a line that is not spelled as this reader knows.
var errOdd = errors.New("odd line")

func (l *lines) read() error {
	err := l.readHead()
	for err == nil {
		if err = l.next(); err == nil {
			err = l.readEntryLine()
		}
	}
	if errors.Is(err, io.EOF) && l.indent < 0 {
		err = errOdd // a list of nothing is no list
	}
	if errors.Is(err, errOdd) {
		return rule.Faults{{At: rule.Source{File: l.name, Line: l.number}, Value: string(l.line),
			Want: fmt.Sprintf("cannot be read in a file of more than %d bytes, in which not all of YAML may be used: %s", wholeYAML, layout)}}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	l.close()
	if l.framed && !l.ended {
		return rule.Faults{cutFault(l.name)}
	}
	return nil
}

// next gets the next line with something in it.
func (l *lines) next() error {
	for {
		line, err := l.in.ReadSlice('\n')
		if len(line) == 0 && err != nil {
			return err // io.EOF at the end
		}
		l.number++
		l.line = bytes.TrimSuffix(line, []byte("\n"))
		if err != nil && !errors.Is(err, io.EOF) {
			if errors.Is(err, bufio.ErrBufferFull) {
				err = errOdd
			}
			return err
		}
		for _, c := range l.line {
			if c < ' ' || c > '~' {
				return errOdd
			}
		}
		if rest := bytes.TrimLeft(l.line, " "); len(rest) > 0 && rest[0] != '#' {
			return nil
		}
	}
}

// readHead reads up to `keys:`.
func (l *lines) readHead() error {
	var values [heads]value
	var begin value // where the mapping begins
	for {
		if err := l.next(); errors.Is(err, io.EOF) {
			return errOdd // without keys: YAML's reader tells what is missing
		} else if err != nil {
			return err
		}
		if begin.line == 0 && !l.framed && string(l.line) == begins {
			l.framed = true
			continue
		}
		if begin.line == 0 {
			begin = value{file: l.name, line: l.number, column: 1}
			for i := range values {
				values[i] = begin
			}
		}
		name, text, column, ok := field(l.line, 0)
		if !ok {
			return errOdd
		}
		if name == "keys" {
			if !ended(l.line, len("keys:")) {
				return errOdd
			}
			break
		}
		i := indexOf(headFields[:heads], name)
		if i < 0 || values[i].present || text == nil {
			return errOdd
		}
		values[i] = value{text: bytes.Clone(text), file: l.name, line: l.number, column: column, present: true, set: true}
	}
	l.head(values, func(i int, want string) { l.fault(values[i], headFields[i], want) })
	return nil
}

// readEntryLine reads a line of the list.
func (l *lines) readEntryLine() error {
	if l.ended {
		return errOdd
	}
	if string(l.line) == ends && l.indent >= 0 {
		l.ended = true
		return nil
	}
	rest := bytes.TrimLeft(l.line, " ")
	indent := len(l.line) - len(rest)
	if bytes.HasPrefix(rest, []byte("- ")) && len(rest) > 2 && rest[2] != ' ' {
		if l.indent >= 0 && indent != l.indent {
			return errOdd
		}
		l.close()
		if len(l.file.Entries) >= MaxKeys {
			l.fault(value{file: l.name, line: l.number, column: indent + 1}, "", fmt.Sprintf("is one key too many: want at most %d", MaxKeys))
			return io.EOF
		}
		l.indent, l.open = indent, true
		l.at = value{file: l.name, line: l.number, column: indent + 3}
		for i := range l.entry {
			l.entry[i] = l.at
		}
		l.scratch = l.scratch[:0]
		if rest[2] == '{' {
			return l.flow(indent + 2)
		}
		return l.add(indent + 2)
	}
	if !l.open || indent != l.indent+2 {
		return errOdd
	}
	return l.add(indent)
}

// add takes the field that begins at an offset of the line for the key at hand.
func (l *lines) add(from int) error {
	name, text, column, ok := field(l.line, from)
	if !ok || text == nil {
		return errOdd
	}
	return l.set(name, text, column)
}

func (l *lines) set(name string, text []byte, column int) error {
	i := indexOf(entryFields[:], name)
	if i < 0 || l.entry[i].present {
		return errOdd
	}
	start := len(l.scratch)
	l.scratch = append(l.scratch, text...)
	l.entry[i] = value{text: l.scratch[start:], file: l.name, line: l.number, column: column, present: true, set: true}
	return nil
}

// flow takes a key that stands in one line: {name: value, …}, which begins at an offset of it.
func (l *lines) flow(from int) error {
	at := from + 1
	for {
		at = skip(l.line, at)
		name, after, ok := fieldName(l.line, at)
		if !ok {
			return errOdd
		}
		begin := skip(l.line, after)
		text, end := scalar(l.line, begin)
		if begin == after || text == nil { // a colon wants a space
			return errOdd
		}
		if err := l.set(name, text, begin+1); err != nil {
			return err
		}
		at = skip(l.line, end)
		if at >= len(l.line) {
			return errOdd
		}
		if l.line[at] == '}' {
			break
		}
		if l.line[at] != ',' {
			return errOdd
		}
		at++
		if at < len(l.line) && l.line[at] != ' ' {
			return errOdd
		}
	}
	if !ended(l.line, at+1) {
		return errOdd
	}
	l.close()
	return nil
}

// close ends the key at hand.
func (l *lines) close() {
	if !l.open {
		return
	}
	l.open = false
	index := len(l.file.Entries)
	l.reader.entry(l.entry, func(i int, want string) {
		l.fault(l.entry[i], "keys["+strconv.Itoa(index)+"]."+entryFields[i], want)
	})
}

func (l *lines) fault(v value, field, want string) {
	if len(l.faults) >= maxLineFaults {
		l.more++
		return
	}
	l.faults = append(l.faults, rule.Fault{At: v.at(), Field: field, Value: string(v.text), Want: want})
}

// field reads `name: value` from an offset to the end of a line; text is nil where no value is that this reader knows.
func field(line []byte, from int) (name string, text []byte, column int, ok bool) {
	name, after, ok := fieldName(line, from)
	if !ok {
		return "", nil, 0, false
	}
	begin := skip(line, after)
	if begin == after && begin < len(line) {
		return "", nil, 0, false
	}
	text, end := scalar(line, begin)
	if text != nil && !ended(line, end) {
		text = nil
	}
	return name, text, begin + 1, true
}

// fieldName reads a plain name with its colon.
func fieldName(line []byte, from int) (name string, after int, ok bool) {
	end := from
	for end < len(line) && (line[end] >= 'a' && line[end] <= 'z' || line[end] == '-' || line[end] >= '0' && line[end] <= '9') {
		end++
	}
	if end == from || end >= len(line) || line[end] != ':' {
		return "", 0, false
	}
	// The name is one of few: no string is made for it.
	for _, known := range [...][]string{headFields[:], entryFields[:]} {
		for _, n := range known {
			if string(line[from:end]) == n {
				return n, end + 1, true
			}
		}
	}
	return "", 0, false
}

// scalar reads a value: quoted without anything to be unquoted in it, or plain and nothing but text in YAML. It is nil
// for what is neither.
func scalar(line []byte, from int) (text []byte, end int) {
	if from >= len(line) {
		return nil, from
	}
	if quote := line[from]; quote == '"' || quote == '\'' {
		n := bytes.IndexByte(line[from+1:], quote)
		if n < 0 {
			return nil, from
		}
		text, end = line[from+1:from+1+n], from+n+2
		if bytes.IndexByte(text, '\\') >= 0 || end < len(line) && line[end] == quote {
			return nil, from
		}
		return text, end
	}
	end = from
	for end < len(line) && plain(line[end]) {
		end++
	}
	text = line[from:end]
	if len(text) == 0 || text[0] == '-' || text[0] == ':' || text[len(text)-1] == ':' || bytes.EqualFold(text, []byte("null")) {
		return nil, from
	}
	return text, end
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' || c == ':'
}

// skip is the offset of the first byte from an offset on that is no space.
func skip(line []byte, from int) int {
	for from < len(line) && line[from] == ' ' {
		from++
	}
	return from
}

// ended tells whether nothing but a comment follows.
func ended(line []byte, from int) bool {
	at := skip(line, from)
	return at >= len(line) || at > from && line[at] == '#'
}

func indexOf(names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	return -1
}
