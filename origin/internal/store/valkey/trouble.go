package valkey

import (
	"regexp"
	"slices"
)

// maxTroubles bounds the lines that one outage is worth.
const maxTroubles = 8

// ownPort is what differs from try to try in an error of the network: the address that this process called from.
var ownPort = regexp.MustCompile(`\b(tcp) \S+->`)

// troubles are those of one outage that were logged. A server that is away fails in a few ways by turns, twice a second:
// each is told once. The zero value is that of a server that is well.
type troubles []string

// add takes in how it failed, and tells whether that is news.
func (t *troubles) add(err error) (text string, news bool) {
	text = ownPort.ReplaceAllString(err.Error(), "$1 ")
	if len(*t) == maxTroubles || slices.Contains(*t, text) {
		return text, false
	}
	*t = append(*t, text)
	return text, true
}

// over ends the outage, and tells whether there was one.
func (t *troubles) over() (was bool) {
	was = len(*t) > 0
	*t = nil
	return was
}
