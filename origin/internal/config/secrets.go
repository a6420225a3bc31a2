package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/shared/rule"
)

// MinSecret is the least length of a secret in bytes: as many as the hash it keys.
const MinSecret = 32

// Secrets are read from files, so that they show in no process list.
type Secrets struct {
	Counter []byte // keys the hash that names counters; nil only with the memory store
	// Former is the one that Counter replaces from SwitchAt on; nil while there is one secret.
	Former   []byte
	SwitchAt time.Time
}

// madeBy says how a secret comes to be, up to the name of its file.
const madeBy = "as made by: head -c 32 /dev/urandom > "

// readSecrets reads the secrets that name counters. Processes that share a store must share them, so that there is
// no safe way to make one up here; with counters in this process's memory nobody else needs one.
func (r *reader) readSecrets(shared bool) (secrets Secrets) {
	v := r.secrets.Get("counter")
	scalars := r.list(v, "WEIR_SECRETS_COUNTER")
	at := r.scalar(r.secrets.Get("switch-at"), "WEIR_SECRETS_SWITCH_AT")
	if at.Set {
		var err error
		if secrets.SwitchAt, err = time.Parse(time.RFC3339, at.Text); err != nil || secrets.SwitchAt.Before(time.Unix(0, 0)) {
			r.fault(at, "secrets.switch-at", "want an instant as 2027-01-31T12:00:00Z")
		}
	}
	switch {
	case len(scalars) == 0:
		if shared && !(v.Present() && r.doc.Broken()) {
			r.faults = append(r.faults, rule.Fault{At: v.At(), Field: "secrets.counter", Want: "is missing: with Valkey, " +
				"want a list with one file of " + strconv.Itoa(MinSecret) + " or more random bytes, the same for all processes, " +
				madeBy + "weir.secret"})
		}
	case len(scalars) > 2:
		r.fault(scalars[2], "secrets.counter[2]", "want one file, or two while a secret is replaced: the new one, then the old one")
	case len(scalars) == 2 && !at.Set:
		r.fault(scalars[1], "secrets.counter[1]", "two secrets need an instant to go from the second to the first: want secrets.switch-at, the same for all processes, ahead of now by the time that it takes to restart them all")
	case len(scalars) == 1 && at.Set:
		r.fault(at, "secrets.switch-at", "is for two secrets: want secrets.counter: [NEW, OLD], or no switch-at")
	}
	if len(scalars) > 0 {
		secrets.Counter = r.counterSecret(scalars[0], 0)
	}
	if len(scalars) > 1 {
		secrets.Former = r.counterSecret(scalars[1], 1)
		if secrets.Counter != nil && string(secrets.Counter) == string(secrets.Former) {
			r.fault(scalars[1], "secrets.counter[1]", "holds the same secret as secrets.counter[0]")
		}
	}
	return secrets
}

// counterSecret reads the i-th file.
func (r *reader) counterSecret(s rule.Scalar, i int) []byte {
	field := "secrets.counter[" + strconv.Itoa(i) + "]"
	path := r.path(s, field, "")
	if path == "" {
		return nil
	}
	secret, err := readFile(path)
	if err != nil {
		r.fault(s, field, "cannot be read: "+reason(err)+": want a file "+madeBy+path)
		return nil
	}
	// Taken whole: a random secret may end in what looks like the end of a line.
	if len(secret) < MinSecret {
		r.fault(s, field, fmt.Sprintf("holds %d bytes: want at least %d", len(secret), MinSecret))
		return nil
	}
	return secret
}

// reason is a file error without the path, which the message has already.
func reason(err error) string {
	if i := strings.LastIndex(err.Error(), ": "); i >= 0 {
		return err.Error()[i+2:]
	}
	return err.Error()
}
