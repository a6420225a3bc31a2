// Package livefile follows a file, or a few that make one value, keeping the last content that was good.
package livefile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weirproject/weir/origin/internal/document"
)

// Times of following. An editor writes a file in several steps, which settle lets pass as one change; poll finds what
// notifications miss: a change behind a symlink in another folder, a network file system.
const (
	settle = 50 * time.Millisecond
	poll   = 5 * time.Second
)

// contentDigits of the SHA-256 are shown: enough to tell two contents apart by eye.
const contentDigits = 12

// File is a followed file, or a few, with the last good value. Methods may be called from any goroutine.
type File[T any] struct {
	paths []string
	// load reads the files into a value, hash their content alone; both give the same hash of the same content.
	load  func() (value T, seen string, err error)
	hash  func() (seen string, err error)
	value atomic.Pointer[T]

	mu     sync.Mutex
	status Status
	seen   string // content hash last looked at, good or not
}

// Status tells how a file stands.
type Status struct {
	Path    string    // of several files, all, with commas between them
	Content string    // start of the hex SHA-256 of the content in force
	Since   time.Time // when that content came into force
	Err     error     // why a newer content was refused; nil when the newest is in force
}

// Open reads path for the first time; a bad file is an error. parse gets the path for its messages.
func Open[T any](path string, parse func(name string, content []byte) (T, error)) (*File[T], error) {
	return OpenAll([]string{path}, func(contents [][]byte) (T, error) { return parse(path, contents[0]) })
}

// OpenAll is as Open for files that make one value together, such as a certificate and its key. A change of any of them
// reads them all: while one is written and the other not yet, the value is the last that they made together.
func OpenAll[T any](paths []string, parse func(contents [][]byte) (T, error)) (*File[T], error) {
	read := func() (contents [][]byte, seen string, err error) {
		for _, path := range paths {
			content, err := document.Content(path)
			if err != nil {
				return nil, "", err
			}
			contents = append(contents, content)
		}
		return contents, hash(contents), nil
	}
	return open(&File[T]{
		paths: paths,
		load: func() (value T, seen string, err error) {
			contents, seen, err := read()
			if err == nil {
				value, err = parse(contents)
			}
			return value, seen, err
		},
		hash: func() (string, error) {
			_, seen, err := read()
			return seen, err
		},
	})
}

// open reads the files for the first time.
func open[T any](f *File[T]) (*File[T], error) {
	value, seen, err := f.load()
	if err != nil {
		return nil, err
	}
	f.seen = seen
	f.value.Store(&value)
	f.status = Status{Path: strings.Join(f.paths, ", "), Content: seen, Since: time.Now()}
	return f, nil
}

// Get is the last good value.
func (f *File[T]) Get() T { return *f.value.Load() }

// Status tells how the file stands now.
func (f *File[T]) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Follow reads the file anew whenever it changes, until ctx ends; run it in one goroutine. It calls changed after
// each new content, with the error that refused it or nil; the file has that status by then.
func (f *File[T]) Follow(ctx context.Context, changed func(T, error)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	for _, path := range f.paths {
		// The folder, since a rename or a symlink swap leaves a watch on the file with the old one.
		if err := watcher.Add(filepath.Dir(path)); err != nil {
			return err
		}
	}
	polling := time.NewTicker(poll)
	defer polling.Stop()
	// Whatever changed between Open and the watch.
	f.look(changed)
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-watcher.Events:
			if !ok {
				return nil
			}
			settled = time.After(settle)
		case <-settled:
			settled = nil
			f.look(changed)
		case <-polling.C:
			f.look(changed)
		case _, ok := <-watcher.Errors:
			// An overflow of the queue of events: polling finds the change.
			if !ok {
				return nil
			}
		}
	}
}

// look reads the files and takes their content if that is new and good.
func (f *File[T]) look(changed func(T, error)) {
	seen, err := f.hash()
	if err != nil {
		seen = "unreadable"
	}
	f.mu.Lock()
	same := seen == f.seen
	f.seen = seen
	inForce := f.status.Content
	f.mu.Unlock()
	if same {
		return
	}
	value := f.Get()
	if err == nil && seen != inForce {
		var loaded T
		var content string // which may have changed again
		if loaded, content, err = f.load(); err == nil {
			value, seen = loaded, content
			f.value.Store(&value)
		}
	}
	f.mu.Lock()
	f.status.Err = err
	if err == nil && seen != inForce {
		f.seen, f.status.Content, f.status.Since = seen, seen, time.Now()
	}
	f.mu.Unlock()
	changed(value, err)
}

// hash is of one file its SHA-256, of several that of theirs in a row.
func hash(contents [][]byte) string {
	sum := sha256.Sum256(contents[0])
	if len(contents) > 1 {
		var sums []byte
		for _, content := range contents {
			each := sha256.Sum256(content)
			sums = append(sums, each[:]...)
		}
		sum = sha256.Sum256(sums)
	}
	return hex.EncodeToString(sum[:])[:contentDigits]
}
