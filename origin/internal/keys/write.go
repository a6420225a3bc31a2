package keys

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weirproject/weir/shared/keyfilter"
)

// Issue makes a key from random (crypto/rand.Reader outside tests), adds its hashes to the file and returns its text,
// which is kept nowhere. Tenant and tier may be empty.
func (f *File) Issue(random io.Reader, who Key, created time.Time) (text string, err error) {
	if text, err = f.Format.New(random); err != nil {
		return "", fmt.Errorf("make key %s: %w", who.ID, err)
	}
	return text, f.Append(Entry{
		Key:      who,
		SHA256:   sha256.Sum256([]byte(text)),
		EdgeHash: keyfilter.Hash(f.HashKey, []byte(text)),
		Created:  created.UTC().Truncate(time.Second),
	})
}

// Append adds an entry. The error tells which of its fields is wrong or taken.
func (f *File) Append(e Entry) error {
	if isKey(e.ID) {
		return fmt.Errorf("id %w", errIsKey)
	}
	if err := CheckName(e.ID); err != nil {
		return fmt.Errorf("id %q: %w", e.ID, err)
	}
	for field, name := range map[string]string{"tenant": e.Tenant, "tier": e.Tier} {
		if name != "" && CheckName(name) != nil {
			return fmt.Errorf("%s %q: %w", field, name, ErrName)
		}
	}
	if len(f.Entries) >= MaxKeys {
		return fmt.Errorf("the file holds %d keys, which is the most it can", MaxKeys)
	}
	for _, have := range f.Entries {
		if have.ID == e.ID {
			return fmt.Errorf("id %q is taken", e.ID)
		}
		if have.SHA256 == e.SHA256 {
			return fmt.Errorf("the key is in the file already, as %q", have.ID)
		}
	}
	f.Entries = append(f.Entries, e)
	return nil
}

// Encode is the file's text. Comments that somebody wrote into it do not survive. Between `---` and `...`, a reader can
// tell a file that was cut short, wherever that was.
func (f *File) Encode() []byte {
	b := make([]byte, 0, 128+224*len(f.Entries))
	b = fmt.Appendf(b, begins+"\nversion: 1\nprefix: %q\nhash-key: \"%x\"\n", f.Format.Prefix, f.HashKey[:])
	if len(f.Entries) == 0 {
		return append(b, "keys: []\n"+ends+"\n"...)
	}
	b = append(b, "keys:\n"...)
	for _, e := range f.Entries {
		b = fmt.Appendf(b, "- id: %q\n  sha256: \"%x\"\n  edge-hash: \"%016x\"\n", e.ID, e.SHA256[:], e.EdgeHash)
		if e.Tenant != "" {
			b = fmt.Appendf(b, "  tenant: %q\n", e.Tenant)
		}
		if e.Tier != "" {
			b = fmt.Appendf(b, "  tier: %q\n", e.Tier)
		}
		if !e.Created.IsZero() {
			b = fmt.Appendf(b, "  created: %q\n", e.Created.UTC().Format(time.RFC3339))
		}
	}
	return append(b, ends+"\n"...)
}

// Update reads the file at path, or begins one with a hash key from random, lets change edit it, and puts the result
// in its place by rename with mode 0600: a reader sees the old file or the new, never half of one. Processes that
// update at the same time wait for each other.
func Update(path string, random io.Reader, change func(*File) error) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return writeError(path, err)
	}
	defer folder.Close() // releases the lock
	// The folder is locked, since the file itself is replaced.
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", folder.Name(), err)
	}
	f, err := Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = New(random)
	}
	if err != nil {
		return err
	}
	if err := change(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := replace(path, f.Encode()); err != nil {
		return writeError(path, err)
	}
	return nil
}

// writeError names the file that was to be written in place of the folder or the temporary file that failed.
func writeError(path string, err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	return fmt.Errorf("write %s: %w", path, err)
}

// replace writes content beside path, then renames it into place.
func replace(path string, content []byte) error {
	// A symlink is followed, so that the link stays one.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // no longer there once renamed
	if _, err := temporary.Write(content); err != nil {
		temporary.Close()
		return err
	}
	if err := temporary.Sync(); err != nil {
		temporary.Close()
		return err
	}
	if err := temporary.Close(); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
