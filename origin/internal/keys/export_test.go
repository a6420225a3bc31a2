package keys

import "github.com/weirproject/weir/origin/internal/document"

// ReadLines and ReadDocument are the two readers behind [Read].
var ReadLines = readLines

func ReadDocument(name string, content []byte) (*File, error) {
	return readDocument(document.Parse(name, content))
}
