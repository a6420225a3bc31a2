package envoyconfig

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/limit"
	"github.com/weirproject/weir/shared/rule"
)

// KeyHeader is where clients put their API key.
const KeyHeader = "x-api-key"

// BuildBundle compiles a rules file, with the issued keys, for the edges: the edge rule, what the file says of the edge,
// what the origin's rules are for. keysFile may be empty: then edges do not look at keys. The error is a [rule.Faults]
// with everything wrong in a file, or says why it cannot be read; what is wrong with both files is told at once.
//
// A keys file has no sequence numbers, so that edges are told to ask nobody for changes.
func BuildBundle(rulesFile, keysFile string, release uint64, built time.Time) ([]byte, error) {
	loaded, err := rules.Load(rulesFile)
	var issued *keys.File
	if keysFile != "" {
		var keysErr error
		issued, keysErr = keys.Load(keysFile)
		err = both(err, keysErr)
	}
	if err != nil {
		return nil, err
	}
	atEdge := loaded.Set.EdgeSettings
	content := bundle.Content{
		Release:      release,
		Built:        limit.Micros(built.UnixMicro()),
		Rule:         loaded.Set.Edge(),
		Exempt:       atEdge.Exempt,
		Deny:         atEdge.Deny,
		Origin:       loaded.Set,
		TableEntries: atEdge.TableEntries,
	}
	if issued != nil {
		content.Gate = &bundle.Gate{
			KeyHeader:  KeyHeader,
			Format:     issued.Format,
			HashKey:    issued.HashKey,
			StaleAfter: atEdge.StaleAfter,
			Unverified: atEdge.Unverified,
		}
		for _, entry := range issued.Entries {
			content.KeyHashes = append(content.KeyHashes, entry.EdgeHash)
		}
	}
	encoded, err := bundle.Encode(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", rulesFile, err)
	}
	return encoded, nil
}

// both joins two errors, of which each may be nil; faults of two files stay faults.
func both(a, b error) error {
	first, ok := errors.AsType[rule.Faults](a)
	second, too := errors.AsType[rule.Faults](b)
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case ok && too:
		return append(first[:len(first):len(first)], second...)
	}
	return errors.Join(a, b)
}
