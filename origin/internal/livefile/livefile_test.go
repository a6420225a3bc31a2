package livefile_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirproject/weir/origin/internal/livefile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parse takes any content that does not say bad; an empty file is none.
func parse(_ string, content []byte) (string, error) {
	if text := string(content); text != "" && !strings.Contains(text, "bad") {
		return text, nil
	}
	return "", errors.New("no good")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rename puts text in path's place in one step: a write in place shows an empty file first.
func rename(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

type change struct {
	value string
	err   error
}

// follow opens path and follows it until the test ends.
func follow(t *testing.T, path string) (*livefile.File[string], <-chan change) {
	t.Helper()
	f, err := livefile.Open(path, parse)
	if err != nil {
		t.Fatal(err)
	}
	return f, followed(t, f)
}

// followed follows f until the test ends.
func followed(t *testing.T, f *livefile.File[string]) <-chan change {
	t.Helper()
	changes, ended := make(chan change, 16), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- f.Follow(ctx, func(v string, err error) { changes <- change{v, err} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return changes
}

func next(t *testing.T, changes <-chan change) change {
	t.Helper()
	select {
	case c := <-changes:
		return c
	case <-time.After(20 * time.Second):
		t.Fatal("the change was not seen")
		return change{}
	}
}

func TestEveryWayToReplaceAFileIsSeen(t *testing.T) {
	ways := map[string]func(t *testing.T, path, text string){
		"written in place": write,
		"renamed over":     rename,
		"removed and made again": func(t *testing.T, path, text string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			write(t, path, text)
		},
	}
	for name, replace := range ways {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			write(t, path, "one")
			f, changes := follow(t, path)
			for _, text := range []string{"two", "three"} {
				replace(t, path, text)
				// A look may fall between two steps of the replacement; the end is what counts.
				c := next(t, changes)
				for c.value != text || c.err != nil {
					c = next(t, changes)
				}
				if f.Get() != text || f.Status().Err != nil {
					t.Errorf("%q in force with %v, want %q", f.Get(), f.Status().Err, text)
				}
			}
		})
	}
}

// Kubernetes swaps a link to the folder that the file's own link goes through.
func TestASwapOfALinkAboveTheFileIsSeen(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"v1", "v2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "f"), version)
	}
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("v1", "data")
	link(filepath.Join("data", "f"), "f")
	_, changes := follow(t, filepath.Join(dir, "f"))
	link("v2", "data.new")
	if err := os.Rename(filepath.Join(dir, "data.new"), filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	if c := next(t, changes); c.value != "v2" || c.err != nil {
		t.Errorf("%+v", c)
	}
}

func TestABadContentIsToldOnceWhileTheLastGoodStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "good")
	f, changes := follow(t, path)
	inForce := f.Status()
	for _, content := range []string{"bad", ""} {
		rename(t, path, content)
		if c := next(t, changes); c.err == nil || c.value != "good" {
			t.Errorf("%q: %+v", content, c)
		}
		if st := f.Status(); f.Get() != "good" || st.Err == nil || st.Content != inForce.Content || st.Since != inForce.Since {
			t.Errorf("%q: %q in force, %+v", content, f.Get(), st)
		}
	}
	// Back to the very content in force: the trouble is over, though nothing was taken.
	rename(t, path, "good")
	if c := next(t, changes); c.err != nil || c.value != "good" {
		t.Errorf("%+v", c)
	}
	if st := f.Status(); st.Err != nil || st.Since != inForce.Since {
		t.Errorf("%+v", st)
	}
	// A touch that changes nothing is no change: the next one seen is the next content.
	rename(t, path, "good")
	rename(t, path, "better")
	if c := next(t, changes); c.value != "better" {
		t.Errorf("%+v", c)
	}
}

func TestAChangeBeforeFollowingIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "one")
	f, err := livefile.Open(path, parse)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "two")
	ctx, cancel := context.WithCancel(t.Context())
	if err := f.Follow(ctx, func(v string, err error) {
		if v != "two" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		cancel()
	}); err != nil {
		t.Error(err)
	}
}

func TestABadFirstContentOpensNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if _, err := livefile.Open(path, parse); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	write(t, path, "bad")
	if f, err := livefile.Open(path, parse); err == nil {
		t.Errorf("bad content: %q in force", f.Get())
	}
}

// A certificate is renewed by writing two files, one after the other.
func TestFilesThatBelongTogetherChangeTogether(t *testing.T) {
	folder := t.TempDir()
	paths := []string{filepath.Join(folder, "a"), filepath.Join(folder, "b")}
	write(t, paths[0], "1")
	write(t, paths[1], "1")
	pair := func(contents [][]byte) (string, error) {
		if a, b := string(contents[0]), string(contents[1]); a == b {
			return a, nil
		}
		return "", errors.New("no pair")
	}
	f, err := livefile.OpenAll(paths, pair)
	if err != nil {
		t.Fatal(err)
	}
	changes, ended := make(chan change, 16), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- f.Follow(ctx, func(v string, err error) { changes <- change{v, err} }) }()
	rename(t, paths[0], "2")
	if c := <-changes; c.err == nil || c.value != "1" || f.Get() != "1" || f.Status().Err == nil {
		t.Errorf("one of two is written: %+v, %+v", c, f.Status())
	}
	rename(t, paths[1], "2")
	if c := <-changes; c.err != nil || c.value != "2" || f.Get() != "2" || f.Status().Err != nil {
		t.Errorf("both are written: %+v, %+v", c, f.Status())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := livefile.OpenAll([]string{paths[0], filepath.Join(folder, "none")}, pair); err == nil {
		t.Error("a file that is missing is no error")
	}
}

func TestAStreamedFileIsFollowedAsAnyOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "one")
	f, err := livefile.OpenStream(path, func(name string, content io.Reader) (string, error) {
		first := make([]byte, 3) // the rest is left unread
		if _, err := io.ReadFull(content, first); err != nil || string(first) == "bad" {
			return "", errors.New("no good")
		}
		return string(first), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := livefile.Open(path, parse)
	if err != nil || whole.Status().Content != f.Status().Content {
		t.Errorf("hash %s, want %s as of a file that is held, %v", f.Status().Content, whole.Status().Content, err)
	}
	changes := followed(t, f)
	for _, c := range []struct {
		text, want string
		good       bool
	}{{"two", "two", true}, {"bad", "two", false}, {"tw", "two", false}, {"two, with an end that nobody reads", "two", true}} {
		rename(t, path, c.text)
		if got := next(t, changes); got.value != c.want || got.err == nil != c.good || f.Get() != c.want {
			t.Errorf("%s: %+v, in force %q", c.text, got, f.Get())
		}
	}
	if whole, err := livefile.Open(path, parse); err != nil || whole.Status().Content != f.Status().Content {
		t.Errorf("hash %s, want %s, %v", f.Status().Content, whole.Status().Content, err)
	}
}
