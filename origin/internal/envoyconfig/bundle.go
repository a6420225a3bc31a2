package envoyconfig

import (
	"fmt"
	"time"

	"github.com/weirproject/weir/origin/internal/keys"
	"github.com/weirproject/weir/origin/internal/rules"
	"github.com/weirproject/weir/shared/bundle"
	"github.com/weirproject/weir/shared/limit"
)

// KeyHeader is where clients put their API key.
const KeyHeader = "x-api-key"

// BuildBundle compiles the edge rule of a rules file, with the issued keys, for the edges. keysFile may be empty:
// then edges do not look at keys. The error is a [rule.Faults] with everything wrong in a file, or says why it cannot
// be read.
func BuildBundle(rulesFile, keysFile string, release uint64, built time.Time) ([]byte, error) {
	loaded, err := rules.Load(rulesFile)
	if err != nil {
		return nil, err
	}
	content := bundle.Content{
		Release: release,
		Built:   limit.Micros(built.UnixMicro()),
		Rule:    loaded.Set.Edge(),
	}
	if keysFile != "" {
		issued, err := keys.Load(keysFile)
		if err != nil {
			return nil, err
		}
		content.Gate = &bundle.Gate{KeyHeader: KeyHeader, Format: issued.Format, HashKey: issued.HashKey}
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
