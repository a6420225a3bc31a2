package keys

import (
	"errors"
	"regexp"
	"strings"

	"github.com/weirproject/weir/shared/keyfilter"
	"github.com/weirproject/weir/shared/rule"
)

// errIsKey says that a name is a key: names stand in logs, metrics and the store.
var errIsKey = errors.New("is a key itself: want a name of its own")

// checkedLen is how long an issued key is behind its prefix.
var checkedLen = keyfilter.Format{}.Len() - len(keyfilter.DefaultPrefix)

// isKey tells whether a name is a key as some installation issues it, whatever its prefix.
func isKey(name string) bool {
	at := len(name) - checkedLen
	return at > 0 && keyfilter.CheckPrefix(name[:at]) == nil && keyfilter.Format{Prefix: name[:at]}.Check([]byte(name))
}

// keyLike is what may be a key, whoever issued it: no name of a field is as long.
var keyLike = regexp.MustCompile(`[A-Za-z0-9_.~+/-]{16,}`)

// masked are the faults of a file without what may be a key, which somebody put where its hash or its name belongs: messages
// stand in logs. Of a name it is told by its checksum, or all long names would go.
func masked(err error) error {
	faults, ok := errors.AsType[rule.Faults](err)
	if !ok {
		return err
	}
	for i := range faults {
		f := &faults[i]
		name := f.Field[strings.LastIndexByte(f.Field, '.')+1:]
		switch {
		case name != entryFields[id] && name != entryFields[tenant] && name != entryFields[tier]:
			f.Value = keyLike.ReplaceAllString(f.Value, "…")
		case isKey(f.Value):
			f.Value = ""
		}
		f.Field = keyLike.ReplaceAllString(f.Field, "…")
	}
	return err
}
